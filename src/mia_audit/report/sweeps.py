"""Figures of a study: test accuracy over ε and over swept parameters, mean ± 2 standard deviations of its restarts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mia_audit.report.findings import Finding, Findings
from mia_audit.report.outputs import budgets_of, swept_parameters
from mia_audit.report.panels import label_lines, panel_grid, shared_legend
from mia_audit.report.series import PALETTE
from mia_audit.report.words import power, protection

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = "osD^vP"
DEVIATIONS = 2
"""Standard deviations that an error bar shows on either side, as Harder et al. (2020, Figures 5 and 6) draw them."""


@dataclass(frozen=True)
class Line:
    """Settings that differ in what a figure's axis shows, and in nothing else."""

    name: str
    points: list[tuple[str, Finding]]
    """What stands on the axis, and the setting there."""


def sweep_figures(findings: Findings) -> dict[str, Figure]:
    """Draw every sweep of which something was trained, by the figure's name; see `outputs.study_names`."""
    known = [found for found in findings.settings if found.test_accuracy]
    settings = [vars(found.setting) for found in known]
    over_budgets = {"accuracy_by_epsilon": accuracy_by_epsilon(known)} if budgets_of(settings) else {}
    return over_budgets | {
        f"accuracy_by_{key}": accuracy_by_parameter(known, key) for key in swept_parameters(settings)
    }


def accuracy_by_epsilon(known: Sequence[Finding]) -> Figure:
    """Draw test accuracy over ε, a panel a data set and a line an architecture (and mechanism, where there are several)."""
    drawn = budgets_of([vars(found.setting) for found in known])
    by_dataset: dict[str, list[Line]] = {}
    for dataset, architecture in drawn:
        group = [found for found in known if found.setting.group == (dataset, architecture)]
        bare = [found for found in group if found.setting.epsilon == "inf"]
        mechanisms = list(dict.fromkeys(found.setting.mechanism for found in group if found not in bare))
        for mechanism in mechanisms:
            name = architecture if len(mechanisms) == 1 else f"{architecture}, {mechanism}"
            of_it = [found for found in group if found.setting.mechanism == mechanism]
            if any(found.setting.no_guarantee for found in of_it):
                name += " (ε nominal: none is guaranteed)"
            points = [(found.setting.epsilon, found) for found in of_it + bare]
            by_dataset.setdefault(dataset, []).append(Line(name, points))
    deltas = {found.setting.delta for found in known if found.setting.delta}
    label = f"ε at δ = {power(deltas.pop())}" if len(deltas) == 1 else "ε"
    return _figure(by_dataset, lambda value: "no DP" if value == "inf" else value, label)


def accuracy_by_parameter(known: Sequence[Finding], key: str) -> Figure:
    """Draw test accuracy over a swept parameter, a panel a data set and a line for each protection and rest of the parameters."""
    swept = [found for found in known if key in found.setting.swept]
    by_dataset: dict[str, list[Line]] = {}
    for found in swept:
        rest = _rest(found, key)
        name = "no DP" if found.setting.epsilon == "inf" else protection(found.setting)
        others = {str(k): str(v) for k, v in found.setting.swept.items() if k != key}
        name = ", ".join([*(f"{k} {v}" for k, v in others.items()), name])
        lines = by_dataset.setdefault(found.setting.dataset, [])
        if all(line.name != name for line in lines):
            alike = [one for one in known if key in one.setting.parameters and _rest(one, key) == rest]
            lines.append(Line(name, [(str(one.setting.parameters[key]), one) for one in alike]))
    return _figure(by_dataset, str, key)


def _rest(found: Finding, key: str) -> tuple[object, ...]:
    """Everything that a setting's training depends on, but the swept parameter."""
    setting = found.setting
    parameters = sorted((name, str(value)) for name, value in setting.parameters.items() if name != key)
    return setting.dataset, setting.model, setting.mechanism, setting.epsilon, *parameters


def _figure(by_dataset: dict[str, list[Line]], tick: Callable[[str], str], label: str) -> Figure:
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
            ((values.index(value), found.test_accuracy) for value, found in line.points if found.test_accuracy),
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
    """Numbers by their size, then words."""
    try:
        return 0, float(value), ""
    except ValueError:
        return 1, 0.0, value
