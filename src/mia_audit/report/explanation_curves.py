"""Deletion and insertion curves: estimates over shadow models, and the figure of an architecture's settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mia_audit.report.findings import Estimate, Finding, estimate
from mia_audit.report.interpretability import Explained
from mia_audit.report.panels import label_lines, panel_grid, shared_legend
from mia_audit.report.series import DASHES, PALETTE
from mia_audit.report.words import capital, protection

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mia_audit.report.results import Results


@dataclass(frozen=True)
class ProbabilityCurve:
    """One measure's mean curve over the shadow models of a setting: the class's probability at shares of the coordinates."""

    found: Finding
    one: Explained
    measure: str
    shares: list[float]
    heights: list[Estimate]


def curves_of(results: Results, group: Sequence[Finding], confidence: float) -> Iterator[ProbabilityCurve]:
    """Yield every curve of a group's settings."""
    table = results.explanation_curves(group[0].setting.group)
    for found in group:
        rows = table.filter(mechanism=found.setting.mechanism, epsilon=found.setting.epsilon)
        for key, curve in rows.group_by("explainer", "quantity", "measure", maintain_order=True):
            explainer, quantity, measure = map(str, key)
            by_share = curve.group_by("share", maintain_order=True).agg("value").sort("share")
            heights = [estimate(values, confidence).as_rate() for values in by_share["value"].to_list()]
            yield ProbabilityCurve(found, Explained(explainer, quantity), measure, by_share["share"].to_list(), heights)


def curves_figure(results: Results, group: Sequence[Finding]) -> Figure:
    """Draw a panel an explainer and measure, a line a setting; bands are intervals over shadow models."""
    known = list(curves_of(results, group, results.spec.confidence))
    explained = list({curve.one.explainer: curve.one for curve in reversed(known)}.values())[::-1]
    measures = list(dict.fromkeys(curve.measure for curve in known))
    figure, panels = panel_grid(len(measures), len(explained), height=1.6)
    for row, measure in enumerate(measures):
        for column, one in enumerate(explained):
            axes = panels[row][column]
            for curve in known:
                if (curve.measure, curve.one) == (measure, one):
                    order = group.index(curve.found)
                    colour, dash = PALETTE[order % len(PALETTE)], DASHES[order % len(DASHES)]
                    name = capital(protection(curve.found.setting))
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
