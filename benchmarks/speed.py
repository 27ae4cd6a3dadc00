"""Measure the claims of speed, each beside its other side, and write them as one table, benchmarks/speed.tsv.

    python benchmarks/speed.py        (a quarter of an hour of one quiet core)

Private steps and a million records are taken from dp_step.tsv and stage_memory.tsv, which `dp_step.py` and
`stage_memory.py` write in half an hour each. Seconds are CPU seconds on one thread.
"""

from pathlib import Path

import polars as pl
from threadpoolctl import threadpool_limits

from interval_price import audited, example, priced
from plan_scale import planned
from shared_features import compared

HERE = Path(__file__).parent
GOALS = {"vit": "≤ 1.15", "cnn": "≤ 1.3", "mlp": "≤ 1.6"}
"""The largest ratio of a private step to a plain one that was aimed at, by model of dp_step.py."""
NAMED = {"vit": "a ViT of 197 tokens", "cnn": "`cnn`", "mlp": "`mlp`"}


def rows() -> list[tuple[str, str, str, str, str, str]]:
    """Return work, the other side and what it takes, what it takes here, the goal, and the script."""
    steps = pl.read_csv(HERE / "dp_step.tsv", separator="\t")
    ratio = {(model, step): f"{value:.2f}" for model, step, value in steps.select("model", "step", "ratio").rows()}
    table = [
        (
            *(f"private step of {name} / plain step", "Opacus", ratio[model, "opacus ghost"], ratio[model, "dp-sgd"]),
            *(GOALS[model], "dp_step"),
        )
        for model, name in NAMED.items()
    ]
    for mechanism, whole, shared, _ in compared():
        work = f"33 heads of a ViT-S at 224 pixels, `{mechanism}`"
        table.append((work, "whole models", f"{whole:.0f} s", f"{shared:.1f} s", "a tenth", "shared_features"))
    member, values = example(20_000, 33)
    scores, intervals = priced("blend", values, member)
    work = "`blend` with intervals, 20,000 × 33"
    limit = "2.5 times the scores"
    table.append((work, "scores alone", f"{scores:.1f} s", f"{scores + intervals:.1f} s", limit, "interval_price"))
    alone, _ = audited(member, values, "--no-report")
    reported, _ = audited(member, values)
    work = "`mia-audit audit`, one signal, 20,000 × 33"
    table.append((f"{work}, without a report", "–", "–", f"{alone:.1f} s", "10 s", "interval_price"))
    table.append((work, "–", "–", f"{reported:.1f} s", "18 s", "interval_price"))
    million = pl.read_csv(HERE / "stage_memory.tsv", separator="\t").filter(pl.col("records") == 1_000_000)
    million = million.filter(pl.col("stage").is_in(["attack", "evaluate"]))
    work = "attack and evaluate a million records × 257, `blend` with intervals"
    table.append((work, "–", "–", f"{million['seconds'].sum():.0f} s", "900 s", "stage_memory"))
    table.append((f"{work}: memory", "–", "–", f"{million['gigabytes'].max():.1f} GB", "6 GB", "stage_memory"))
    jobs, _, seconds, _ = planned()
    table.append((f"plan 32,125 models in {jobs:,} jobs", "–", "–", f"{seconds:.0f} s", "30 s", "plan_scale"))
    return table


if __name__ == "__main__":
    with threadpool_limits(1):
        columns = ("work", "other", "there", "here", "goal", "script")
        measured = pl.DataFrame(rows(), schema=columns, orient="row")
    measured.write_csv(HERE / "speed.tsv", separator="\t")
    print(measured.write_csv(separator="\t"))
