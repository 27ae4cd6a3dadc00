"""Attacks over the settings of every data set and architecture, and over a swept parameter or key of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mia_audit.report.data.findings import Finding, Findings
from mia_audit.report.data.series import series, strongest
from mia_audit.report.figures.accuracy import swept_parameters, titled_lines
from mia_audit.report.figures.catalogue import figure, once, once_for
from mia_audit.report.figures.layout import (
    GUESSING,
    errorbars,
    label_lines,
    metrics_shown,
    name_places,
    panel_grid,
    shared_legend,
    tick,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results

    Column = tuple[str, Sequence[Finding], Sequence[str]]
    """A column of panels: its title, its settings, and their names below the x axis."""


@figure(
    "attack_by_epsilon",
    once("attack_by_epsilon"),
    "AUC and TPR of the strongest attack on each kind of information, setting by setting, with intervals, and the null control. "
    "Dashed: guessing.",
)
def attack_by_epsilon(results: Results, findings: Findings, subject: tuple[str, str] | None = None) -> Figure:
    """Draw AUC and TPR of every series over the settings of all groups, or of one, a column of panels per group."""
    groups = findings.groups(subject).values()
    columns = [(group[0].setting.place, group, [tick(finding, group) for finding in group]) for group in groups]
    return _figure(findings, columns, null_control=True)


@figure(
    "attack_by_parameter",
    once_for("attack_by", lambda spec: swept_parameters(spec.settings)),
    "AUC and TPR of the strongest attack on each kind of information over a swept parameter or key of training, with intervals. "
    "Dashed: guessing.",
)
def attack_by_parameter(results: Results, findings: Findings, key: str) -> Figure | str:
    """Draw AUC and TPR of every series over the values, a column of panels per data set, protection and other values."""
    columns = [
        (title, [finding for _, finding in points], [value for value, _ in points])
        for title, points in titled_lines(findings.settings, key)
        if len(points) > 1
    ]
    if not columns:
        return "No two values of this key were attacked under the same protection."
    return _figure(findings, columns, xlabel=key)


def _figure(findings: Findings, columns: Sequence[Column], null_control: bool = False, xlabel: str = "") -> Figure:
    metrics = metrics_shown(findings)
    figure, panels = panel_grid(len(metrics), len(columns), height=1.75)
    drawn = series([finding for _, group, _ in columns for finding in group], findings.settings)
    slots = len(drawn) + null_control
    offsets = [(slot - (slots - 1) / 2) * 0.7 / slots for slot in range(slots)]
    for column, (title, group, names) in enumerate(columns):
        chosen = [strongest(finding) for finding in group]
        for axes, (metric, _, chance) in zip(panels[:, column], metrics, strict=True):
            for one, offset in zip(drawn, offsets, strict=False):
                known = [
                    (x + offset, getattr(attacks[one.name], f"{metric}_estimate"))
                    for x, attacks in enumerate(chosen)
                    if one.name in attacks
                ]
                errorbars(axes, known, one.colour, one.marker, one.name)
            if null_control and metric == "auc":
                controls = [(x, one.null.headline) for x, one in enumerate(group) if one.null and one.null.headline]
                values = [(x + offsets[-1], next(iter(headline.values()))) for x, headline in controls]
                errorbars(axes, values, "0.45", "x", "null control")
            axes.axhline(chance, **GUESSING)
            name_places(axes, names)
        panels[0][column].set_title(title)
        panels[-1][column].set_xlabel(xlabel)
    for row, (_, label, _) in zip(panels, metrics, strict=True):
        label_lines(row, label)
    shared_legend(figure, panels)
    return figure
