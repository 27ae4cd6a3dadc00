"""Figures of attacks and accuracies: ROC curves, AUC and TPR, leakage against accuracy, groups, numbers of models."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.attacks.engine.ratios import STAND_INS
from mia_audit.report.figures.catalogue import (
    COLUMN,
    GUESSING,
    MANY,
    PAGE,
    add_rows,
    blank,
    chosen,
    draw_line,
    draw_roc,
    errorbars,
    figure,
    label_lines,
    log_log,
    metrics_shown,
    name_places,
    once,
    once_for,
    panel_grid,
    panel_inches,
    shared_legend,
    tick,
    with_several,
)
from mia_audit.report.findings import Finding, Findings
from mia_audit.report.formatting import power, protection, rate
from mia_audit.report.series import (
    BASELINE,
    CHANNELS,
    DASHES,
    PALETTE,
    THRESHOLD,
    Curve,
    Series,
    groups_of,
    roc_curves,
    series,
    strongest,
    strongest_only,
)
from mia_audit.report.spec import AuditedSetting, ReportedAudit
from mia_audit.report.statements import KINDS, Comparison, compared, missing_models
from mia_audit.report.tables.attacks import models as table_of_models
from mia_audit.report.tables.catalogue import identity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.results import Results

MARKERS = "osD^vP"
CURVE = 3
"""Smallest number of values of ε that make a curve."""
DEVIATIONS = 2
"""Length of an error bar on either side in standard deviations, as in Harder et al. (2020), Figures 5 and 6."""
NOTHING = "No model of these settings was trained to the end."


def curves_over_epsilon(settings: Sequence[AuditedSetting]) -> list[tuple[str, str]]:
    """List data set and architecture of the trained settings that have at least three values of ε, inf included."""
    return with_several(((one.group, one.named) for one in settings if one.trained), CURVE)


def swept_parameters(settings: Sequence[AuditedSetting]) -> list[str]:
    """List the parameters that sweeps vary."""
    return with_several((key, str(value)) for one in settings for key, value in one.swept.items())


@figure(
    "accuracy_by_epsilon",
    once("accuracy_by_epsilon", lambda spec: curves_over_epsilon(spec.settings)),
    "Test accuracy over ε, mean ± 2 standard deviations over models.",
)
def accuracy_by_epsilon(results: Results, findings: Findings, subject: None = None) -> Figure | str:
    """Draw test accuracy over ε, a panel per data set and a line per architecture (and mechanism, where there are several)."""
    known = _trained(findings)
    drawn = curves_over_epsilon([finding.setting for finding in known])
    by_dataset: dict[str, Lines] = {}
    for dataset, architecture in drawn:
        group = [finding for finding in known if finding.setting.group == (dataset, architecture)]
        bare = [finding for finding in group if finding.setting.epsilon == "inf"]
        mechanisms = list(dict.fromkeys(finding.setting.mechanism for finding in group if finding not in bare))
        for mechanism in mechanisms:
            protected = [finding for finding in group if finding.setting.mechanism == mechanism]
            called = protected[0].setting
            name = called.architecture_name
            name += f", {called.mechanism_name}" if len(mechanisms) > 1 else ""
            if any(finding.setting.no_guarantee for finding in protected):
                name += " (ε nominal: none is guaranteed)"
            points = [(finding.setting.epsilon, finding) for finding in protected + bare]
            by_dataset.setdefault(called.dataset_name, []).append((name, points))
    deltas = {finding.setting.delta for finding in known if finding.setting.delta}
    label = f"ε at δ = {power(deltas.pop())}" if len(deltas) == 1 else "ε"
    return _accuracy_figure(by_dataset, lambda value: "no DP" if value == "inf" else value, label)


@figure(
    "accuracy_by_parameter",
    once_for("accuracy_by", lambda spec: swept_parameters(spec.settings)),
    "Test accuracy over a swept parameter, mean ± 2 standard deviations over models.",
)
def accuracy_by_parameter(results: Results, findings: Findings, key: str) -> Figure | str:
    """Draw test accuracy over a swept parameter, a panel per data set and a line per protection and combination of the other parameters."""
    return _accuracy_figure(lines_over(_trained(findings), key), str, key)


def lines_over(known: Sequence[Finding], key: str) -> dict[str, Lines]:
    """Return by data set the lines over a swept parameter: a line per protection and combination of the other parameters."""
    by_dataset: dict[str, Lines] = {}
    for finding in (one for one in known if key in one.setting.swept):
        rest = _rest(finding, key)
        name = "no DP" if finding.setting.epsilon == "inf" else protection(finding.setting)
        others = {str(k): str(v) for k, v in finding.setting.swept.items() if k != key}
        name = ", ".join([*(f"{k} {v}" for k, v in others.items()), name])
        lines = by_dataset.setdefault(finding.setting.dataset_name, [])
        if all(line != name for line, _ in lines):
            same = [one for one in known if key in one.setting.parameters and _rest(one, key) == rest]
            points = [(str(one.setting.parameters[key]), one) for one in same]
            lines.append((name, sorted(points, key=lambda point: _order(point[0]))))
    return by_dataset


def titled_lines(known: Sequence[Finding], key: str) -> list[tuple[str, list[tuple[str, Finding]]]]:
    """Return the points of every line over a swept parameter, with its data set and name as a title."""
    by_dataset = lines_over(known, key)
    return [(f"{dataset}, {name}", points) for dataset, lines in by_dataset.items() for name, points in lines]


def _trained(findings: Findings) -> list[Finding]:
    return [finding for finding in findings.settings if finding.test_accuracy]


def _rest(finding: Finding, key: str) -> tuple[object, ...]:
    """Return everything that a setting's training depends on, except the swept parameter."""
    setting = finding.setting
    parameters = sorted((name, str(value)) for name, value in setting.parameters.items() if name != key)
    return setting.dataset, setting.model, setting.mechanism, setting.epsilon, *parameters


