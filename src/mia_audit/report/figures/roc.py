"""Log-log ROC curves: of one setting, and of several in one panel, over ε, over a swept key and over architectures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.report.data.findings import Finding, Findings
from mia_audit.report.data.series import DASHES, PALETTE, THRESHOLD, Curve, Series, roc_curves, series
from mia_audit.report.data.spec import Setting, Spec
from mia_audit.report.figures.accuracy import curves_over_epsilon, swept_parameters, titled_lines
from mia_audit.report.figures.catalogue import figure, once_for
from mia_audit.report.figures.layout import COLUMN, draw_roc, label_lines, log_log, panel_grid
from mia_audit.report.text.formatting import fixed, protection
from mia_audit.report.text.statements import missing_models

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results

    Curves = Sequence[tuple[str, Finding]]
    """Curves of settings that differ in one key, by their name in the legend."""

HALF_COLUMN = 28
"""Number of a legend's letters that fit into half a column."""
BANDS = 2
"""Number of bands; more would overlap."""


def _settings(spec: Spec) -> dict[str, Setting]:
    return {f"roc_{one.dataset}_{one.architecture}_{one.mechanism}-eps{one.named}": one for one in spec.settings}


@figure(
    "roc",
    _settings,
    "ROC curves on logarithmic axes: mean over targets as steps, never interpolated. Above the dashed diagonal an attack beats "
    "guessing. Bands: ± one standard deviation over targets, for the first two curves.",
)
def roc(results: Results, findings: Findings, setting: Setting) -> Figure | str:
    """Draw the ROC curves of the strongest attacks on a setting, in the colours of its group."""
    finding = next((one for one in findings.settings if one.setting == setting), None)
    if finding is None:
        reasons = (missing_models(gap) for gap in results.spec.gaps if gap.setting == setting)
        return f"Not attacked: {next(reasons, 'no model is left')}."
    return roc_figure(
        finding, roc_curves(results, finding, series(findings.groups()[setting.group], findings.settings))
    )


def roc_figure(finding: Finding, lines: Sequence[Curve]) -> Figure:
    """Draw ROC curves as steps on logarithmic axes, the first ones with ± one standard deviation."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN, COLUMN * 1.08), layout="constrained")
    axes = figure.add_subplot()
    lowest = min((line.fpr[0] for line in lines), default=1e-3)
    for order, line in enumerate(lines):
        label = f"{line.series.name}, {fixed(line.leak.auc_estimate.mean)}"
        style: dict[str, Any] = {"color": line.series.colour, "dashes": line.series.dash or (None, None)}
        draw_roc(axes, line.fpr, line.mean, label=label, zorder=9 - order, **style)
        if order < BANDS:
            low, high = (np.maximum(line.mean + sign * line.sd, lowest / 2) for sign in (-1, 1))
            axes.fill_between(line.fpr, low, high, step="post", color=line.series.colour, alpha=0.15, linewidth=0)
    log_log(axes, lowest, label="guessing, 0.5")
    axes.set_ylabel("true-positive rate")
    setting = finding.setting
    axes.set_title(f"{setting.place}, {protection(setting)}")
    title = (
        f"strongest attack on each, its AUC; band: ± 1 sd over {len(lines[0].leak.targets)} targets" if lines else None
    )
    columns = 2 if max(len(text) for text in axes.get_legend_handles_labels()[1]) <= HALF_COLUMN else 1
    figure.legend(loc="outside lower center", ncols=columns, title=title, title_fontsize=6.5, columnspacing=1.2)
    return figure


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
