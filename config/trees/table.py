"""Renew the rows of a seed in the source of the tables of docs/results/tables.md (then: make numbers).

python config/trees/table.py docs/results/trees.csv SEED results/trees results/trees_diffprivlib
"""

import sys
from functools import partial
from pathlib import Path

import polars as pl

METRICS = ("auc", "tpr_at_fpr_0.01")
PLACE = ["dataset", "architecture", "mechanism", "epsilon"]


def rows_of(results: Path) -> pl.DataFrame:
    """Return the attack on confidence, the strongest on one summary of SHAP values, and that on both, of every setting."""
    read = partial(pl.read_csv, infer_schema_length=None, schema_overrides={"epsilon": pl.String})
    summary = read(results / "tables" / "summary.csv", null_values="not resolvable")
    settings = read(results / "tables" / "settings.csv")
    if "null_control" in summary.columns:
        summary = summary.filter(~pl.col("null_control"))
    explained = summary.filter(
        pl.col("signal").str.contains("shap") & ~pl.col("signal").str.contains("+", literal=True)
    )
    strongest = explained.sort("auc_mean", descending=True).group_by(PLACE, maintain_order=True).first()
    output = summary.filter((pl.col("attack") == "loss-lira") & (pl.col("signal") == "confidence"))
    both = summary.filter(pl.col("signal").str.contains("+", literal=True))
    accuracies = settings.select(*PLACE, "train_accuracy_mean", "test_accuracy_mean")
    kept = ["attack", "signal", *(f"{metric}_{part}" for metric in METRICS for part in ("mean", "low", "high"))]
    order = pl.concat([output, strongest, both], how="diagonal_relaxed").with_row_index("order")
    places = accuracies.with_row_index("place")
    return (
        order.join(places, on=PLACE)
        .sort("place", "order")
        .select(*PLACE, "train_accuracy_mean", "test_accuracy_mean", *kept)
    )


def main(out: str, seed: str, *results: str) -> None:
    """Renew the rows of a seed from several audits."""
    found = [
        rows_of(Path(one)).select(pl.lit(Path(one).name).alias("audit"), pl.lit(int(seed)).alias("seed"), pl.all())
        for one in results
    ]
    others = pl.read_csv(out, schema_overrides={"epsilon": pl.String}).filter(pl.col("seed") != int(seed))
    pl.concat([others, *found], how="vertical_relaxed").sort("seed", maintain_order=True).write_csv(
        out, float_precision=5
    )


main(*sys.argv[1:])