def _accuracy_figure(by_dataset: dict[str, Lines], tick: Callable[[str], str], label: str) -> Figure | str:
    if not by_dataset:
        return NOTHING
    figure, drawn = panel_grid(1, len(by_dataset), height=2.5, shared=True)
    style: dict[str, Any] = {"linewidth": 1.0, "markersize": 3.2, "elinewidth": 0.8, "capsize": 1.8}
    for axes, (dataset, lines) in zip(drawn[0], by_dataset.items(), strict=True):
        values = sorted({value for _, points in lines for value, _ in points}, key=_order)
        for index, (name, points) in enumerate(lines):
            known = [(values.index(value), one.test_accuracy) for value, one in points if one.test_accuracy]
            known.sort(key=lambda point: point[0])
            places, names = [place for place, _ in known], [tick(values[place]) for place, _ in known]
            means, errors = (
                np.array([one.mean for _, one in known]),
                DEVIATIONS * np.array([one.sd for _, one in known]),
            )
            look = {"marker": MARKERS[index % len(MARKERS)], "color": PALETTE[index % len(PALETTE)], "label": name}
            shift = (index - (len(lines) - 1) / 2) * 0.08
            axes.errorbar([place + shift for place in places], means, yerr=errors, **look, **style)
            ends = {"y_low": means - errors, "y_high": means + errors}
            add_rows(axes, "point", name, x=places, y=means, **ends, label=names)
        axes.set_xticks(range(len(values)), [tick(value) for value in values])
        axes.set_xlabel(label)
        axes.set_title(dataset)
    label_lines(drawn[0], f"test accuracy, mean ± {DEVIATIONS} sd")
    shared_legend(figure, drawn)
    return figure


def _order(value: str) -> tuple[int, float, str]:
    """Sort numbers by size, then words."""
    try:
        return 0, float(value), ""
    except ValueError:
        return 1, 0.0, value


LINE = 8.5
"""Height of a label in points."""
LABEL_LETTERS_PER_INCH = 17
"""Letters per inch in a setting's name beside its point."""


