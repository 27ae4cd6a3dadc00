"""Test accuracy over ε and over swept parameters, as mean ± 2 standard deviations over models.

Leakage against test accuracy.

Membership risk by group: the strongest attack on every group of records or persons.

Leakage of intrinsic explanations, which are part of the model, compared with post-hoc ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mia_audit.report.data.findings import Estimate, Finding, Findings
from mia_audit.report.data.groups import groups_of, strongest_only
from mia_audit.report.data.series import BASELINE, CHANNELS, PALETTE
from mia_audit.report.data.spec import Setting
from mia_audit.report.figures.catalogue import figure, once, once_for
from mia_audit.report.figures.style import GUESSING, PAGE, errorbars, label_lines, panel_grid, shared_legend, tick
from mia_audit.report.text.formatting import power, protection, rate
from mia_audit.report.text.intrinsic import KINDS, Comparison, compared

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results

MARKERS = "osD^vP"
CURVE = 3
"""Smallest number of values of ε that make a curve."""
DEVIATIONS = 2
"""Length of an error bar on either side in standard deviations, as in Harder et al. (2020), Figures 5 and 6."""
NOTHING = "No model of these settings was trained to the end."


@dataclass(frozen=True)
class Line:
    """Settings that differ only in the quantity on the x axis."""

    name: str
    points: list[tuple[str, Finding]]
    """Pairs of a value on the x axis and the setting there."""


def curves_over_epsilon(settings: Sequence[Setting]) -> list[tuple[str, str]]:
    """List data set and architecture of the trained settings that have at least three values of ε, inf included."""
    values: dict[tuple[str, str], set[str]] = {}
    for setting in settings:
        if setting.trained:
            values.setdefault(setting.group, set()).add(setting.named)
    return [group for group, several in values.items() if len(several) >= CURVE]


def swept_parameters(settings: Sequence[Setting]) -> list[str]:
    """List the parameters that sweeps vary."""
    values: dict[str, set[str]] = {}
    for setting in settings:
        for key, value in setting.swept.items():
            values.setdefault(key, set()).add(str(value))
    return [key for key, several in values.items() if len(several) > 1]


@figure(
    "accuracy_by_epsilon",
    once("accuracy_by_epsilon", lambda spec: curves_over_epsilon(spec.settings)),
    "Test accuracy over ε, mean ± 2 standard deviations over models.",
)
def accuracy_by_epsilon(results: Results, findings: Findings, subject: None = None) -> Figure | str:
    """Draw test accuracy over ε, a panel per data set and a line per architecture (and mechanism, where there are several)."""
    known = _trained(findings)
    drawn = curves_over_epsilon([finding.setting for finding in known])
    by_dataset: dict[str, list[Line]] = {}
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
            by_dataset.setdefault(called.dataset_name, []).append(Line(name, points))
    deltas = {finding.setting.delta for finding in known if finding.setting.delta}
    label = f"ε at δ = {power(deltas.pop())}" if len(deltas) == 1 else "ε"
    return _figure(by_dataset, lambda value: "no DP" if value == "inf" else value, label)


@figure(
    "accuracy_by_parameter",
    once_for("accuracy_by", lambda spec: swept_parameters(spec.settings)),
    "Test accuracy over a swept parameter, mean ± 2 standard deviations over models.",
)
def accuracy_by_parameter(results: Results, findings: Findings, key: str) -> Figure | str:
    """Draw test accuracy over a swept parameter, a panel per data set and a line per protection and combination of the other parameters."""
    return _figure(lines_over(_trained(findings), key), str, key)


def lines_over(known: Sequence[Finding], key: str) -> dict[str, list[Line]]:
    """Return by data set the lines over a swept parameter: a line per protection and combination of the other parameters."""
    by_dataset: dict[str, list[Line]] = {}
    for finding in (one for one in known if key in one.setting.swept):
        rest = _rest(finding, key)
        name = "no DP" if finding.setting.epsilon == "inf" else protection(finding.setting)
        others = {str(k): str(v) for k, v in finding.setting.swept.items() if k != key}
        name = ", ".join([*(f"{k} {v}" for k, v in others.items()), name])
        lines = by_dataset.setdefault(finding.setting.dataset_name, [])
        if all(line.name != name for line in lines):
            same = [one for one in known if key in one.setting.parameters and _rest(one, key) == rest]
            points = [(str(one.setting.parameters[key]), one) for one in same]
            lines.append(Line(name, sorted(points, key=lambda point: _order(point[0]))))
    return by_dataset


def titled_lines(known: Sequence[Finding], key: str) -> list[tuple[str, list[tuple[str, Finding]]]]:
    """Return the points of every line over a swept parameter, with its data set and name as a title."""
    by_dataset = lines_over(known, key)
    return [(f"{dataset}, {line.name}", line.points) for dataset, lines in by_dataset.items() for line in lines]


def _trained(findings: Findings) -> list[Finding]:
    return [finding for finding in findings.settings if finding.test_accuracy]


def _rest(finding: Finding, key: str) -> tuple[object, ...]:
    """Return everything that a setting's training depends on, except the swept parameter."""
    setting = finding.setting
    parameters = sorted((name, str(value)) for name, value in setting.parameters.items() if name != key)
    return setting.dataset, setting.model, setting.mechanism, setting.epsilon, *parameters


