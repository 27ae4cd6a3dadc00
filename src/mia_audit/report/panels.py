"""Panels of a figure as wide as a paper's column or page, and what stands around them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.findings import Estimate

COLUMN, PAGE = 3.4, 7.0
"""Width of one column of a paper, and of its page, in inches."""
ACROSS = 3
"""Panels that a page is wide enough for."""
MANY = 4
"""More names than these do not fit below a panel in ordinary print."""
GUESSING: dict[str, Any] = {"color": "0.55", "linewidth": 0.8, "linestyle": (0, (3, 2)), "zorder": 1}


def panel_grid(rows: int, columns: int, height: float) -> tuple[Figure, Any]:
    """Return a figure and its panels, [rows, columns]; `height` is a panel's, in inches.

    More columns than a page is wide enough for stand below the first ones, all their rows together.
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
    """Write names below places 0, 1, …, in smaller print where they are many."""
    axes.set_xticks(range(len(names)), names, fontsize=7 if len(names) <= MANY else 5)
    axes.set_xlim(-0.5, len(names) - 0.5)


def label_lines(row: Iterable[Axes], text: str) -> None:
    """Write the label of a row of panels at every line that it takes on the page."""
    for axes in row:
        place = axes.get_subplotspec()
        if place is not None and place.is_first_col():
            axes.set_ylabel(text)


def shared_legend(figure: Figure, panels: Any) -> None:
    """Write one legend below all panels, in as many columns as the figure is wide enough for."""
    found: dict[str, Any] = {}
    for axes in panels.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    for columns in range(2 if figure.get_figwidth() < PAGE else 4, 0, -1):
        legend = figure.legend(
            found.values(), found.keys(), loc="outside lower center", ncols=columns, columnspacing=1.2
        )
        take_literally(figure)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()


def take_literally(figure: Figure) -> None:
    """Draw names as they are written, should they look like formulas; powers at the ticks of logarithmic axes are formulas."""
    from matplotlib.text import Text

    both = (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis))
    powers = {label for axis in both if axis.get_scale() != "linear" for label in axis.get_ticklabels(which="both")}
    for text in set(figure.findobj(Text)) - powers:
        text.set_parse_math(False)  # type: ignore[attr-defined]


def errorbars(
    axes: Axes,
    values: Sequence[tuple[float, Estimate]],
    colour: str,
    marker: str,
    label: str,
    upright: bool = True,
    **more: Any,
) -> None:
    """Draw means with their intervals at the positions given, which are along the other axis."""
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
