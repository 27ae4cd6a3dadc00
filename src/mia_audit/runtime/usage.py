"""What a stage used: seconds, CPU seconds, and the largest memory of its process and of its GPU."""

import resource
import sys
import time
from pathlib import Path


def write_usage(path: Path, seconds: float) -> None:
    """Write what this process has used in these seconds as a table of one row; megabytes are 10⁶ bytes.

    The kernel keeps the peak itself: nothing falls between two samples, however short the stage is. Memory of a GPU is what
    PyTorch's allocator has held at most, 0 where none was used.
    """
    from mia_audit.storage.atomic import write_text  # the workflow reads tables without pyarrow

    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    row = {
        "seconds": f"{seconds:.3f}",
        "cpu_seconds": f"{time.process_time():.3f}",
        "peak_mb": f"{kilobytes * 1024 / 1e6:.1f}",
        "gpu_peak_mb": f"{_gpu_bytes() / 1e6:.1f}",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "\t".join(row) + "\n" + "\t".join(row.values()) + "\n")


def read_usage(path: Path) -> dict[str, float]:
    """Return the numbers that a table of `write_usage` states, by column."""
    names, values = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return dict(zip(names, map(float, values), strict=True))


def peak_of(path: Path) -> float:
    """Return the megabytes at the peak that a table of `write_usage` states."""
    return read_usage(path)["peak_mb"]


def _gpu_bytes() -> int:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.max_memory_reserved())
