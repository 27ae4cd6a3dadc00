"""Measure whether memory grows with the number of records: pools of 2,000 and 20,000 synthetic images are built and scored.

    python benchmarks/pool_memory.py                    minutes, and 6 GB of disk in the folder for temporary files
    python benchmarks/pool_memory.py --records 200 2000 --size 64

Images have 224 × 224 pixels. Every pool has a separate process, which writes the pool from images that are generated on
access, and then computes the gradient family's signals of a small model. Prints the peak of the process's private
memory (which the system cannot reclaim) and of all its resident pages, including those of the mapped file, both above
what the process held before.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np


class MadeUp:
    """Images that are generated when they are accessed."""

    def __init__(self, count: int, size: int) -> None:
        self.shape = (count, 3, size, size)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, row: int) -> np.ndarray:
        return np.random.default_rng(row).integers(0, 256, self.shape[1:], dtype=np.uint8)


class Peak(threading.Thread):
    """A thread that watches this process's memory, in MB: private pages, and all resident pages."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.own = self.all = 0.0
        self._over = threading.Event()

    @staticmethod
    def now() -> tuple[float, float]:
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return tuple(int(status[key].split()[0]) / 1024 for key in ("RssAnon", "VmRSS"))  # type: ignore[return-value]

    def run(self) -> None:
        while not self._over.wait(0.01):
            own, everything = self.now()
            self.own, self.all = max(self.own, own), max(self.all, everything)

    def stop(self) -> None:
        self._over.set()
        self.join()


def side(records: int, size: int, batch: int) -> None:
    """Build and score one pool, and print the peaks."""
    from mia_audit.learners.torch_module import TorchModel
    from mia_audit.models.architecture import build
    from mia_audit.models.inputs import Inputs
    from mia_audit.pools.build import build_pool
    from mia_audit.pools.section import Dataset, Source
    from mia_audit.pools.store import read_records, write_pool
    from mia_audit.signals.compute import SignalsTask, model_signals
    from mia_audit.training.task import Records

    model = build(
        "vision_transformer", {"patch_size": 16, "embed_dim": 48, "depth": 1, "num_heads": 2}, (3, size, size), 10, 0
    )
    model.eval().requires_grad_(False)
    options = {"explainers": ["ixg", "saliency"], "explain": ["logit"], "explained_class": "predicted"}
    task = SignalsTask("gradient", options, seed=0)
    asked = TorchModel(model, batch, lambda part: Inputs(part.values, part.metadata, (3, size, size)))
    warm = np.stack([MadeUp(batch, size)[row] for row in range(batch)])
    kind = {"kind": "image"}
    model_signals(asked, Records(warm, np.zeros(batch, dtype=np.int32), kind, np.arange(batch)), task)
    before, start, watch = Peak.now(), time.perf_counter(), Peak()
    watch.start()
    source = Source("image", MadeUp(records, size), np.arange(records) % 10, [str(n) for n in range(10)], [])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pool(build_pool(source, Dataset(source="images"), "made-up", 0, folder), folder)
        built = time.perf_counter() - start
        pool = read_records(folder)
        model_signals(asked, Records.from_stored(pool), task)
    watch.stop()
    stored = records * 3 * size * size / 2**20
    print(
        f"{records:7,} records of {size} × {size}: {stored:8,.0f} MB stored; above the start {watch.own - before[0]:6,.0f} MB of its own,"
        f" {watch.all - before[1]:6,.0f} MB resident; {built:.0f} s to build, {time.perf_counter() - start - built:.0f} s to score"
    )


def main() -> None:
    """Measure both pools, each in a separate process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, nargs="+", default=[2_000, 20_000])
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    if len(options.records) == 1:
        side(options.records[0], options.size, options.batch)
        return
    for records in options.records:
        arguments = ["--records", str(records), "--size", str(options.size), "--batch", str(options.batch)]
        subprocess.run([sys.executable, __file__, *arguments], check=True)


if __name__ == "__main__":
    main()
