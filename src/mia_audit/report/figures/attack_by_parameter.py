"""Attacks over a swept parameter or key of training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mia_audit.report.data.findings import Findings
from mia_audit.report.data.series import series, strongest
from mia_audit.report.figures.accuracy import swept_parameters, titled_lines
from mia_audit.report.figures.catalogue import figure
from mia_audit.report.figures.layout import GUESSING, errorbars, label_lines, name_places, panel_grid, shared_legend
from mia_audit.report.text.formatting import rate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results
    from mia_audit.report.data.spec import Spec


def _swept(spec: Spec) -> dict[str, str]:
    return {f"attack_by_{key}": key for key in swept_parameters(spec.settings)}


@figure(
    "attack_by_parameter",
    _swept,
    "AUC and TPR of the strongest attack on each kind of information over a swept parameter or key of training, with intervals. "
    "Dashed: guessing.",
)
def attack_by_parameter(results: Results, findings: Findings, key: str) -> Figure | str:
    """Draw AUC and TPR of every series over the values, a column of panels per data set, protection and other values."""
    columns = [(title, points) for title, points in titled_lines(findings.settings, key) if len(points) > 1]
    if not columns:
        return "No two values of this key were attacked under the same protection."
    metrics: list[tuple[str, str, float]] = [("auc", "AUC", 0.5)]
    if findings.fpr is not None:
        metrics.append(("tpr", f"TPR at {rate(findings.fpr)} FPR", findings.fpr))
    drawn = series([finding for _, points in columns for _, finding in points], findings.settings)
    figure, panels = panel_grid(len(metrics), len(columns), height=1.75)
    for column, (title, points) in enumerate(columns):
        chosen = [strongest(finding) for _, finding in points]
        for row, (metric, _, chance) in enumerate(metrics):
            axes = panels[row][column]
            for slot, one in enumerate(drawn):
                offset = (slot - (len(drawn) - 1) / 2) * 0.7 / len(drawn)
                known = [
                    (x + offset, getattr(attacks[one.name], f"{metric}_estimate"))
                    for x, attacks in enumerate(chosen)
                    if one.name in attacks
                ]
                errorbars(axes, known, one.colour, one.marker, one.name)
            axes.axhline(chance, **GUESSING)
            name_places(axes, [value for value, _ in points])
        panels[0][column].set_title(title)
        panels[-1][column].set_xlabel(key)
    for row, (_, label, _) in enumerate(metrics):
        label_lines(panels[row], label)
    shared_legend(figure, panels)
    return figure
