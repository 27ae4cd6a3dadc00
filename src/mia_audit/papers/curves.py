"""A paper's ROC curves in its own panels: exact curves of the paper's score on the audits' models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.catalogue import AUTHORS
from mia_audit.evaluation.roc import log_grid, mean_log_roc
from mia_audit.papers.measured import SUMMARIES, Measured
from mia_audit.report.data.series import PALETTE
from mia_audit.report.figures.layout import draw_roc, log_log, panel_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.papers.printed import Panel, Paper, Printed

FPRS = {"tpr_at_fpr_0.001": 0.001, "tpr_at_fpr_0.01": 0.01}

CAPTION = (
    "ROC curves on logarithmic axes, mean over targets as steps, never interpolated: the paper's score on the audit's models. "
    "Crosses: the TPRs that the paper prints. Dashed: guessing."
)


def roc_panels(paper: Paper, panels: Sequence[Panel], measured: Measured, printed: Sequence[Printed]) -> Figure | None:
    """Draw a figure's panels; a panel without results names the config that trains it. None if no panel has results."""
    figure, cells = panel_grid(1, len(panels), height=2.2)
    drawn = [_draw(axes, panel, measured, printed) for axes, panel in zip(cells[0], panels, strict=True)]
    for axes, panel, known in zip(cells[0], panels, drawn, strict=True):
        if not known:
            (dataset, *_) = next(iter(panel.curves.values()))
            axes.set_axis_off()
            config = panel.config or paper.configs[dataset]
            axes.text(0.5, 0.5, f"no results\n{config}", ha="center", va="center", fontsize=6)
    return figure if any(drawn) else None


def _draw(axes: Axes, panel: Panel, measured: Measured, printed: Sequence[Printed]) -> bool:
    axes.set_title(panel.title)
    lowest = 1e-3
    for (label, scores, member, place), colour in zip(_scores(panel, measured), PALETTE, strict=False):
        grid = log_grid(int((~member).sum(axis=0).max()))
        mean, _ = mean_log_roc(zip(scores.T, member.T, strict=True), grid)
        lowest = min(lowest, grid[0])
        draw_roc(axes, grid, mean, color=colour, label=label)
        for cell in printed if not panel.others else ():
            key = cell.key
            where = (key.dataset, key.architecture, key.mechanism, key.epsilon, key.explainer)
            own = (*where, key.attack) == (*place, panel.attack)
            if own and key.metric in FPRS and cell.mean is not None:
                axes.plot(FPRS[key.metric], cell.mean, "x", color=colour, markersize=4)
    if not axes.lines:
        return False
    log_log(axes, lowest)
    axes.set_ylabel("true-positive rate")
    axes.legend(loc="lower right", fontsize=5)
    return True


def _scores(panel: Panel, measured: Measured) -> Iterator[tuple[str, np.ndarray, np.ndarray, tuple[str, ...]]]:
    """Yield the curves of a panel that have results: label, scores and members [N, K], and their key."""
    attack = "threshold" if panel.attack == "threshold" else AUTHORS
    for label, place in panel.curves.items():
        dataset, architecture, mechanism, epsilon, explainer = place
        where, signal = (dataset, architecture, mechanism, float(epsilon)), f"{explainer}_{SUMMARIES[panel.attack]}"
        for others, scores, member in measured.with_fewer(where, signal, panel.others):
            yield f"{others} shadow models", scores, member, place
        scored = None if panel.others else measured.scored(where, signal, attack, panel.models)
        if scored is not None:
            yield label, *scored, place
