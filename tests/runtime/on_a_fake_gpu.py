"""Run the checks of benchmarks/device_checks.py that have a meaning on every device on a fake GPU; print a line per row.

Both devices have to give the same numbers up to rounding: in float32, after a kill as well, and from pools that are
converted whole, resident in their stored type, or read from their memory map. TF32 and bf16 have to run.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fake_gpu import on_the_gpu

# isort: split
from mia_audit.runtime.device import make_deterministic

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import device_checks

if __name__ == "__main__":
    make_deterministic()
    with on_the_gpu():
        for check in (one for one in device_checks.ON_ANY if one is not device_checks.determinism):  # the CPU's kernels
            for row in check("cuda"):
                print(row, flush=True)
                assert row.good, row
