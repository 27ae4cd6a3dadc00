"""The effect of fewer shadow models: AUC and TPR of every likelihood with a random subset of the models."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from mia_audit.attacks.engine.ratios import RATIOS, Ratio
from mia_audit.attacks.io.published import Published
from mia_audit.attacks.subsets import scored_with
from mia_audit.evaluation.authors_read_out import FPRS
from mia_audit.evaluation.metrics import metrics_of_columns
from mia_audit.report.data.series import PALETTE
from mia_audit.report.figures.layout import COLUMN
from mia_audit.signals.name import Reading, read_signal

if TYPE_CHECKING:
    from jaxtyping import Int
    from matplotlib.figure import Figure

    from mia_audit.signals.name import Cells, Member

COUNTS = (4, 8, 12, 16, 24, 32)


def measure(published: Published, seed: int = 0) -> pl.DataFrame:
    """Return means and standard deviations over targets, each attacked within a random group of models, and the share of scored records.

    Records without a score get the score 0, a likelihood ratio of 1, so that all likelihoods are compared on the same records.
    """
    models = published.member.shape[1]
    measured = []
    for name in published.signals:
        if name == "loss":
            continue  # the confidence is a rescaled loss, and is measured instead
        signal = Reading(read_signal(name), [published.signals[name]]).scaled
        for count in (count for count in COUNTS if count < models):
            for likelihood, ratio in RATIOS.items():
                scores = scored_with(partial(_ratio, ratio, signal), published.member, count, seed)
                scored = float(np.mean(~np.isnan(scores)))
                stored = np.nan_to_num(scores, nan=0.0).astype(np.float32)
                measured.append(
                    {
                        "signal": name if read_signal(name).scale == "real" else f"log {name}",
                        "likelihood": likelihood,
                        "models": count,
                        "scored": scored,
                    }
                    | _summary(stored, published.member)
                )
    return pl.DataFrame(measured)


def _ratio(ratio: Ratio, signal: Cells, models: Int[np.ndarray, " n"], member: Member) -> Cells:
    """Return the scores of some models as targets, with only one another as shadow models."""
    return ratio(np.asfortranarray(signal[:, models]), member)


def _summary(scores: np.ndarray, member: np.ndarray) -> dict[str, Any]:
    metrics = metrics_of_columns(scores, member, FPRS)
    return {
        f"{name}_{part}": float(value)
        for name in ("auc", *(f"tpr_at_fpr_{fpr:g}" for fpr in FPRS))
        for part, value in (("mean", metrics[name].mean()), ("sd", metrics[name].std(ddof=1)))
    }


def models_figure(measured: pl.DataFrame) -> Figure:
    """Draw AUC and TPR at 0.1 % FPR over the number of shadow models, a column per signal and a line per likelihood."""
    from matplotlib.figure import Figure

    signals = measured["signal"].unique(maintain_order=True).to_list()
    metrics = {"auc": "AUC", "tpr_at_fpr_0.001": "TPR at 0.1 % FPR"}
    figure = Figure(figsize=(COLUMN * len(signals), COLUMN * 1.3), layout="constrained")
    panels = figure.subplots(len(metrics), len(signals), sharex=True, sharey="row", squeeze=False)
    for column, signal in enumerate(signals):
        for row, (metric, label) in enumerate(metrics.items()):
            axes = panels[row][column]
            for likelihood, colour in zip(measured["likelihood"].unique(maintain_order=True), PALETTE, strict=False):
                line = measured.filter(pl.col("signal") == signal, pl.col("likelihood") == likelihood)
                axes.plot(line["models"], line[f"{metric}_mean"], "o-", markersize=3, color=colour, label=likelihood)
            axes.set(xscale="log", ylabel=label if column == 0 else "")
            axes.set_xticks(models := measured["models"].unique().to_list(), [str(count) for count in models])
            axes.minorticks_off()
            if row == 0:
                axes.set_title(signal)
            else:
                axes.set_xlabel("shadow models")
    panels[0][-1].legend(loc="lower right")
    return figure
