"""Figures 1 to 9 of Patel et al. 2020 in the paper's panels, from finished studies on substitutes for its data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.report.data.series import PALETTE
from mia_audit.report.figures.layout import panel_grid
from mia_audit.report.figures.private_models import draw_misclassified, draw_models
from mia_audit.report.figures.private_protocols import draw_iterations
from mia_audit.report.figures.private_studies import (
    DENSITIES,
    PROTOCOLS,
    draw_histograms,
    draw_pictures,
    draw_spending,
    of_experiment,
    of_protocol,
)
from mia_audit.report.text.formatting import with_interval
from mia_audit.reproduction.studies import STAND_INS, Studies, printed_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.data.private import Studied

    Panel = tuple[str, str, Callable[[Axes, Studies, str], None]]

CAPTION = "The paper's panels, measured on substitutes for its data sets; bands: intervals over repetitions."


def figures(studies: Studies) -> Mapping[str, Callable[[], Figure | None]]:
    """Return the drawing functions of figures by number; they return None if no panel has results."""
    adapting = [name for name in PROTOCOLS if name != "non-interactive"]
    spent_and_lost: list[tuple[str, Any]] = [
        ("ε spent", _spending(adapting)),
        ("losses", _histogram("excess_loss", list(PROTOCOLS))),
    ]
    return {
        "1": lambda: _pictures(studies, "Face"),
        "2": lambda: _panels(studies, [("ACS13", title, draw) for title, draw in spent_and_lost]),
        "3": lambda: _panels(studies, [("Text", title, draw) for title, draw in spent_and_lost]),
        "4": lambda: _panels(studies, [("ACS13", "15 queries", _iterations)]),
        "5": lambda: _panels(studies, [(name, "steps", _steps) for name in ("Text", "ACS13")]),
        "6": lambda: _models(studies, "Face models"),
        "7": lambda: _panels(
            studies, [("Face models", "Dist", _by_model("distance")), ("Face models", "loss", _by_model("excess_loss"))]
        ),
        "8": lambda: _panels(
            studies,
            [("Face models", one.training, _near(place)) for place, one in enumerate(studies.boxes("Face models"))]
            or [("Face models", "", _near(0))],
        ),
        "9": lambda: _panels(studies, [("ACS13", "density", _densities), ("ACS13", "overfitting", _overfitting)]),
    }


def _pictures(studies: Studies, dataset: str) -> Figure | None:
    results, boxes = studies.results(dataset), studies.boxes(dataset)
    return draw_pictures(results, boxes[0].dataset) if results is not None and boxes[0].study["pictures"] else None


def _models(studies: Studies, dataset: str) -> Figure | None:
    results, boxes = studies.results(dataset), studies.boxes(dataset)
    return draw_models(results, boxes[0].dataset) if results is not None and boxes[0].study["pictures"] else None


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


def _spending(protocols: Sequence[str]) -> Callable[[Axes, Studies, str], None]:
    def draw(axes: Axes, studies: Studies, dataset: str) -> None:
        for name in protocols:
            label, colour = PROTOCOLS[name]
            draw_spending(axes, studies.boxes(dataset)[0], of_protocol(name), colour, label)
        _labelled(axes, "queries answered", "ε spent")

    return draw


def _histogram(column: str, protocols: Sequence[str]) -> Callable[[Axes, Studies, str], None]:
    def draw(axes: Axes, studies: Studies, dataset: str) -> None:
        draw_histograms(axes, studies.boxes(dataset)[0], column, {name: PROTOCOLS[name] for name in protocols})
        axes.set_xscale("log")
        _labelled(axes, "approximation loss", "share of queries")

    return draw


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
        rows = [one.answers.filter(experiment="protocols", protocol="non-adaptive")[column].to_numpy() for one in boxes]
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


def _densities(axes: Axes, studies: Studies, dataset: str) -> None:
    for name, colour in DENSITIES.items():
        draw_spending(axes, studies.boxes(dataset)[0], of_experiment(name), colour, f"{name} queries")
    _labelled(axes, "queries answered", "ε spent")


def _overfitting(axes: Axes, studies: Studies, dataset: str) -> None:
    boxes: list[Studied] = [*studies.boxes(dataset), *studies.boxes(f"{dataset} overfitted")]
    for one, colour in zip(boxes, PALETTE, strict=False):
        draw_spending(axes, one, of_protocol("adaptive"), colour, one.label)
    _labelled(axes, "queries answered", "ε spent")


def _labelled(axes: Axes, x: str, y: str) -> None:
    axes.set(xlabel=x, ylabel=y)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=5)
