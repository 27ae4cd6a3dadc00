"""Resources used by a stage: seconds, CPU seconds, and the peak memory of its process and of its GPU."""

import resource
import sys
import time
from pathlib import Path


def write_usage(path: Path, seconds: float) -> None:
    """Write the resources that this process used in these seconds as a table with one row; megabytes are 10⁶ bytes.

    The kernel records the peak itself, so that even a short stage is measured. The memory of a GPU is the peak of
    PyTorch's allocator; it is 0 if no GPU was used.
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
    """Return the numbers in a table of `write_usage`, by column."""
    names, values = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return dict(zip(names, map(float, values), strict=True))


def peak_of(path: Path) -> float:
    """Return the peak megabytes in a table of `write_usage`."""
    return read_usage(path)["peak_mb"]


def _gpu_bytes() -> int:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.max_memory_reserved())
