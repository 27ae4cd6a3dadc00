"""Figures 1 to 9 of Patel et al. 2020 in the paper's panels, from finished studies on substitutes for its data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.report.data.series import PALETTE
from mia_audit.report.figures.layout import panel_grid
from mia_audit.report.figures.private_models import draw_misclassified, draw_models
from mia_audit.report.figures.private_protocols import draw_iterations
from mia_audit.report.figures.private_studies import (
    PROTOCOLS,
    draw_densities,
    draw_histograms,
    draw_pictures,
    draw_protocols,
    draw_spending,
    of_protocol,
    stairs,
)
from mia_audit.report.text.formatting import with_interval
from mia_audit.reproduction.studies import STAND_INS, Studies, printed_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.data.private import Studied
    from mia_audit.report.data.results import Results

    Panel = tuple[str, str, Callable[[Axes, Studies, str], None]]

CAPTION = "The paper's panels, measured on substitutes for its data sets; bands: intervals over repetitions."


def figures(studies: Studies) -> Mapping[str, Callable[[], Figure | None]]:
    """Return the drawing functions of figures by number; they return None if no panel has results."""
    spent_and_lost = [
        ("ε spent", _of_first(draw_protocols, "queries answered", "ε spent")),
        ("losses", _of_first(stairs("excess_loss", PROTOCOLS, "log"), "approximation loss", "share of queries")),
    ]
    density = _of_first(draw_densities, "queries answered", "ε spent")
    return {
        "1": lambda: _explained(studies, "Face", draw_pictures),
        "2": lambda: _panels(studies, [("ACS13", title, draw) for title, draw in spent_and_lost]),
        "3": lambda: _panels(studies, [("Text", title, draw) for title, draw in spent_and_lost]),
        "4": lambda: _panels(studies, [("ACS13", "15 queries", _iterations)]),
        "5": lambda: _panels(studies, [(name, "steps", _steps) for name in ("Text", "ACS13")]),
        "6": lambda: _explained(studies, "Face models", draw_models),
        "7": lambda: _panels(
            studies, [("Face models", "Dist", _by_model("distance")), ("Face models", "loss", _by_model("excess_loss"))]
        ),
        "8": lambda: _panels(
            studies,
            [("Face models", one.training, _near(place)) for place, one in enumerate(studies.boxes("Face models"))]
            or [("Face models", "", _near(0))],
        ),
        "9": lambda: _panels(studies, [("ACS13", "density", density), ("ACS13", "overfitting", _overfitting)]),
    }


def _explained(studies: Studies, dataset: str, draw: Callable[[Results, str], Figure]) -> Figure | None:
    """Draw images and their explanations; None if there are none."""
    results, boxes = studies.results(dataset), studies.boxes(dataset)
    return draw(results, boxes[0].dataset) if results is not None and boxes[0].study["pictures"] else None


def _panels(studies: Studies, panels: Sequence[Panel]) -> Figure | None:
    """Draw panels; a panel without results names the command that computes them. None if no panel has results."""
    figure, cells = panel_grid(1, len(panels), height=2.2)
    drawn = False
    for axes, (dataset, title, draw) in zip(cells[0], panels, strict=True):
        if studies.boxes(dataset):
            draw(axes, studies, dataset)
            stand_in = STAND_INS[dataset].dataset
            axes.set_title(f"{dataset} (here {stand_in})\n{title}")
            drawn = True
        else:
            axes.set_axis_off()
            command = STAND_INS[dataset].config or STAND_INS[dataset].why.replace(", ", ",\n")
            axes.text(0.5, 0.5, f"{dataset}\n{command}", ha="center", va="center", fontsize=6)
    return figure if drawn else None


def _of_first(draw: Callable[[Axes, Studied], None], x: str, y: str) -> Callable[[Axes, Studies, str], None]:
    """Return a function that draws a data set's first black box, and labels the axes."""

    def panel(axes: Axes, studies: Studies, dataset: str) -> None:
        draw(axes, studies.boxes(dataset)[0])
        _labelled(axes, x, y)

    return panel


def _iterations(axes: Axes, studies: Studies, dataset: str) -> None:
    draw_iterations(axes, studies.boxes(dataset)[0])
    axes.set(xlabel="noisy step", ylabel="approximation loss")


def _steps(axes: Axes, studies: Studies, dataset: str) -> None:
    """Draw histograms of steps, with printed and measured means in the legend."""
    one = studies.boxes(dataset)[0]
    printed = {number.quantity: number.mean for number in printed_numbers("patel2020") if number.dataset == dataset}
    labels = {}
    for name in ("adaptive", "enhanced"):
        label, colour = PROTOCOLS[name]
        ours = with_interval(one.mean(of_protocol(name), "steps"))
        labels[name] = (f"{label}: mean {ours}, printed {printed[f'steps_{name}']:g}", colour)
    draw_histograms(axes, one, "steps", labels)
    _labelled(axes, "noisy steps of a query", "share of queries")


def _by_model(column: str) -> Callable[[Axes, Studies, str], None]:
    def draw(axes: Axes, studies: Studies, dataset: str) -> None:
        boxes = studies.boxes(dataset)
        rows = [one.from_scratch[column].to_numpy() for one in boxes]
        edges = np.histogram_bin_edges(np.concatenate(rows), 24)
        for one, values, colour in zip(boxes, rows, PALETTE, strict=False):
            axes.stairs(np.histogram(values, edges)[0] / len(values), edges, color=colour, label=one.training)
        _labelled(axes, "Dist" if column == "distance" else "approximation loss", "share of queries")

    return draw


def _near(place: int) -> Callable[[Axes, Studies, str], None]:
    def draw(axes: Axes, studies: Studies, dataset: str) -> None:
        draw_misclassified(axes, studies.boxes(dataset)[place])
        axes.set(xlabel="share misclassified nearby", ylabel="approximation loss")

    return draw


def _overfitting(axes: Axes, studies: Studies, dataset: str) -> None:
    boxes: list[Studied] = [*studies.boxes(dataset), *studies.boxes(f"{dataset} overfitted")]
    for one, colour in zip(boxes, PALETTE, strict=False):
        draw_spending(axes, one, of_protocol("adaptive"), colour, one.label)
    _labelled(axes, "queries answered", "ε spent")


def _labelled(axes: Axes, x: str, y: str) -> None:
    axes.set(xlabel=x, ylabel=y)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=5)