@figure(
    "tradeoff",
    once("tradeoff", lambda spec: spec.trained),
    "AUC of the strongest attack against test accuracy, with intervals. Down and to the right is better. Dashed: guessing.",
)
def tradeoff(results: Results, findings: Findings, subject: tuple[str, str] | None = None) -> Figure | str:
    """Draw AUC against test accuracy, a panel per group, or for one group, and a line per channel."""
    groups = [[finding for finding in group if finding.test_accuracy] for group in findings.groups(subject).values()]
    groups = [group for group in groups if group]
    if not groups:
        return "No model's test accuracy is known."
    most = max(map(len, groups))
    figure, panels = panel_grid(1, len(groups), height=2.3 + max(0, most - MANY) * LINE / 72, shared=True)
    for axes, group in zip(panels[0], groups, strict=True):
        for (channel, name), colour, marker in zip(CHANNELS.items(), PALETTE, "osD^", strict=False):
            known = [
                (finding.test_accuracy, finding.strongest[channel].auc_estimate, tick(finding, group))
                for finding in group
                if finding.test_accuracy and channel in finding.strongest
            ]
            if known:
                x, y = ([value.mean for value in values] for values in list(zip(*known, strict=True))[:2])
                axes.plot(x, y, color=colour, linewidth=0.8, alpha=0.5)
            errorbars(axes, known, colour, marker, name, markersize=3.6, markeredgewidth=None)
        axes.axhline(0.5, **GUESSING)
        axes.margins(y=0.12)
        _make_room(axes, group)
        axes.set_xlabel("test accuracy")
        axes.set_title(group[0].setting.place)
    label_lines(panels[0], "AUC of the strongest attack")
    shared_legend(figure, panels)
    figure.draw_without_rendering()  # labels are placed by the height that legend and titles leave
    for axes, group in zip(panels[0], groups, strict=True):
        _label_settings(axes, group)
    return figure


def _make_room(axes: Axes, group: list[Finding]) -> None:
    """Widen the axis of accuracies for the settings' names: on the right for the most accurate one, on the left for others."""
    known = [(finding.test_accuracy, len(tick(finding, group)) + 1) for finding in group if finding.test_accuracy]
    most = max(accuracy.mean for accuracy, _ in known)
    letters = [[count for one, count in known if (one.mean == most) == right] for right in (False, True)]
    inches = panel_inches(axes)
    left, right = (max(0.08, min(max(counts, default=0) / LABEL_LETTERS_PER_INCH / inches, 0.45)) for counts in letters)
    low = min(accuracy.mean - accuracy.below for accuracy, _ in known)
    high = max(accuracy.mean + accuracy.above for accuracy, _ in known)
    unit = max(high - low, 1e-3) / (1 - left - right)
    axes.set_xlim(low - left * unit, high + right * unit)


def _label_settings(axes: Axes, group: list[Finding]) -> None:
    """Write each setting's name beside its topmost point, on the side without lines."""
    known = [(finding, finding.test_accuracy) for finding in group if finding.test_accuracy]
    most = max(accuracy.mean for _, accuracy in known)
    tops = [max(leak.auc_estimate.mean for leak in finding.strongest.values()) for finding, _ in known]
    low, high = axes.get_ylim()
    points = axes.get_window_extent().height * 72 / axes.get_figure().dpi / (high - low)  # type: ignore[union-attr]
    free = -math.inf
    for top, (finding, accuracy) in sorted(zip(tops, known, strict=True), key=lambda pair: pair[0]):
        side = 1 if accuracy.mean == most else -1
        place = (accuracy.mean + side * accuracy.above, top)
        lift = max(0.0, free - top * points) if side < 0 else 0.0  # no overlap with the label below it
        free = top * points + lift + LINE if side < 0 else free
        style: dict[str, Any] = {"ha": "left" if side > 0 else "right", "va": "center", "fontsize": 7}
        text = tick(finding, group).replace("\n", ", ")
        axes.annotate(text, place, xytext=(4 * side, lift), textcoords="offset points", **style).set_in_layout(False)


