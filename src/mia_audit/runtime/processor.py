"""The kinds of processors on which this process computes; other kinds round differently."""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path

PROCESSORS = Path("/proc/cpuinfo")


def processor_names() -> list[str]:
    """Return the kind of the CPU, and of the GPU if this process computes on one."""
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", PROCESSORS.read_text(), re.MULTILINE)
    except (OSError, ValueError):
        match = None
    names = [match[1] if match else platform.processor() or platform.machine()]
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        names.append(torch.cuda.get_device_name())
    return names
