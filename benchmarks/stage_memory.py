"""Measure the peak memory of the stages that read a whole setting (merging signals, attacks, evaluation), on random signals.

    python benchmarks/stage_memory.py [RECORDS MODELS [SIGNALS]] [--attacks …] [--likelihoods …]

Every stage is the command that the workflow runs, in a separate process, by default for 60,000 records × 257 models and
4 signals (3 GB of disk in the temporary folder). Prints each stage's largest resident size, CPU seconds and bytes per
cell (record × model): no stage holds more than one signal, or one attack's scores. The evaluation
repeats the attacks from the signals, as in the workflow.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from mia_audit.storage import write_table

NAMES = ("ixg_l1", "ixg_variance", "ixg_l2", "ixg_linf", "ig_l1", "ig_variance", "ig_l2", "ig_linf")
ATTACKS = ("threshold", "loss-lira", "var-lrt", "l1-lrt", "l2-lrt", "linf-lrt")


def signals(member: np.ndarray, model: int, names: tuple[str, ...]) -> pa.Table:
    """Return a model's table."""
    records, random = len(member), np.random.default_rng(model)
    shift = 0.5 * member[:, model]
    return pa.table(
        {
            "shadow": pa.array(np.full(records, model, dtype=np.int32)),
            "record": pa.array(np.arange(records, dtype=np.int32)),
            "confidence": pa.array((random.normal(size=records) + shift).astype(np.float32)),
            **{name: pa.array(np.exp(random.normal(size=records) - shift).astype(np.float32)) for name in names},
        }
    )


def measured(stage: str, arguments: list[str], cells: int) -> tuple[float, float]:
    """Run one stage and print its memory and time; return its bytes and CPU seconds."""
    process = os.spawnlp(os.P_NOWAIT, sys.executable, sys.executable, "-m", "mia_audit.cli", stage, *arguments)
    _, status, usage = os.wait4(process, 0)
    if status:
        raise SystemExit(f"{stage}: exit status {status}")
    seconds = usage.ru_utime + usage.ru_stime
    size = usage.ru_maxrss * 1024
    print(
        f"{stage:10} {size / 1e9:5.2f} GB   {size / cells:6.0f} bytes a cell   {seconds:6.1f} CPU seconds", flush=True
    )
    return size, seconds


def main(records: int, models: int, count: int, attacks: dict[str, list[str]], table: Path | None) -> None:
    """Write the signals and run the three stages; add a row per stage to the table."""
    cells = records * models
    print(f"{records} records × {models} models, {count} signals")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        member = np.random.default_rng(0).random((records, models)) < 0.5
        columns = {"record": np.arange(records, dtype=np.int32), **{str(k): member[:, k] for k in range(models)}}
        membership, joined = folder / "membership.parquet", folder / "signals.parquet"
        write_table(membership, pa.table(columns), "membership", records, {"design": "bernoulli", "seed": 0})
        for shadow in range(models):
            path = folder / "gradient" / f"shadow-{shadow}.parquet"
            write_table(path, signals(member, shadow, NAMES[: count - 1]), "signals", records)

        def stage(name: str, spec: object, **files: Path) -> None:
            path = folder / f"{name}.json"
            path.write_text(json.dumps(spec))
            words = {"spec": path, **files}.items()
            size, seconds = measured(
                name, [word for option, file in words for word in (f"--{option}", str(file))], cells
            )
            if table is not None:
                with table.open("a", encoding="utf-8") as rows:
                    rows.write("" if rows.tell() else "stage\trecords\tmodels\tsignals\tgigabytes\tseconds\n")
                    rows.write(f"{name}\t{records}\t{models}\t{count}\t{size / 1e9:.2f}\t{seconds:.1f}\n")

        scores = folder / "scores.parquet"
        stage("merge", {"families": ["gradient"], "models": models}, signals=folder, membership=membership, out=joined)
        stage("attack", {"seed": 0, "dataset": "random", "attacks": attacks}, signals=joined, out=scores)
        evaluation = {"evaluation": {"fprs": [0.001, 0.01], "confidence": 0.95}}
        stage("evaluate", evaluation, scores=scores, signals=joined, out=folder / "metrics.parquet")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="?", type=int, default=60_000)
    parser.add_argument("models", nargs="?", type=int, default=257)
    parser.add_argument("signals", nargs="?", type=int, default=4)
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS))
    parser.add_argument("--likelihoods", nargs="+", default=["hierarchical"])
    parser.add_argument(
        "--table", type=Path, help="file to which a row per stage is added: records, models, signals, GB, s"
    )
    given = parser.parse_args()
    attacks = {"methods": given.attacks, "likelihoods": given.likelihoods}
    main(given.records, given.models, given.signals, attacks, given.table)