GROUP_LINE = 0.16
"""Height of a group's line in inches."""
MARGIN = 0.9


@figure(
    "groups",
    once_for("groups", lambda spec: (one.group for one in spec.settings if one.grouped)),
    "The strongest attack on every setting by group: AUC, with intervals for all groups of a setting together (Bonferroni), and TPR"
    " at the common threshold of all groups. Dashed: guessing, and the FPR over all groups together.",
)
def groups(results: Results, findings: Findings, subject: tuple[str, str]) -> Figure | str:
    """Draw a line per group and a colour per setting: AUC on the left, TPR at the common threshold on the right."""
    grouped = [one for one in strongest_only(groups_of(results, findings)) if one.finding.setting.group == subject]
    if not grouped:
        return "No group is large enough, or no setting could be attacked."
    names = list(dict.fromkeys((group.column, group.label) for one in grouped for group in one.listed))
    place = {name: -order for order, name in enumerate(names)}
    drawn, panels = panel_grid(1, 2, height=MARGIN + GROUP_LINE * len(names) * max(1, len(grouped) / 2))
    left, right = panels[0]
    for order, (one, marker) in enumerate(zip(grouped, "osD^vP" * len(grouped), strict=False)):
        colour, label = PALETTE[order % len(PALETTE)], protection(one.finding.setting)
        shift = 0.6 * ((order + 0.5) / len(grouped) - 0.5)
        for axes, metric in ((left, "auc"), (right, "common")):
            points = [
                (value, place[group.column, group.label], f"{group.column}: {group.label}")
                for group in one.listed
                if not math.isnan((value := getattr(group, metric)).mean) or metric == "auc"
            ]
            errorbars(axes, points, colour, marker, label, shift=-shift)
    left.axvline(0.5, **GUESSING)
    left.set_xlabel("AUC")
    if (fpr := grouped[0].fpr) is not None:
        right.axvline(fpr, **GUESSING)
        right.set_xlabel(f"TPR where {rate(fpr)} of all are false alarms")
    left.set_yticks([*place.values()], [f"{column}: {label}" for column, label in names], fontsize=6)
    right.set_yticks([*place.values()], [])
    for axes in (left, right):
        axes.set_label(axes.get_xlabel())
        axes.set_ylim(0.6 - len(names), 0.6)
    drawn.suptitle(f"{subject[0]}, {subject[1]}", fontsize=8)
    shared_legend(drawn, panels)
    return drawn


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
    architectures = list(dict.fromkeys(source.architecture for source in comparison.sources))
    rows = {
        id(source): number + architectures.index(source.architecture)  # a gap between architectures
        for number, source in enumerate(comparison.sources)
    }
    names = {id(source): f"{source.architecture}: {source.label}" for source in comparison.sources}
    count = len(comparison.protections)
    # names are wider in print than in the layout
    figure = blank(max(PAGE, BESIDE + 1.1 * count), ROW * (len(rows) + len(architectures)) + 1.0, w_pad=0.1)
    panels = figure.subplots(1, count, squeeze=False, sharex=True, sharey=True)[0]
    for axes, name in zip(panels, comparison.protections, strict=True):
        for kind, (colour, marker) in STYLES.items():
            known = [source for source in comparison.sources if source.kind == kind and name in source.leaks]
            placed = [(source.leaks[name].auc_estimate, rows[id(source)], names[id(source)]) for source in known]
            errorbars(axes, placed, colour, marker, KINDS[kind])
        axes.axvline(0.5, **GUESSING)
        axes.set_title(name)
        axes.set_xlabel("AUC")
        axes.grid(axis="y", color="0.92", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0)
    panels[0].set_yticks(list(rows.values()), list(names.values()), fontsize=6)
    panels[0].invert_yaxis()
    shared_legend(figure, panels)
    return figure


