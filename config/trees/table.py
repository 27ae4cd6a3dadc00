"""Write the table of docs/results/trees.md: its numbers as CSV, and its rows as Markdown on standard output.

python config/trees/table.py docs/results/trees.csv results/trees results/trees_diffprivlib
"""

import sys
from functools import partial
from pathlib import Path

import polars as pl

NAMES = {
    "confidence": "confidence",
    "linf": "L∞ norm of SHAP",
    "l1": "L1 norm of SHAP",
    "l2": "L2 norm of SHAP",
    "variance": "variance of SHAP",
}
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


def printed(row: dict[str, object]) -> str:
    """Return a row of the table in Markdown."""
    signal = str(row["signal"])
    what = "both" if "+" in signal else NAMES[signal.rpartition("_")[2]]
    where = f"{row['dataset']}, {row['architecture']}" + (
        "" if row["mechanism"] == "none" else f", {row['mechanism']} at ε = {row['epsilon']}"
    )
    accuracy = f"{row['train_accuracy_mean']:.2f}, {row['test_accuracy_mean']:.2f}"
    auc, low, high = (row[f"auc_{part}"] for part in ("mean", "low", "high"))
    shares = [row[f"tpr_at_fpr_0.01_{part}"] for part in ("mean", "low", "high")]
    tpr, first, last = ("–" if share is None else f"{100 * float(str(share)):.1f}" for share in shares)
    return f"| {where} | {accuracy} | {what} | {auc:.3f} ({low:.3f} to {high:.3f}) | {tpr} % ({first} to {last}) |"


def main(out: str, *results: str) -> None:
    """Write the numbers of several audits and print their rows."""
    table = pl.concat([rows_of(Path(folder)) for folder in results])
    table.write_csv(out, float_precision=5)
    print("\n".join(printed(row) for row in table.iter_rows(named=True)))


main(*sys.argv[1:])
