"""Parts of figures: panels as wide as a paper's column or page, error bars, legends and names of settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mia_audit.report.text.formatting import broken, protection
from mia_audit.sanitise import visible_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.data.findings import Estimate, Finding

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
        literal_text(figure)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()


def literal_text(figure: Figure) -> None:
    """Draw names with dollar signs as text, not as formulas, except tick labels of logarithmic axes, which are powers."""
    from matplotlib.text import Text

    both = (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis))
    powers = {label for axis in both if axis.get_scale() != "linear" for label in axis.get_ticklabels(which="both")}
    for text in set(figure.findobj(Text)) - powers:
        text.set_parse_math(False)  # type: ignore[attr-defined]
        text.set_text(visible_lines(text.get_text()))


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
