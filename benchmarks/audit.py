"""Measure `mia-audit audit` with its default attacks, from matrix files to the report, including start-up.

    python benchmarks/audit.py [RECORDS MODELS SIGNALS [THREADS]]

Random matrices (by default 20,000 × 33 × 16) are written to the temporary folder, then the command runs on them in a separate
process. The 16 signals are loss, confidence and the summaries of four explainers. 60,000 × 257 × 16 give 2 GB of matrices and
3 GB of scores. Prints CPU seconds, wall-clock seconds and the peak resident size, with and without the report.
"""

import os
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np

NAMES = [
    "loss",
    "confidence",
    *(
        f"{explainer}_{summary}"
        for explainer, summary in product(("ixg", "ig", "saliency", "gradient_shap"), ("variance", "l1", "l2", "linf"))
    ),
]

WAYS = {"with the report": [], "without the report": ["--no-report"]}


def write(folder: Path, records: int, models: int, names: list[str]) -> list[str]:
    """Write membership and signals; return the command's arguments."""
    random = np.random.default_rng(0)
    member = random.random((records, models)) < 0.5
    np.save(folder / "membership.npy", member)
    arguments = ["--membership", str(folder / "membership.npy")]
    for name in names:
        signal = random.normal(size=(records, 1)) + 0.7 * random.normal(size=(records, models))
        signal += (0.4 if name == "confidence" else -0.3) * member
        np.save(folder / f"{name}.npy", signal if name == "confidence" else np.exp(signal))
        arguments += ["--signal", f"{name}={folder / name}.npy"]
    return arguments


def main(records: int, models: int, signals: int, *threads: int) -> None:
    """Print the time and memory of the audit."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = write(Path(folder), records, models, NAMES[:signals])
        arguments += [word for number in threads for word in ("--threads", str(number))]
        os.sync()  # or the system is still writing the matrices
        for way, more in WAYS.items():
            start = time.perf_counter()
            command = [sys.executable, "-m", "mia_audit.cli", "audit", *arguments, "--out", f"{folder}/out", *more]
            process = os.spawnv(os.P_NOWAIT, sys.executable, command)
            _, status, usage = os.wait4(process, 0)
            wall = time.perf_counter() - start
            if status:
                raise SystemExit(f"audit: exit status {status}")
            print(
                f"{records} records × {models} models × {signals} signals, {way}: "
                f"{usage.ru_utime + usage.ru_stime:.1f} CPU seconds ({usage.ru_stime:.1f} of the system), {wall:.1f} s, "
                f"{usage.ru_maxrss * 1024 / 1e9:.2f} GB",
                flush=True,
            )


if __name__ == "__main__":
    main(*([int(word) for word in sys.argv[1:]] or [20_000, 33, 16]))
