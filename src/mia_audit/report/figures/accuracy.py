"""Test accuracy over ε and over swept parameters, as mean ± 2 standard deviations over models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mia_audit.report.data.findings import Finding, Findings
from mia_audit.report.data.series import PALETTE
from mia_audit.report.data.spec import Setting
from mia_audit.report.figures.catalogue import figure, once, once_for
from mia_audit.report.figures.layout import label_lines, panel_grid, shared_legend
from mia_audit.report.text.formatting import power, protection

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results

MARKERS = "osD^vP"
CURVE = 3
"""Smallest number of values of ε that make a curve."""
DEVIATIONS = 2
"""Length of an error bar on either side in standard deviations, as in Harder et al. (2020), Figures 5 and 6."""
NOISE = "noise_multiplier"
"""The key of a mechanism that decides its ε."""
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
        name = _protection(finding.setting, key)
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
    mechanism = setting.swept_mechanism or setting.mechanism
    return setting.dataset, setting.model, mechanism, "" if key == NOISE else setting.epsilon, *parameters


def _protection(setting: Setting, key: str) -> str:
    """Return the name of the settings that differ in the swept key alone."""
    if setting.epsilon == "inf":
        return "no DP"
    if not setting.swept_mechanism:
        return protection(setting)
    if key == NOISE:  # which decides ε
        return setting.swept_mechanism
    return protection(replace(setting, mechanism=setting.swept_mechanism, mechanism_label="", label=""))


def _figure(by_dataset: dict[str, list[Line]], tick: Callable[[str], str], label: str) -> Figure | str:
    if not by_dataset:
        return NOTHING
    figure, drawn = panel_grid(1, len(by_dataset), height=2.5)
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