def _figure(by_dataset: dict[str, list[Line]], tick: Callable[[str], str], label: str) -> Figure | str:
    if not by_dataset:
        return NOTHING
    figure, drawn = panel_grid(1, len(by_dataset), height=2.5, shared=True)
    for axes, (dataset, lines) in zip(drawn[0], by_dataset.items(), strict=True):
        _panel(axes, lines, tick, label)
        axes.set_title(dataset)
    label_lines(drawn[0], f"test accuracy, mean ± {DEVIATIONS} sd")
    shared_legend(figure, drawn)
    return figure


def _panel(axes: Axes, lines: list[Line], tick: Callable[[str], str], label: str) -> None:
    values = sorted({value for line in lines for value, _ in line.points}, key=_order)
    for index, line in enumerate(lines):
        placed = sorted(
            ((values.index(value), finding.test_accuracy) for value, finding in line.points if finding.test_accuracy),
            key=lambda point: point[0],
        )
        offset = (index - (len(lines) - 1) / 2) * 0.08
        axes.errorbar(
            [x + offset for x, _ in placed],
            [accuracy.mean for _, accuracy in placed],
            yerr=[DEVIATIONS * accuracy.sd for _, accuracy in placed],
            marker=MARKERS[index % len(MARKERS)],
            color=PALETTE[index % len(PALETTE)],
            label=line.name,
            linewidth=1.0,
            markersize=3.2,
            elinewidth=0.8,
            capsize=1.8,
        )
    axes.set_xticks(range(len(values)), [tick(value) for value in values])
    axes.set_xlabel(label)


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
PANEL = 0.8
"""Share of a panel's width that its axes fill."""


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
    figure, panels = panel_grid(1, len(groups), height=2.3, shared=True)
    for axes, group in zip(panels[0], groups, strict=True):
        for (channel, name), colour, marker in zip(CHANNELS.items(), PALETTE, "osD^", strict=False):
            placed = [
                (finding, finding.strongest[channel].auc_estimate) for finding in group if channel in finding.strongest
            ]
            _tradeoff_line(axes, placed, colour, marker, name)
        axes.axhline(0.5, **GUESSING)
        axes.margins(y=0.12)
        _make_room(axes, group)
        _label_settings(axes, group)
        axes.set_xlabel("test accuracy")
        axes.set_title(group[0].setting.place)
    label_lines(panels[0], "AUC of the strongest attack")
    shared_legend(figure, panels)
    return figure


def _tradeoff_line(axes: Axes, placed: list[tuple[Finding, Estimate]], colour: str, marker: str, name: str) -> None:
    known = [(finding.test_accuracy, leak) for finding, leak in placed if finding.test_accuracy]
    if not known:
        return
    x, y = [accuracy.mean for accuracy, _ in known], [leak.mean for _, leak in known]
    x_errors = [[a.below for a, _ in known], [a.above for a, _ in known]]
    y_errors = [[v.below for _, v in known], [v.above for _, v in known]]
    axes.plot(x, y, color=colour, linewidth=0.8, alpha=0.5)
    style: dict[str, Any] = {"elinewidth": 0.9, "capsize": 1.8, "capthick": 0.9, "markersize": 3.6}
    axes.errorbar(x, y, xerr=x_errors, yerr=y_errors, fmt=marker, color=colour, label=name, **style)


def _make_room(axes: Axes, group: list[Finding]) -> None:
    """Widen the axis of accuracies for the settings' names: on the right for the most accurate one, on the left for others."""
    known = [(finding.test_accuracy, len(tick(finding, group)) + 1) for finding in group if finding.test_accuracy]
    most = max(accuracy.mean for accuracy, _ in known)
    letters = [[count for one, count in known if (one.mean == most) == right] for right in (False, True)]
    inches = axes.figure.get_size_inches()[0] / axes.get_gridspec().ncols * PANEL  # type: ignore[union-attr]
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
        axes.annotate(text, place, xytext=(4 * side, lift), textcoords="offset points", **style)


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
        rows = [(place[group.column, group.label] - shift, group) for group in one.listed]
        errorbars(left, [(at, group.auc) for at, group in rows], colour, marker, label, upright=False)
        known = [(at, group.common) for at, group in rows if not math.isnan(group.common.mean)]
        errorbars(right, known, colour, marker, label, upright=False)
    left.axvline(0.5, **GUESSING)
    left.set_xlabel("AUC")
    if (fpr := grouped[0].fpr) is not None:
        right.axvline(fpr, **GUESSING)
        right.set_xlabel(f"TPR where {rate(fpr)} of all are false alarms")
    left.set_yticks([*place.values()], [f"{column}: {label}" for column, label in names], fontsize=6)
    right.set_yticks([*place.values()], [])
    for axes in (left, right):
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