if TYPE_CHECKING:
    Lines = list[tuple[str, list[tuple[str, Finding]]]]
    """Lines by name over settings that differ only in the quantity on the x axis: pairs of a value there and the setting."""
    Curves = Sequence[tuple[str, Finding]]
    """Curves of settings that differ in one key, by their name in the legend."""


HALF_COLUMN = 28
"""Number of a legend's letters that fit into half a column."""
BANDS = 2
"""Number of bands; more would overlap."""


@figure(
    "roc",
    lambda spec: {f"roc_{'_'.join(one.group)}_{one.mechanism}-eps{one.named}": one for one in spec.settings},
    "ROC curves on logarithmic axes: mean over targets as steps, never interpolated. Above the dashed diagonal an attack beats "
    "guessing. Curves are those of the attacks with the largest AUCs. The AUCs beside them allow for the choice among the attacks "
    "of the same curve; AUC and TPR in the answer allow for the choice among all attacks on outputs, or on explanations, and may "
    "be lower. Bands: ± one standard deviation over targets, for the first two curves.",
)
def roc(results: Results, findings: Findings, setting: AuditedSetting) -> Figure | str:
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
    figure = blank(COLUMN, COLUMN * 1.08)
    axes = figure.add_subplot()
    lowest = min((line.fpr[0] for line in lines), default=1e-3)
    for order, line in enumerate(lines):
        ends = [np.maximum(line.mean + sign * line.sd, lowest / 2) for sign in (-1, 1)] if order < BANDS else None
        look, auc, dashes = line.series, line.leak.auc_estimate.mean, line.series.dash or (None, None)
        draw_roc(axes, line.fpr, line.mean, look.colour, look.name, auc=auc, band=ends, zorder=9 - order, dashes=dashes)
    log_log(axes, lowest, label="guessing, 0.5")
    axes.set_ylabel("true-positive rate")
    setting = finding.setting
    axes.set_title(f"{setting.place}, {protection(setting)}")
    band = f"band: ± 1 sd over {len(lines[0].leak.targets)} targets" if lines else ""
    title = f"strongest attack on each,\nAUC corrected for its choice; {band}" if lines else None
    columns = 2 if max(len(text) for text in axes.get_legend_handles_labels()[1]) <= HALF_COLUMN else 1
    figure.legend(loc="outside lower center", ncols=columns, title=title, title_fontsize=6.5, columnspacing=1.2)
    return figure


FEWER_THAN_TWO = "No two of these settings were attacked."


def _with_architectures(spec: ReportedAudit) -> list[str]:
    """List the data sets on which several architectures were trained; sweeps are left out."""
    return with_several((one.dataset, one.architecture) for one in spec.trained if not one.swept)


@figure(
    "roc_by_epsilon",
    once_for("roc_by_epsilon", lambda spec: curves_over_epsilon(spec.settings)),
    "ROC curves of the strongest attack on each kind of information, one per ε, on logarithmic axes: mean over targets as steps, "
    "never interpolated. Dashed: guessing.",
)
def roc_by_epsilon(results: Results, findings: Findings, group: tuple[str, str]) -> Figure | str:
    """Draw a panel per kind of information, and in it a curve per setting of a data set and architecture."""
    known = [(protection(one.setting), one) for one in findings.settings if one.setting.group == group]
    return _roc_panels(results, findings, [("", known)])


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
    return _roc_panels(results, findings, lines)


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
    return _roc_panels(results, findings, list(lines.items()))


def _roc_panels(results: Results, findings: Findings, lines: Sequence[tuple[str, Curves]]) -> Figure | str:
    several = [(title, known) for title, known in lines if len(known) > 1]
    cells = [
        (f"{title}: {one.name}" if title else one.name, one, known)
        for title, known in several
        for one in series([finding for _, finding in known], findings.settings)
        if one.name != THRESHOLD
    ]
    if not cells:
        return FEWER_THAN_TWO
    figure, panels = panel_grid(1, len(cells), height=2.3)
    for axes, (title, one, known) in zip(panels[0], cells, strict=True):
        _draw_curves(axes, results, one, known)
        axes.set_title(title, fontsize=7)
    label_lines(panels[0], "true-positive rate")
    return figure


