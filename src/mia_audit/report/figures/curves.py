"""Deletion and insertion curves of an architecture's explainers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mia_audit.report.data.explanation_metrics import curves_of
from mia_audit.report.data.findings import Findings
from mia_audit.report.data.series import DASHES, PALETTE
from mia_audit.report.figures.catalogue import figure, once_for
from mia_audit.report.figures.layout import label_lines, panel_grid, shared_legend
from mia_audit.report.text.formatting import capital, protection

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results


@figure(
    "curves",
    once_for("curves", lambda spec: spec.measured_groups if spec.curves else []),
    "Probability of the class when the most important pixels or columns are removed (deletion) or inserted (insertion) first. "
    "Bands: intervals over models.",
)
def curves(results: Results, findings: Findings, place: tuple[str, str]) -> Figure | str:
    """Draw a panel per explainer and measure, a line per setting, with intervals over shadow models as bands."""
    group = findings.groups().get(place, [])
    known = list(curves_of(results, group, results.spec.confidence)) if group else []
    if not known:
        return "No setting whose explanations would be shown here was trained to the end."
    explained = list({curve.explained.explainer: curve.explained for curve in reversed(known)}.values())[::-1]
    measures = list(dict.fromkeys(curve.measure for curve in known))
    figure, panels = panel_grid(len(measures), len(explained), height=1.6)
    for row, measure in enumerate(measures):
        for column, one in enumerate(explained):
            axes = panels[row][column]
            for curve in known:
                if (curve.measure, curve.explained) == (measure, one):
                    order = group.index(curve.finding)
                    colour, dash = PALETTE[order % len(PALETTE)], DASHES[order % len(DASHES)]
                    name = capital(protection(curve.finding.setting))
                    means = [height.mean for height in curve.heights]
                    axes.plot(curve.shares, means, color=colour, dashes=dash or (None, None), label=name)
                    low, high = ([getattr(height, end) for height in curve.heights] for end in ("low", "high"))
                    axes.fill_between(curve.shares, low, high, color=colour, alpha=0.2, linewidth=0)
            axes.set(xlim=(0, 1), ylim=(0, 1))
            if row == 0:
                axes.set_title(one.label)
            if row == len(measures) - 1:
                axes.set_xlabel("share of pixels or columns")
        label_lines(panels[row], f"{measure}\nprobability")
    shared_legend(figure, panels)
    return figure
