"""Leakage of intrinsic explanations, which are part of the model, compared with post-hoc ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mia_audit.report.data.findings import Findings
from mia_audit.report.data.series import BASELINE, PALETTE
from mia_audit.report.figures.catalogue import figure, once_for
from mia_audit.report.figures.layout import GUESSING, PAGE, errorbars, shared_legend
from mia_audit.report.text.intrinsic import KINDS, Comparison, compared

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results

STYLES = {"outputs": (BASELINE, "s"), "intrinsic": (PALETTE[1], "o"), "post-hoc": (PALETTE[0], "D")}
"""Colour and marker by kind."""
ROW, BESIDE = 0.15, 1.9
"""Height of a row, and width of the names beside the panels, in inches."""


@figure(
    "intrinsic",
    once_for("intrinsic", lambda spec: spec.intrinsic),
    "AUC of the strongest attack on every explainer of the same records, with intervals. Dashed: guessing.",
)
def intrinsic(results: Results, findings: Findings, dataset: str) -> Figure | str:
    """Draw the AUC of the strongest attack on every explainer, a row per explainer and a panel per protection."""
    comparison = compared(findings).get(dataset)
    return intrinsic_figure(comparison) if comparison else "No explanation was attacked here."


def intrinsic_figure(comparison: Comparison) -> Figure:
    """Draw one comparison."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    architectures = list(dict.fromkeys(source.architecture for source in comparison.sources))
    rows = {
        id(source): number + architectures.index(source.architecture)  # a gap between architectures
        for number, source in enumerate(comparison.sources)
    }
    count = len(comparison.protections)
    size = (max(PAGE, BESIDE + 1.1 * count), ROW * (len(rows) + len(architectures)) + 1.0)
    # names are wider in print than in the layout
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.1))
    panels = figure.subplots(1, count, squeeze=False, sharex=True, sharey=True)[0]
    for axes, name in zip(panels, comparison.protections, strict=True):
        for kind, (colour, marker) in STYLES.items():
            known = [source for source in comparison.sources if source.kind == kind and name in source.leaks]
            placed = [(rows[id(source)], source.leaks[name].auc_estimate) for source in known]
            errorbars(axes, placed, colour, marker, KINDS[kind], upright=False)
        axes.axvline(0.5, **GUESSING)
        axes.set_title(name)
        axes.set_xlabel("AUC")
        axes.grid(axis="y", color="0.92", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0)
    names = [f"{source.architecture}: {source.label}" for source in comparison.sources]
    panels[0].set_yticks(list(rows.values()), names, fontsize=6)
    panels[0].invert_yaxis()
    shared_legend(figure, panels)
    return figure
