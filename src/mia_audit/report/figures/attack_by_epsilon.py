"""Attacks over the settings of every data set and architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mia_audit.report.data.findings import Finding, Findings
from mia_audit.report.data.series import Series, series, strongest
from mia_audit.report.figures.catalogue import figure, once
from mia_audit.report.figures.layout import (
    GUESSING,
    errorbars,
    label_lines,
    name_places,
    panel_grid,
    shared_legend,
    tick,
)
from mia_audit.report.text.formatting import rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results


@figure(
    "attack_by_epsilon",
    once("attack_by_epsilon"),
    "AUC and TPR of the strongest attack on each kind of information, setting by setting, with intervals, and the null control. "
    "Dashed: guessing.",
)
def attack_by_epsilon(results: Results, findings: Findings, subject: None = None) -> Figure:
    """Draw AUC and TPR of every series over the settings, a column of panels per group."""
    groups = list(findings.groups().values())
    metrics: list[tuple[str, str, float]] = [("auc", "AUC", 0.5)]
    if findings.fpr is not None:
        metrics.append(("tpr", f"TPR at {rate(findings.fpr)} FPR", findings.fpr))
    figure, panels = panel_grid(len(metrics), len(groups), height=1.75)
    drawn = series(findings.settings)  # one legend for all panels
    for column, group in enumerate(groups):
        for row, (metric, _, chance) in enumerate(metrics):
            axes = panels[row][column]
            _over_settings(axes, group, drawn, metric)
            axes.axhline(chance, **GUESSING)
            name_places(axes, [tick(finding, group) for finding in group])
            if row == 0:
                axes.set_title(group[0].setting.place)
    for row, (_, label, _) in enumerate(metrics):
        label_lines(panels[row], label)
    shared_legend(figure, panels)
    return figure


def _over_settings(axes: Axes, group: list[Finding], drawn: list[Series], metric: str) -> None:
    chosen = [strongest(finding) for finding in group]
    slots = len(drawn) + 1
    for slot, one in enumerate(drawn):
        known = [
            (x, getattr(attacks[one.name], f"{metric}_estimate"))
            for x, attacks in enumerate(chosen)
            if one.name in attacks
        ]
        offset = (slot - (slots - 1) / 2) * 0.7 / slots
        errorbars(axes, [(x + offset, value) for x, value in known], one.colour, one.marker, one.name)
    if metric == "auc":
        controls = [(x, one.null.headline) for x, one in enumerate(group) if one.null and one.null.headline]
        offset = (slots - 1 - (slots - 1) / 2) * 0.7 / slots
        values = [(x + offset, next(iter(headline.values()))) for x, headline in controls]
        errorbars(axes, values, "0.45", "x", "null control")
