"""Parts of figures: panels as wide as a paper's column or page, error bars, legends and names of settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.report.text.formatting import broken, protection, rate
from mia_audit.sanitise import visible_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    from mia_audit.report.data.findings import Estimate, Finding, Findings

COLUMN, PAGE = 3.4, 7.0
"""Widths of a paper's column and page in inches."""
ACROSS = 3
"""Number of panels side by side on a page."""
LETTERS = 14
"""Letters in a line of a setting's label below a panel."""
MANY = 4
"""Number of names that fit below a panel at the usual font size."""
GUESSING: dict[str, Any] = {"color": "0.55", "linewidth": 0.8, "linestyle": (0, (3, 2)), "zorder": 1}


def panel_grid(rows: int, columns: int, height: float) -> tuple[Figure, Any]:
    """Return a figure and its panels [rows, columns], each `height` inches high.

    Columns that do not fit on the page are placed below the first ones, all their rows together.
    """
    from matplotlib.figure import Figure

    across = min(columns, ACROSS)
    bands = math.ceil(columns / across)
    figure = Figure(figsize=(COLUMN if columns == 1 else PAGE, height * rows * bands), layout="constrained")
    cells = figure.subplots(rows * bands, across, squeeze=False)
    panels = cells.reshape(bands, rows, across).swapaxes(0, 1).reshape(rows, bands * across)
    for spare in panels[:, columns:].flat:
        spare.remove()
    for *upper, lowest in panels[:, :columns].T:
        for axes in upper:
            axes.sharex(lowest)
            axes.tick_params(labelbottom=False)
    return figure, panels[:, :columns]


def name_places(axes: Axes, names: Sequence[str]) -> None:
    """Label the positions 0, 1, … of the x axis, in a smaller font if there are many."""
    lines = [[part for line in name.split("\n") for part in broken(line, LETTERS)] for name in names]
    texts = ["\n".join(parts).replace("\u00a0", " ") for parts in lines]
    axes.set_xticks(range(len(names)), texts, fontsize=7 if len(names) <= MANY else 5)
    axes.set_xlim(-0.5, len(names) - 0.5)


def label_lines(row: Iterable[Axes], text: str) -> None:
    """Label the y axis of the first panel of a row of panels, and of every line on which a wrapped row continues."""
    for axes in row:
        place = axes.get_subplotspec()
        if place is not None and place.is_first_col():
            axes.set_ylabel(text)


def shared_legend(figure: Figure, panels: Any) -> None:
    """Draw one legend below all panels, in as many columns as fit."""
    handles: dict[str, Any] = {}
    for axes in panels.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    for columns in range(2 if figure.get_figwidth() < PAGE else 4, 0, -1):
        legend = figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=columns, columnspacing=1.2
        )
        literal_text(legend.get_texts())
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()


def literal_text(texts: Iterable[Text]) -> None:
    """Draw names with dollar signs as text, not as formulas, and without hidden characters."""
    for text in texts:
        text.set_parse_math(False)
        text.set_text(visible_lines(text.get_text()))


def draw_roc(axes: Axes, fpr: np.ndarray, tpr: np.ndarray, **style: Any) -> None:
    """Draw a ROC curve as steps; rates of 0, which a logarithmic axis cannot show, are left out."""
    axes.plot(fpr, np.where(tpr > 0, tpr, np.nan), drawstyle="steps-post", **style)


def log_log(axes: Axes, lowest: float, **style: Any) -> None:
    """Make both axes logarithmic, from the lowest FPR to 1, with a dashed diagonal at guessing."""
    axes.plot([lowest, 1], [lowest, 1], **GUESSING, **style)
    axes.set(xscale="log", yscale="log", xlim=(lowest, 1), ylim=(lowest, 1.05), xlabel="false-positive rate")


def metrics_shown(findings: Findings) -> list[tuple[str, str, float]]:
    """Return AUC and, where it is resolved, TPR: their names in findings, their labels, and their values at guessing."""
    metrics = [("auc", "AUC", 0.5)]
    return metrics + ([("tpr", f"TPR at {rate(findings.fpr)} FPR", findings.fpr)] if findings.fpr is not None else [])


def errorbars(
    axes: Axes,
    values: Sequence[tuple[float, Estimate]],
    colour: str,
    marker: str,
    label: str,
    upright: bool = True,
    **more: Any,
) -> None:
    """Draw means with their intervals at positions along the other axis."""
    if not values:
        return
    positions, estimates = zip(*values, strict=True)
    mean = [value.mean for value in estimates]
    errors = [[value.below for value in estimates], [value.above for value in estimates]]
    places: dict[str, Any] = (
        {"x": positions, "y": mean, "yerr": errors} if upright else {"x": mean, "y": positions, "xerr": errors}
    )
    style: dict[str, Any] = {
        "elinewidth": 0.9,
        "capsize": 1.8,
        "capthick": 0.9,
        "markersize": 3.4,
        "markeredgewidth": 0.9,
    }
    axes.errorbar(**places, fmt=marker, color=colour, label=label, **style, **more)


def tick(finding: Finding, group: Sequence[Finding]) -> str:
    """Return the shortest name of a setting that is unique in its group."""
    private = {other.setting.mechanism for other in group if other.setting.private}
    setting = finding.setting
    if setting.label:
        return setting.label
    if setting.no_guarantee:
        return f"{setting.mechanism_name}\nε none"
    if not setting.private and not setting.trained and not setting.explained:
        return protection(setting)
    if not setting.private:
        return "no DP"
    return f"ε = {setting.epsilon}" if len(private) == 1 else f"{setting.mechanism_name}\nε = {setting.epsilon}"
