"""The attacks to draw: the strongest on the outputs, the baseline without shadow models, and the strongest on each explainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.report.data.findings import Finding, Leak
from mia_audit.signals.name import read_signal

if TYPE_CHECKING:
    from mia_audit.evaluation.files import Scored
    from mia_audit.report.data.results import Results

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#C0689A", "#927600", "#5B5FC7")
"""Colours after Okabe and Ito: distinct for any colour vision, with a contrast of at least 3:1 on a white and on a dark page."""
DASHES: tuple[tuple[float, ...], ...] = ((), (), (4, 1.5), (1.5, 1.2), (5, 1.5, 1, 1.5), (8, 2))
CHANNELS = {
    "outputs": "outputs",
    "explanations": "explanations",
    "both": "outputs and explanations",
    "other": "signals",
}
"""Names of the lines of a figure over channels."""
MARKERS = "os^DvP"
LOOKS = tuple(zip(PALETTE, DASHES, MARKERS, strict=True))
BASELINE = "#7A7A7A"
THRESHOLD = "outputs by threshold"
"""The baseline without shadow models."""
POINTS = 285
"""Number of FPRs at which a curve is computed."""
MOST = len(PALETTE)


@dataclass(frozen=True)
class Series:
    """One line of a chart, with the same name, colour, dash and marker in every figure and on the page."""

    name: str
    colour: str
    dash: tuple[float, ...]
    marker: str = "o"


def series_of(leak: Leak) -> str:
    """Name the series that an attack belongs to."""
    signal = read_signal(leak.signal)
    if signal.explainer is not None:
        return signal.explainer_label
    if signal.channel == "outputs":
        return THRESHOLD if leak.attack == "threshold" else "outputs"
    return "outputs and explanations" if signal.channel == "both" else signal.label


def strongest(finding: Finding) -> dict[str, Leak]:
    """Return the strongest attack of every series in one setting."""
    chosen: dict[str, Leak] = {}
    for listed in finding.leaks.values():
        for leak in listed:
            chosen.setdefault(series_of(leak), leak)
    return chosen


def series(group: Sequence[Finding], everyone: Sequence[Finding] = ()) -> list[Series]:
    """List the series to draw for a group of settings: outputs, then the others by decreasing AUC, at most as many as colours.

    Colours, dashes and markers are assigned over `everyone`, all settings of the audit, or over the group if that is left out.
    """
    drawn = _ranked(group)[:MOST]
    looks = dict(zip(_ranked(everyone or group)[:MOST], LOOKS, strict=False))
    spare = [look for look in LOOKS if look not in [looks.get(name) for name in drawn]]
    chosen = [Series(name, *(looks.get(name) or spare.pop(0))) for name in drawn]
    if any(THRESHOLD in strongest(finding) for finding in group):
        chosen.append(Series(THRESHOLD, BASELINE, (1, 1), "X"))
    return chosen


def _ranked(group: Sequence[Finding]) -> list[str]:
    """Name the series of a group: outputs, then the others by decreasing AUC."""
    best: dict[str, float] = {}
    for finding in group:
        for name, leak in strongest(finding).items():
            best[name] = max(best.get(name, 0.0), float(leak.auc.mean()))
    ranked = sorted((name for name in best if name not in ("outputs", THRESHOLD)), key=lambda name: -best[name])
    return [*(["outputs"] if "outputs" in best else []), *ranked]


@dataclass(frozen=True)
class Curve:
    """A log-log ROC curve: mean TPR over targets and its standard deviation at each FPR of a logarithmic grid."""

    series: Series
    leak: Leak
    fpr: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


def roc_curves(results: Results, finding: Finding, drawn: list[Series]) -> list[Curve]:
    """Compute the ROC curves of a setting from its scores, at `POINTS` FPRs up to 1."""
    chosen = strongest(finding)
    curves = []
    for one in drawn:
        if one.name not in chosen:
            continue
        leak = chosen[one.name]
        key = (finding.setting, leak.key)
        if key not in results.curves:
            results.curves[key] = _roc(results.scored(finding.setting, *leak.key, finding.aggregate))
        curves.append(Curve(one, leak, *results.curves[key]))
    return curves


def _roc(scored: Scored) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return FPRs, mean TPRs and their standard deviation over the targets that have scored members and non-members."""
    from mia_audit.evaluation.roc import log_grid, mean_log_roc

    known = ~np.isnan(scored.score)
    inside, outside = (known & scored.member).sum(axis=0), (known & ~scored.member).sum(axis=0)
    both = np.flatnonzero((inside > 0) & (outside > 0))
    grid = log_grid(int(outside[both].max()), POINTS)
    return grid, *mean_log_roc(((scored.score[:, target], scored.member[:, target]) for target in both), grid)
