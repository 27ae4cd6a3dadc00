"""ROC curves of several settings in one panel: over ε, over a swept key, and over architectures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mia_audit.report.data.findings import Finding, Findings
from mia_audit.report.data.series import DASHES, PALETTE, THRESHOLD, Series, roc_curves, series
from mia_audit.report.figures.accuracy import curves_over_epsilon, swept_parameters, titled_lines
from mia_audit.report.figures.catalogue import figure, once_for
from mia_audit.report.figures.layout import draw_roc, label_lines, log_log, panel_grid
from mia_audit.report.text.formatting import fixed, protection

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results
    from mia_audit.report.data.spec import Spec

    Curves = Sequence[tuple[str, Finding]]
    """Curves of settings that differ in one key, by their name in the legend."""

NOTHING = "No two of these settings were attacked."


def _with_architectures(spec: Spec) -> list[str]:
    """List the data sets on which several architectures were trained; sweeps are left out."""
    several: dict[str, set[str]] = {}
    for setting in spec.trained:
        if not setting.swept:
            several.setdefault(setting.dataset, set()).add(setting.architecture)
    return [name for name, known in several.items() if len(known) > 1]


@figure(
    "roc_by_epsilon",
    once_for("roc_by_epsilon", lambda spec: curves_over_epsilon(spec.settings)),
    "ROC curves of the strongest attack on each kind of information, one per ε, on logarithmic axes: mean over targets as steps, "
    "never interpolated. Dashed: guessing.",
)
def roc_by_epsilon(results: Results, findings: Findings, group: tuple[str, str]) -> Figure | str:
    """Draw a panel per kind of information, and in it a curve per setting of a data set and architecture."""
    known = [(protection(one.setting), one) for one in findings.settings if one.setting.group == group]
    return _figure(results, findings, [("", known)])


@figure(
    "roc_by_parameter",
    once_for("roc_by", lambda spec: swept_parameters(spec.settings)),
    "ROC curves of the strongest attack on each kind of information, one per value of a swept parameter or key of training, on "
    "logarithmic axes: mean over targets as steps, never interpolated. Dashed: guessing.",
)
def roc_by_parameter(results: Results, findings: Findings, key: str) -> Figure | str:
    """Draw panels per data set, protection and kind of information, and in each a curve per value."""
    lines = [
        (title, [(f"{key} {value}", finding) for value, finding in points])
        for title, points in titled_lines(findings.settings, key)
    ]
    return _figure(results, findings, lines)


@figure(
    "roc_by_architecture",
    once_for("roc_by_architecture", _with_architectures),
    "ROC curves of the strongest attack on each kind of information, one per architecture, on logarithmic axes: mean over targets "
    "as steps, never interpolated. Dashed: guessing.",
)
def roc_by_architecture(results: Results, findings: Findings, dataset: str) -> Figure | str:
    """Draw panels per protection and kind of information, and in each a curve per architecture; sweeps are left out."""
    lines: dict[str, list[tuple[str, Finding]]] = {}
    for one in findings.settings:
        if one.setting.dataset == dataset and one.setting.trained and not one.setting.swept:
            lines.setdefault(protection(one.setting), []).append((one.setting.architecture_name, one))
    return _figure(results, findings, list(lines.items()))


def _figure(results: Results, findings: Findings, lines: Sequence[tuple[str, Curves]]) -> Figure | str:
    several = [(title, known) for title, known in lines if len(known) > 1]
    cells = [
        (f"{title}: {one.name}" if title else one.name, one, known)
        for title, known in several
        for one in series([finding for _, finding in known], findings.settings)
        if one.name != THRESHOLD
    ]
    if not cells:
        return NOTHING
    figure, panels = panel_grid(1, len(cells), height=2.3)
    for axes, (title, one, known) in zip(panels[0], cells, strict=True):
        _draw(axes, results, one, known)
        axes.set_title(title, fontsize=7)
    label_lines(panels[0], "true-positive rate")
    return figure


def _draw(axes: Axes, results: Results, one: Series, known: Curves) -> None:
    lowest = 1.0
    for order, (label, finding) in enumerate(known):
        style: dict[str, Any] = {
            "color": PALETTE[order % len(PALETTE)],
            "dashes": DASHES[1:][order // len(PALETTE) % (len(DASHES) - 1)] or (None, None),
        }
        for curve in roc_curves(results, finding, [one]):
            lowest = min(lowest, curve.fpr[0])
            auc = fixed(curve.leak.auc_estimate.mean)
            draw_roc(axes, curve.fpr, curve.mean, label=f"{label}, {auc}", **style)
    log_log(axes, lowest)
    axes.legend(loc="lower right", fontsize=5, title="AUC", title_fontsize=5)