def _draw_curves(axes: Axes, results: Results, one: Series, known: Curves) -> None:
    lowest = 1.0
    for order, (label, finding) in enumerate(known):
        colour = PALETTE[order % len(PALETTE)]
        dashes = DASHES[1:][order // len(PALETTE) % (len(DASHES) - 1)] or (None, None)
        for curve in roc_curves(results, finding, [one]):
            lowest = min(lowest, curve.fpr[0])
            draw_roc(axes, curve.fpr, curve.mean, colour, label, auc=curve.leak.auc_estimate.mean, dashes=dashes)
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
    most = max(len(names) for _, _, names in columns)
    figure, panels = panel_grid(len(metrics), len(columns), height=1.75, shared=True, names=most)
    drawn = series([finding for _, group, _ in columns for finding in group], findings.settings)
    slots = len(drawn) + null_control
    offsets = [(slot - (slots - 1) / 2) * 0.7 / slots for slot in range(slots)]
    for column, (title, group, names) in enumerate(columns):
        chosen = [strongest(finding) for finding in group]
        for axes, (metric, label, chance) in zip(panels[:, column], metrics, strict=True):
            axes.set_label(f"{title}: {label}")
            for one, offset in zip(drawn, offsets, strict=False):
                known = [
                    (x, getattr(attacks[one.name], f"{metric}_estimate"), names[x])
                    for x, attacks in enumerate(chosen)
                    if one.name in attacks
                ]
                errorbars(axes, known, one.colour, one.marker, one.name, shift=offset)
            if null_control and metric == "auc":
                nulls = [(x, one.null.headline) for x, one in enumerate(group) if one.null and one.null.headline]
                controls = [(x, next(iter(headline.values())), names[x]) for x, headline in nulls]
                errorbars(axes, controls, "0.45", "x", "null control", shift=offsets[-1])
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
    places = set(table.select("dataset", "architecture").iter_rows())
    groups = [group for place, group in findings.groups().items() if place in places]
    if not groups:
        return "Fewer models cannot be evaluated: the audit has too few, or its design needs all of them."
    metrics = metrics_shown(findings)
    drawn, panels = panel_grid(len(metrics), len(groups), height=1.75, shared=True)
    likelihoods = table["likelihood"].unique(maintain_order=True).to_list()
    for column, group in enumerate(groups):
        for order, finding in enumerate(group):
            rows = table.filter(**identity(finding.setting))
            for dash, likelihood in zip(DASHES[1:], likelihoods, strict=False):
                line = rows.filter(likelihood=likelihood)
                ring = line.filter(level=True)
                for axes, (metric, name, _) in zip(panels[:, column], metrics, strict=True):
                    axes.set_label(f"{group[0].setting.place}: {name}")
                    label, dashes = f"{protection(finding.setting)}, {likelihood}", dash or (None, None)
                    colour = PALETTE[order % len(PALETTE)]
                    x, y = line["others"].to_numpy(), line[metric].to_numpy()
                    draw_line(axes, x, y, colour, label, marker=".", dashes=dashes)
                    style: dict[str, Any] = {"color": chosen(label, colour), "fillstyle": "none", "markersize": 7}
                    axes.plot(ring["others"], ring[metric], "o", **style)
                    add_rows(axes, "ring", label, x=ring["others"], y=ring[metric])
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
            draw_roc(axes, grid, np.array(row["roc"]), colour, f"{row['others']} others", auc=row["auc_mean"])
        log_log(axes, grid[0])
        axes.set_title(f"{setting.place}\n{protection(setting)}", fontsize=7)
        title = f"{rows[0]['attack']} on {rows[0]['signal']}, AUC"
        axes.legend(loc="lower right", fontsize=5, title=title, title_fontsize=5)
    label_lines(panels[0], "true-positive rate")
    return figure
