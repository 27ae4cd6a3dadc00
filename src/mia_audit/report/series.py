"""The few attacks that are drawn: the strongest on the outputs, its baseline without shadow models, the strongest per explainer."""

from dataclasses import dataclass

import numpy as np

from mia_audit.evaluation.files import Scored
from mia_audit.evaluation.roc import log_grid, mean_log_roc
from mia_audit.report.findings import Finding, Leak
from mia_audit.report.results import Results
from mia_audit.report.signals import read_signal

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#C0689A", "#927600", "#5B5FC7")
"""After Okabe and Ito: told apart with any colour vision, and at least 3:1 against both white and a dark page."""
DASHES: tuple[tuple[float, ...], ...] = ((), (), (4, 1.5), (1.5, 1.2), (5, 1.5, 1, 1.5), (8, 2))
CHANNELS = {
    "outputs": "outputs",
    "explanations": "explanations",
    "both": "outputs and explanations",
    "other": "signals",
}
"""What the lines over channels are called."""
BASELINE = "#7A7A7A"
POINTS = 285
"""FPRs at which a curve is read."""
MOST = len(PALETTE)


@dataclass(frozen=True)
class Series:
    """One line of a chart: its name and colour are the same in every setting of a group."""

    name: str
    colour: str
    dash: tuple[float, ...]


def series_of(leak: Leak) -> str:
    """Name the series that an attack belongs to."""
    signal = read_signal(leak.signal)
    if signal.explainer is not None:
        return signal.explainer_label
    if signal.channel == "outputs":
        return "outputs by threshold" if leak.attack == "threshold" else "outputs"
    return "outputs and explanations" if signal.channel == "both" else signal.label


def strongest(found: Finding) -> dict[str, Leak]:
    """Return the strongest attack of every series in one setting."""
    chosen: dict[str, Leak] = {}
    for listed in found.leaks.values():
        for leak in listed:
            chosen.setdefault(series_of(leak), leak)
    return chosen


def series(group: list[Finding]) -> list[Series]:
    """List the series that are drawn for a group of settings: outputs first, then as many as there are colours, strongest first."""
    best: dict[str, float] = {}
    for found in group:
        for name, leak in strongest(found).items():
            best[name] = max(best.get(name, 0.0), float(leak.auc.mean()))
    baseline = "outputs by threshold"
    ranked = sorted((name for name in best if name not in ("outputs", baseline)), key=lambda name: -best[name])
    names = [*(["outputs"] if "outputs" in best else []), *ranked][:MOST]
    drawn = [Series(*parts) for parts in zip(names, PALETTE, DASHES, strict=False)]
    return [*drawn, *([Series(baseline, BASELINE, (1, 1))] if baseline in best else [])]


@dataclass(frozen=True)
class Curve:
    """A log-log ROC curve: mean TPR over targets and its standard deviation at each FPR of a logarithmic grid."""

    series: Series
    leak: Leak
    fpr: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


def curves(results: Results, found: Finding, drawn: list[Series], every: int = 1) -> list[Curve]:
    """Read the curves of a setting off its scores, from FPR 1/(largest number of non-members) to 1, at every so many of `POINTS`."""
    chosen = strongest(found)
    made = []
    for one in drawn:
        if one.name not in chosen:
            continue
        leak = chosen[one.name]
        key = (found.setting, leak.key)
        if key not in results.curves:  # the page shows what the figures do
            results.curves[key] = _read_curve(results.scored(found.setting, *leak.key))
        made.append(Curve(one, leak, *(values[::every] for values in results.curves[key])))
    return made


def _read_curve(scored: Scored) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return FPRs, mean TPRs and their standard deviation over the targets that have scored members and non-members."""
    known = ~np.isnan(scored.score)
    inside, outside = (known & scored.member).sum(axis=0), (known & ~scored.member).sum(axis=0)
    both = np.flatnonzero((inside > 0) & (outside > 0))
    grid = log_grid(int(outside[both].max()), POINTS)
    return grid, *mean_log_roc(((scored.score[:, target], scored.member[:, target]) for target in both), grid)
