"""Log-log ROC curves: of one setting, and of several in one panel, over ε, over a swept key and over architectures.

Attacks over the settings of every data set and architecture, and over a swept parameter or key of training.

AUC and TPR against the number of other models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.attacks.engine.ratios import STAND_INS
from mia_audit.report.data.findings import Finding, Findings
from mia_audit.report.data.series import DASHES, PALETTE, THRESHOLD, Curve, Series, roc_curves, series, strongest
from mia_audit.report.data.spec import Setting, Spec
from mia_audit.report.figures.accuracy import curves_over_epsilon, swept_parameters, titled_lines
from mia_audit.report.figures.catalogue import figure, once, once_for
from mia_audit.report.figures.style import (
    COLUMN,
    GUESSING,
    draw_roc,
    errorbars,
    label_lines,
    log_log,
    metrics_shown,
    name_places,
    panel_grid,
    shared_legend,
    tick,
)
from mia_audit.report.tables.attacks import models as table_of_models
from mia_audit.report.text.formatting import protection
from mia_audit.report.text.statements import missing_models

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results

if TYPE_CHECKING:
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
    "guessing. Curves are those of the attacks with the largest AUCs. The AUCs beside them allow for the choice among the attacks "
    "of the same curve; AUC and TPR in the answer allow for the choice among all attacks on outputs, or on explanations, and may "
    "be lower. Bands: ± one standard deviation over targets, for the first two curves.",
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
        style: dict[str, Any] = {"color": line.series.colour, "dashes": line.series.dash or (None, None)}
        name, auc = line.series.name, line.leak.auc_estimate.mean
        draw_roc(axes, line.fpr, line.mean, name, auc, zorder=9 - order, **style)
        if order < BANDS:
            low, high = (np.maximum(line.mean + sign * line.sd, lowest / 2) for sign in (-1, 1))
            axes.fill_between(line.fpr, low, high, step="post", color=line.series.colour, alpha=0.15, linewidth=0)
    log_log(axes, lowest, label="guessing, 0.5")
    axes.set_ylabel("true-positive rate")
    setting = finding.setting
    axes.set_title(f"{setting.place}, {protection(setting)}")
    title = (
        f"strongest attack on each,\nAUC corrected for its choice; band: ± 1 sd over {len(lines[0].leak.targets)} targets"
        if lines
        else None
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
            draw_roc(axes, curve.fpr, curve.mean, label, curve.leak.auc_estimate.mean, **style)
    log_log(axes, lowest)
    axes.legend(loc="lower right", fontsize=5, title="AUC, corrected for choice", title_fontsize=5)


if TYPE_CHECKING:
    Column = tuple[str, Sequence[Finding], Sequence[str]]
    """A column of panels: its title, its settings, and their names below the x axis."""


@figure(
    "attack_by_epsilon",
    once("attack_by_epsilon"),
    "AUC and TPR of the strongest attack on each kind of information, setting by setting, and the null control; intervals allow for "
    "the choice among the attacks of the same mark. Dashed: guessing.",
)
def attack_by_epsilon(results: Results, findings: Findings, subject: tuple[str, str] | None = None) -> Figure:
    """Draw AUC and TPR of every series over the settings of all groups, or of one, a column of panels per group."""
    groups = findings.groups(subject).values()
    columns = [(group[0].setting.place, group, [tick(finding, group) for finding in group]) for group in groups]
    return _attack_figure(findings, columns, null_control=True)


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
    return _attack_figure(findings, columns, xlabel=key)


def _attack_figure(
    findings: Findings, columns: Sequence[Column], null_control: bool = False, xlabel: str = ""
) -> Figure:
    metrics = metrics_shown(findings)
    figure, panels = panel_grid(len(metrics), len(columns), height=1.75, shared=True)
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


@figure(
    "models",
    once("models"),
    "AUC and TPR of the strongest attack on every setting against the number of other models per target, by likelihood. "
    "Ring: beyond this number, further models add less than 0.005 to both.",
)
def models(results: Results, findings: Findings, subject: None = None) -> Figure | str:
    """Draw a column of panels per group, a colour per setting and a dash per likelihood."""
    table = table_of_models(results, findings)
    groups = [
        group
        for place, group in findings.groups().items()
        if len(table.filter(dataset=place[0], architecture=place[1]))
    ]
    if not groups:
        return "Fewer models cannot be evaluated: the audit has too few, or its design needs all of them."
    metrics = metrics_shown(findings)
    drawn, panels = panel_grid(len(metrics), len(groups), height=1.75, shared=True)
    likelihoods = table["likelihood"].unique(maintain_order=True).to_list()
    for column, group in enumerate(groups):
        for order, finding in enumerate(group):
            setting = finding.setting
            place = {"dataset": setting.dataset, "architecture": setting.architecture, "mechanism": setting.mechanism}
            rows = table.filter(**place, epsilon=setting.reported_epsilon)
            for dash, likelihood in zip(DASHES[1:], likelihoods, strict=False):
                line = rows.filter(likelihood=likelihood)
                ring = line.filter(level=True)
                for axes, (metric, *_) in zip(panels[:, column], metrics, strict=True):
                    colour = PALETTE[order % len(PALETTE)]
                    label = f"{protection(setting)}, {likelihood}"
                    axes.plot(
                        line["others"], line[metric], ".-", color=colour, dashes=dash or (None, None), label=label
                    )
                    axes.plot(ring["others"], ring[metric], "o", color=colour, fillstyle="none", markersize=7)
        for axes in panels[:, column]:
            axes.set_xscale("log")
            axes.set_xticks(ticks := sorted(set(table["others"])), [str(tick) for tick in ticks])
            axes.minorticks_off()
        panels[0][column].set_title(group[0].setting.place)
        panels[-1][column].set_xlabel("other models")
    for row, (_, label, _) in zip(panels, metrics, strict=True):
        label_lines(row, label)
    shared_legend(drawn, panels)
    return drawn


@figure(
    "roc_by_models",
    once("roc_by_models"),
    "ROC curves of the strongest attack on every setting with fewer other models per target, on logarithmic axes: mean over the same "
    "targets as steps, never interpolated. Dashed: guessing.",
)
def roc_by_models(results: Results, findings: Findings, subject: None = None) -> Figure | str:
    """Draw a panel per setting, and in it a curve per number of other models, by the headline likelihood or its stand-in."""
    from mia_audit.evaluation.metrics import log_grid

    drawn = []
    for setting, counted in zip(results.spec.settings, results.model_counts, strict=True):
        kept = [row for row in counted if "roc" in row]
        likelihoods = {row["likelihood"] for row in kept}
        headline = STAND_INS.get(results.spec.likelihood, results.spec.likelihood)
        chosen = headline if headline in likelihoods else min(likelihoods, default="")
        if kept:
            drawn.append((setting, [row for row in kept if row["likelihood"] == chosen]))
    if not drawn:
        return "No ROC curve is kept for fewer models: the audit has too few, or its design needs all of them."
    figure, panels = panel_grid(1, len(drawn), height=2.3)
    for axes, (setting, rows) in zip(panels[0], drawn, strict=True):
        for order, row in enumerate(rows):
            grid = log_grid(row["non_members"], len(row["roc"]))
            colour = PALETTE[order % len(PALETTE)]
            draw_roc(axes, grid, np.array(row["roc"]), f"{row['others']} others", row["auc_mean"], color=colour)
        log_log(axes, grid[0])
        axes.set_title(f"{setting.place}\n{protection(setting)}", fontsize=7)
        axes.legend(
            loc="lower right", fontsize=5, title=f"{rows[0]['attack']} on {rows[0]['signal']}, AUC", title_fontsize=5
        )
    label_lines(panels[0], "true-positive rate")
    return figure
