"""Leakage against test accuracy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mia_audit.report.data.findings import Estimate, Finding, Findings
from mia_audit.report.data.series import CHANNELS, PALETTE
from mia_audit.report.figures.catalogue import figure, once
from mia_audit.report.figures.layout import GUESSING, label_lines, panel_grid, shared_legend, tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results

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
    figure, panels = panel_grid(1, len(groups), height=2.3)
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
