"""From metrics per target to the headline over targets: mean, standard deviation and Student-t interval."""

import numpy as np
import polars as pl

KEYS = ("attack", "signal", "likelihood", "null_control")
"""What tells the attacks on one setting apart."""

NULL_WIDENING = 3**0.5
"""Under permuted membership two targets' errors share their pair's term, whose sign follows both memberships: the likelihood
of the mean over targets is 2 to 3 times that of independent ones (simulated: 1.3 to 3.1, for 9 to 33 models)."""


def summarised(metrics: pl.DataFrame) -> list[str]:
    """List the metrics that a summary has: `auc`, `balanced_accuracy` and every `tpr_at_fpr_{x}`, not their bounds."""
    names = ["auc", "balanced_accuracy", *(name for name in metrics.columns if name.startswith("tpr_at_fpr_"))]
    return [name for name in names if not name.endswith(("_low", "_high"))]


def summarise(metrics: pl.DataFrame, confidence: float = 0.95) -> pl.DataFrame:
    """Summarise `metrics` (one row per attack × signal × likelihood × null_control × target) over targets.

    One row per attack × signal × likelihood × null_control, in the order of their first appearance, with `targets` (how
    many), the means of `members`, `non_members` and `unscored`, and for every metric m of `summarised` the columns
    m_mean, m_sd (n − 1) and the Student-t interval m_low, m_high of the mean, cut to [0, 1]; that of the null control is
    wider by `NULL_WIDENING`. A metric that some target
    cannot resolve is null; sd and interval of a single target are null.
    """
    from scipy.special import stdtrit

    names = summarised(metrics)
    table = metrics.group_by(*KEYS, maintain_order=True).agg(
        pl.len().cast(pl.Int32).alias("targets"),
        *(pl.col(name).mean() for name in ("members", "non_members", "unscored")),
        *(_if_complete(name, pl.col(name).mean()).alias(f"{name}_mean") for name in names),
        *(_if_complete(name, pl.col(name).std()).alias(f"{name}_sd") for name in names),
    )
    targets = table["targets"].to_numpy()
    width = pl.Series(stdtrit(np.maximum(targets - 1, 1), (1 + confidence) / 2) / np.sqrt(targets))
    table = table.with_columns(pl.when("null_control").then(NULL_WIDENING).otherwise(1.0).alias("width") * width)
    table = table.with_columns(
        *(
            (pl.col(f"{name}_mean") - pl.col(f"{name}_sd") * pl.col("width")).clip(0, 1).alias(f"{name}_low")
            for name in names
        ),
        *(
            (pl.col(f"{name}_mean") + pl.col(f"{name}_sd") * pl.col("width")).clip(0, 1).alias(f"{name}_high")
            for name in names
        ),
    )
    front = [*KEYS, "targets", "members", "non_members", "unscored"]
    return table.select(*front, *(f"{name}_{part}" for name in names for part in ("mean", "sd", "low", "high")))


def _if_complete(name: str, value: pl.Expr) -> pl.Expr:
    return pl.when(pl.col(name).null_count() == 0).then(value)
