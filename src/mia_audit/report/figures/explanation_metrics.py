"""The effect of privacy on explanations, next to accuracy and leakage, and the curves of deletion and insertion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mia_audit.report.data.explanation_metrics import (
    Explained,
    Interpretation,
    curves_of,
    explainer_series,
    interpretations,
    measure_label,
    similarity,
)
from mia_audit.report.data.findings import Finding, Findings, reference
from mia_audit.report.data.series import CHANNELS, DASHES, PALETTE, Series
from mia_audit.report.figures.catalogue import figure, once, once_for
from mia_audit.report.figures.layout import (
    GUESSING,
    errorbars,
    label_lines,
    name_places,
    panel_grid,
    shared_legend,
    tick,
)
from mia_audit.report.text.formatting import titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results

ATTACKS = {"outputs": ("0.1", "s"), "explanations": ("0.5", "D"), "both": ("0.7", "^")}
"""Shade and marker of the channels; colours are the explainers'."""


@figure(
    "explanation_metrics",
    once("explanation_metrics", lambda spec: spec.explanation_metrics and spec.groups),
    "Test accuracy, similarity of explanations and AUC of attacks in every setting, with intervals. Similarity is with "
    "the model without DP that has the same training set; hollow: between two models without DP with different training sets.",
)
def explanation_metrics(results: Results, findings: Findings, subject: tuple[str, str] | None = None) -> Figure | str:
    """Draw accuracy, similarity of explanations and leakage over the settings, a column of panels per group, or for one group."""
    interpreted = interpretations(results)
    groups = [(group, interpreted[place]) for place, group in findings.groups(subject).items() if place in interpreted]
    if not groups:
        return "No setting whose explanations would be shown here was trained to the end."
    figure, rows = panel_grid(3, len(groups), height=1.5)
    for column, (group, interpretation) in enumerate(groups):
        accuracy, similar, leakage = (row[column] for row in rows)
        known = [(x, finding.test_accuracy) for x, finding in enumerate(group) if finding.test_accuracy]
        errorbars(accuracy, known, "0.1", "o", "test accuracy")
        _similarity(similar, group, interpretation, explainer_series(group, findings.settings, interpretation))
        low, high = similar.get_ylim()
        similar.set_ylim(max(low, -1.05), min(high, 1.05))  # intervals may exceed the range of a similarity
        for offset, (channel, (shade, marker)) in zip((-0.1, 0.1, 0.0), ATTACKS.items(), strict=True):
            strongest = [(x, finding.strongest.get(channel)) for x, finding in enumerate(group)]
            values = [(x + offset, leak.auc_estimate) for x, leak in strongest if leak]
            errorbars(leakage, values, shade, marker, f"attack on {CHANNELS[channel]}")
        leakage.axhline(0.5, **GUESSING)
        name_places(leakage, [tick(finding, group) for finding in group])
        accuracy.set_title(group[0].setting.place)
        if headline := interpretation.headline:
            label = f"{measure_label(headline)}\nwith no DP"
            label_lines([similar], label)
            if column and headline != groups[column - 1][1].headline:
                similar.set_ylabel(label)
    label_lines(rows[0], "test accuracy")
    label_lines(rows[2], "AUC of attacks")
    shared_legend(figure, rows)
    return figure


def _similarity(
    axes: Axes, group: list[Finding], interpretation: Interpretation, looks: Mapping[Explained, Series]
) -> None:
    """Draw the similarity to the reference's models, and that between two reference models as hollow markers and lines."""
    base = reference(group)
    drawn = interpretation.drawn
    known = [(x, finding, similarity(finding, base, interpretation)) for x, finding in enumerate(group)]
    for slot, one in enumerate(drawn):
        offset = (slot - (len(drawn) - 1) / 2) * 0.7 / max(len(drawn), 1)
        colour, marker = looks[one].colour, looks[one].marker
        placed = [(x + offset, values[one], finding is base) for x, finding, values in known if one in values]
        errorbars(axes, [(x, value) for x, value, is_level in placed if not is_level], colour, marker, one.label)
        level = [(x, value) for x, value, is_level in placed if is_level]
        errorbars(axes, level, colour, marker, f"_{one.label}", markerfacecolor="white")
        for _, value in level:
            axes.axhline(value.mean, color=colour, linewidth=0.6, alpha=0.5, linestyle=(0, (1, 2)), zorder=1)
    axes.plot([], [], "o", color="0.4", markerfacecolor="white", markersize=3.4, label="hollow: two models with no DP")


@figure(
    "curves",
    once_for("curves", lambda spec: spec.measured_groups if spec.curves else []),
    "Probability of the class when the most important pixels or columns are removed (deletion) or inserted (insertion) first. "
    "Bands: intervals over models.",
)
def curves(results: Results, findings: Findings, place: tuple[str, str]) -> Figure | str:
    """Draw a panel per explainer and measure, a line per setting, with intervals over shadow models as bands."""
    group = findings.groups().get(place, [])
    known = list(curves_of(results, group, results.spec.confidence)) if group else []
    if not known:
        return "No setting whose explanations would be shown here was trained to the end."
    explained = list({curve.explained.explainer: curve.explained for curve in reversed(known)}.values())[::-1]
    measures = list(dict.fromkeys(curve.measure for curve in known))
    figure, panels = panel_grid(len(measures), len(explained), height=1.6)
    for row, measure in enumerate(measures):
        for column, one in enumerate(explained):
            axes = panels[row][column]
            for curve in known:
                if (curve.measure, curve.explained) == (measure, one):
                    order = group.index(curve.finding)
                    colour, dash = PALETTE[order % len(PALETTE)], DASHES[order % len(DASHES)]
                    name = titled(curve.finding.setting)
                    means = [height.mean for height in curve.heights]
                    axes.plot(curve.shares, means, color=colour, dashes=dash or (None, None), label=name)
                    low, high = ([getattr(height, end) for height in curve.heights] for end in ("low", "high"))
                    axes.fill_between(curve.shares, low, high, color=colour, alpha=0.2, linewidth=0)
            axes.set(xlim=(0, 1), ylim=(0, 1))
            if row == 0:
                axes.set_title(one.label)
            if row == len(measures) - 1:
                axes.set_xlabel("share of pixels or columns")
        label_lines(panels[row], f"{measure}\nprobability")
    shared_legend(figure, panels)
    return figure
