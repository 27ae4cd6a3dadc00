"""Measure attacks on whole maps: their size on disk and processor seconds at the paper's scale, and what pooling costs.

    python benchmarks/vectors.py                       20,000 records, 33 models, vectors of 64 numbers (a minute)
    python benchmarks/vectors.py SIGNALS COLUMN        AUC of a stored column of vectors (signals.parquet), whole and pooled

Seconds are processor time of one thread, reading the table included. Pooled vectors have sums over
about four coordinates.
"""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from mia_audit.attacks.catalogue import attacks
from mia_audit.attacks.engine.vectors import hierarchical_vector_ratio
from mia_audit.attacks.io.parquet import SignalsFile
from mia_audit.evaluation.metrics import metrics_of_columns
from mia_audit.explain.vectors import pooling, projection
from mia_audit.signals.name import Reading, read_signal
from mia_audit.storage.tables import column_of, encoding_of, write_table

RECORDS, MODELS, NUMBERS = 20_000, 33, 64
SIGNALS = [read_signal(name) for name in ("ixg_vector", "ixg_l1")]
ATTACKS = (
    ("vector-lrt", "pooled"),
    ("vector-lrt", "hierarchical"),
    ("vector-lrt", "blend"),
    ("vector-classifier", "none"),
)


def at_scale(folder: Path) -> None:
    """Write a table of random vectors, and print the time of every attack that reads it."""
    random = np.random.default_rng(0)
    levels = random.standard_normal((RECORDS, NUMBERS), dtype=np.float32)

    def table(model: int) -> pa.Table:
        values = (levels + random.standard_normal((RECORDS, NUMBERS), dtype=np.float32)) / NUMBERS
        columns = {
            "shadow": np.full(RECORDS, model, dtype=np.int32),
            "record": np.arange(RECORDS, dtype=np.int32),
            "member": random.random(RECORDS) < 0.5,
            "ixg_l1": np.exp(random.standard_normal(RECORDS, dtype=np.float32)),
            "ixg_vector": values.astype(np.float16),
        }
        return pa.table({name: column_of(column) for name, column in columns.items()})

    path = folder / "signals.parquet"
    write_table(path, map(table, range(MODELS)), "signals", RECORDS * MODELS, **encoding_of(table(0).schema))
    print(f"{RECORDS:,} records x {MODELS} models x {NUMBERS} numbers: {path.stat().st_size / 1e6:.0f} MB on disk")
    for attack, likelihood in ATTACKS:
        start = time.process_time()
        file = SignalsFile(path)
        readings = [Reading(signal, file.read(signal)) for signal in SIGNALS]
        read = time.process_time() - start
        attacks[attack].score(readings, file.member, likelihood)
        print(
            f"{attack} {likelihood}: {time.process_time() - start:.1f} s, {read:.1f} s of them for reading", flush=True
        )


def pooled(path: Path, column: str) -> None:
    """Print the AUC of a column's hierarchical ratio: of all coordinates, of pooled ones, and with projections."""
    file = SignalsFile(path)
    (values,) = file.read(read_signal(column))
    values, size = values.astype(np.float32), values.shape[2]
    (cells,) = pooling((size,), size // 2)
    sums = np.concatenate([values @ cells, np.abs(values) @ cells], axis=2)
    shown = {f"all {size}": values, f"pooled to {sums.shape[2]}": sums}
    for count in (4, 8, 16):
        projected = values @ projection(size, count, 0)
        shown[f"pooled to {sums.shape[2]}, {count} projections"] = np.concatenate([sums, projected], axis=2)
    for name, vectors in shown.items():
        scores = hierarchical_vector_ratio(vectors, file.member)
        print(f"{name}: AUC {metrics_of_columns(scores.astype(np.float32), file.member, ())['auc'].mean():.3f}")


if __name__ == "__main__":
    with threadpool_limits(1):
        if len(sys.argv) > 1:
            pooled(Path(sys.argv[1]), sys.argv[2])
        else:
            with TemporaryDirectory() as folder:
                at_scale(Path(folder))
