"""Two figures on published score matrices: ROC curves of attacks, and the effect of fewer shadow models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from mia_audit.evaluation.roc import log_grid, mean_log_roc
from mia_audit.report.data.series import PALETTE
from mia_audit.report.figures.layout import COLUMN, draw_roc, log_log
from mia_audit.reproduction.table import BEST, DEFAULT, THEIRS, Row

if TYPE_CHECKING:
    from jaxtyping import Bool
    from matplotlib.figure import Figure


def curves_figure(lines: Sequence[Row], member: Bool[np.ndarray, "N K"]) -> Figure:
    """Draw exact log-log ROC curves of the authors' score, of the default attack and of the best one, with printed values as points."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(line.attack for line in lines))
    figure = Figure(figsize=(COLUMN * len(names), COLUMN * 1.15), layout="constrained")
    grid = log_grid(int((~member).sum(axis=0).max()))
    for index, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), index + 1)
        for way, colour in zip((BEST, DEFAULT, THEIRS), PALETTE, strict=False):
            line = next((line for line in lines if line.attack == name and line.method == way), None)
            if line is None or line.scores is None:
                continue
            mean, sd = mean_log_roc(zip(line.scores.T, member.T, strict=True), grid)
            draw_roc(axes, grid, mean, color=colour, label=way)
            axes.fill_between(
                grid, np.maximum(mean - sd, grid[0] / 2), mean + sd, step="post", color=colour, alpha=0.15, linewidth=0
            )
        printed = next(line for line in lines if line.attack == name and line.method == "as printed")
        axes.plot([0.001, 0.01], printed.mean[:2], "x", color="black", label="as printed")
        log_log(axes, grid[0], label="guessing")
        axes.set(ylabel="true-positive rate", title=name)
        axes.legend(loc="lower right")
    return figure


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
