"""What several tables, figures and sections show: lines of attacks, measures of explanations, and groups of records.

Imports nothing heavy, like `findings.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.explain.catalogue import explainer_label
from mia_audit.explanation_metrics import OTHER, REFERENCE, measures
from mia_audit.report.findings import (
    Estimate,
    Finding,
    Findings,
    Leak,
    accuracy_difference,
    chosen,
    difference,
    estimate,
    estimate_over,
)
from mia_audit.signals.name import in_words, read_signal

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.evaluation.files import Scored
    from mia_audit.evaluation.intervals import OverTargets
    from mia_audit.report.results import Results
    from mia_audit.report.spec import AuditedSetting

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
    rivals: dict[str, dict[tuple[str, str, str], Leak]] = {}
    for listed in finding.leaks.values():
        for leak in listed:
            rivals.setdefault(series_of(leak), {}).setdefault(leak.key, leak)
    return {name: chosen(list(attacks.values())) for name, attacks in rivals.items()}


def series(group: Sequence[Finding], everyone: Sequence[Finding] = ()) -> list[Series]:
    """List the series to draw for a group of settings: outputs, then the others by decreasing AUC, at most as many as colours.

    Colours, dashes and markers are assigned over `everyone`, all settings of the audit, or over the group if that is left out.
    """
    drawn = _ranked(group)[:MOST]
    looks = dict(zip(_ranked(everyone or group)[:MOST], LOOKS, strict=False))
    spare = [look for look in LOOKS if look not in [looks.get(name) for name in drawn]]
    shown = [Series(name, *(looks.get(name) or spare.pop(0))) for name in drawn]
    if any(THRESHOLD in strongest(finding) for finding in group):
        shown.append(Series(THRESHOLD, BASELINE, (1, 1), "X"))
    return shown


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
    best = strongest(finding)
    curves = []
    for one in drawn:
        if one.name not in best:
            continue
        leak = best[one.name]
        key = (finding.setting, leak.key)
        if key not in results.rocs:
            results.rocs[key] = _roc(results.scored(finding.setting, *leak.key, finding.aggregate))
        curves.append(Curve(one, leak, *results.rocs[key]))
    return curves


def _roc(scored: Scored) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return FPRs, mean TPRs and their standard deviation over the targets that have scored members and non-members."""
    from mia_audit.evaluation.metrics import log_grid, mean_log_roc

    known = ~np.isnan(scored.score)
    inside, outside = (known & scored.member).sum(axis=0), (known & ~scored.member).sum(axis=0)
    both = np.flatnonzero((inside > 0) & (outside > 0))
    grid = log_grid(int(outside[both].max()), POINTS)
    return grid, *mean_log_roc(((scored.score[:, target], scored.member[:, target]) for target in both), grid)


HEADLINES = ("ssim", "rank-correlation", "cosine", "top-overlap")
"""Measures of similarity, in order of preference: figures and page show the first one that was measured."""


@dataclass(frozen=True)
class Explained:
    """An explainer and the quantity explained."""

    explainer: str
    quantity: str

    @property
    def label(self) -> str:
        """The explainer's name in prose, with its quantity unless that is the logit."""
        return explainer_label(self.explainer) + in_words(self.quantity)


@dataclass(frozen=True)
class Interpretation:
    """Measures of the explanations of one architecture's settings, a row per model (`explanation_metrics.catalogue.per_model`)."""

    models: pl.DataFrame
    confidence: float

    @property
    def explained(self) -> list[Explained]:
        """List explainers and quantities in the order of the config."""
        return [
            Explained(*row) for row in self.models.select("explainer", "quantity").unique(maintain_order=True).rows()
        ]

    @property
    def drawn(self) -> list[Explained]:
        """List every explainer once, with the first quantity that it explains."""
        first: dict[str, Explained] = {}
        for one in self.explained:
            first.setdefault(one.explainer, one)
        return list(first.values())

    @property
    def measures(self) -> list[str]:
        """List the measures, those of similarity first."""
        names = self.models["measure"].unique(maintain_order=True).to_list()
        return sorted(names, key=lambda name: not measures[name].compares)

    @property
    def headline(self) -> str | None:
        """Return the measure of similarity that is shown; None where none was measured."""
        return next((name for name in HEADLINES if name in self.measures), None)

    def values(
        self, setting: AuditedSetting, one: Explained, measure: str, against: str | None = None, column: str = "value"
    ) -> dict[int, float]:
        """Return a measure by shadow model, without models for which it is undefined."""
        wanted = setting.within_group | {"explainer": one.explainer, "quantity": one.quantity, "measure": measure}
        rows = self.models.filter(**wanted)
        compared = rows["against"].is_null() if against is None else rows["against"] == against
        rows = rows.filter(compared).drop_nulls(column)
        return dict(zip(rows["shadow"].to_list(), rows[column].to_list(), strict=True))

    def estimate(
        self, setting: AuditedSetting, one: Explained, measure: str, against: str | None = None, column: str = "value"
    ) -> Estimate | None:
        """Estimate a measure over a setting's models; None where it was not measured."""
        values = self.values(setting, one, measure, against, column)
        return estimate(list(values.values()), self.confidence) if values else None

    def difference(
        self, first: AuditedSetting, second: AuditedSetting, one: Explained, measure: str
    ) -> Estimate | None:
        """Return the difference first − second in similarity to the reference over the shadow models of both."""
        left, right = (self.values(setting, one, measure, REFERENCE) for setting in (first, second))
        gaps = [left[shadow] - right[shadow] for shadow in left if shadow in right]
        return estimate(gaps, self.confidence) if gaps else None

    def shortfall(self, setting: AuditedSetting, bare: AuditedSetting, one: Explained, measure: str) -> Estimate | None:
        """Return by how much less similar a setting's explanations are to the reference's than those of two reference models are to each other.

        The estimate is over pairs of consecutive shadow models. The two reference models of a pair were trained on
        different records; a setting's model and the reference model with the same number, on the same records.
        """
        similar, level = self.values(setting, one, measure, REFERENCE), self.values(bare, one, measure, OTHER)
        pairs = [(shadow - 1, shadow) for shadow in level]
        gaps = [level[k] - (similar[j] + similar[k]) / 2 for j, k in pairs if j in similar and k in similar]
        return estimate(gaps, self.confidence) if gaps else None


def explainer_series(
    group: Sequence[Finding], everyone: Sequence[Finding], interpretation: Interpretation
) -> dict[Explained, Series]:
    """Return the explainers' colours, which are the same in the whole audit and for the attacks on these explainers."""
    known = {one.name: one for one in series(group, everyone)}
    drawn = interpretation.drawn
    taken = {known[one.label].colour for one in drawn if one.label in known}
    spare = [look for look in LOOKS if look[0] not in taken]
    new = {
        one: Series(one.label, *(spare.pop(0) if spare else (BASELINE, ()))) for one in drawn if one.label not in known
    }
    return {one: known.get(one.label) or new[one] for one in drawn}


def similarity(finding: Finding, base: Finding | None, interpretation: Interpretation) -> dict[Explained, Estimate]:
    """Return the similarity of a setting's explanations to the reference's, by explainer; for the reference, that between its models."""
    measure = interpretation.headline
    if measure is None or base is None:
        return {}
    against = OTHER if finding is base else REFERENCE
    values = {one: interpretation.estimate(finding.setting, one, measure, against) for one in interpretation.drawn}
    return {one: value for one, value in values.items() if value}


def measure_label(name: str) -> str:
    """Return a measure's name in prose."""
    return measures[name].label


def interpretations(results: Results) -> dict[tuple[str, str], Interpretation]:
    """Return the measures of every dataset × architecture that has any."""
    return {
        group: Interpretation(models, results.spec.confidence) for group, models in results.explanation_metrics.items()
    }


@dataclass(frozen=True)
class Peer:
    """A difference `first` − `second` between two mechanisms at the same ε, over the same shadow models."""

    first: Finding
    second: Finding
    metric: str
    gap: Estimate


def peers(group: Sequence[Finding], interpretation: Interpretation | None, confidence: float) -> Iterator[Peer]:
    """Compare mechanisms of a group at the same ε: accuracy, leakage and similarity of explanations."""
    for second, first in combinations([finding for finding in group if finding.setting.trained], 2):
        if first.setting.named != second.setting.named:
            continue
        accuracy = accuracy_difference(first, second, confidence)
        if accuracy is not None:
            yield Peer(first, second, "test_accuracy", accuracy)
        for channel, leak in first.strongest.items():
            if channel in second.strongest:
                yield Peer(first, second, f"auc of {channel}", difference(leak, second.strongest[channel]))
        if interpretation is None:
            continue
        for one in interpretation.explained:
            for measure in interpretation.measures:
                gap = interpretation.difference(first.setting, second.setting, one, measure)
                if gap is not None:
                    yield Peer(first, second, f"{measure} of {one.explainer} ({one.quantity})", gap)


@dataclass(frozen=True)
class ProbabilityCurve:
    """The probability of the class by the share of coordinates removed or inserted, estimated over one setting's shadow models."""

    finding: Finding
    explained: Explained
    measure: str
    shares: list[float]
    heights: list[Estimate]


def margin_of(metric: str, margins: Mapping[str, float]) -> float | None:
    """Return the margin of a peer's metric: the one of its kind in `report.margins`."""
    return margins.get(metric.partition(" of ")[0])


def curves_of(results: Results, group: Sequence[Finding], confidence: float) -> Iterator[ProbabilityCurve]:
    """Yield every deletion or insertion curve of a group's settings."""
    table = results.explanation_curves(group[0].setting.group)
    for finding in group:
        rows = table.filter(**finding.setting.within_group)
        for key, curve in rows.group_by("explainer", "quantity", "measure", maintain_order=True):
            explainer, quantity, measure = map(str, key)
            by_share = curve.group_by("share", maintain_order=True).agg("value").sort("share")
            heights = [estimate(values, confidence).as_rate() for values in by_share["value"].to_list()]
            yield ProbabilityCurve(
                finding, Explained(explainer, quantity), measure, by_share["share"].to_list(), heights
            )


GROUP_KEY = ("attack", "signal", "likelihood", "aggregate")
UNKNOWN = Estimate(math.nan, math.nan, math.nan, math.nan, 0)


@dataclass(frozen=True)
class Group:
    """The results of one attack on one group; the intervals of AUC and difference hold jointly for all groups of the setting (Bonferroni)."""

    column: str
    label: str
    units: int
    """Number of audited records, or persons, in the group."""
    auc: Estimate
    difference: Estimate | None
    """AUC of the group minus that of everybody else; None if nobody else is left for comparison."""
    p: float
    """p-value of no difference, two-sided and corrected for all groups of the setting by Holm's method; NaN where unknown."""
    own: Estimate
    """TPR at the group's own threshold; NaN where its non-members are too few for the FPR."""
    common: Estimate
    """TPR at the common threshold, at which the FPR over all records is `Groups.fpr`."""
    common_fpr: Estimate
    """The group's FPR at the common threshold."""
    train_accuracy: float
    test_accuracy: float


@dataclass(frozen=True)
class Groups:
    """All groups of a setting under one attack, and how many of every column were too small."""

    finding: Finding
    leak: Leak
    fpr: float | None
    """The smallest FPR that most groups of the audit resolve at their own thresholds; the headline's if there is none."""
    listed: Sequence[Group]
    small: Mapping[str, int]
    highest: Estimate | None
    """The largest of the groups' differences, after its selection among them; None if none is known."""


def groups_of(results: Results, findings: Findings) -> list[Groups]:
    """Return the groups of every setting that has any, under the strongest attack on each channel."""
    settings = [finding for finding in findings.settings if finding.setting.grouped]
    frames = {finding.setting.path: results.groups(finding.setting) for finding in settings}
    fpr = _resolved([frame for frame, _ in frames.values()], findings.fpr)
    return [
        grouped
        for finding in settings
        for leak in finding.strongest.values()
        if (grouped := _groups(*frames[finding.setting.path], finding, leak, fpr, findings.confidence)).listed
    ]


def _resolved(frames: Sequence[pl.DataFrame], headline: float | None) -> float | None:
    """Return the smallest FPR at which most groups have a TPR at their own threshold."""
    from mia_audit.report.findings import fpr_columns

    values: dict[float, list[pl.Series]] = {}
    for frame in frames:
        for fpr, name in fpr_columns(frame).items():
            values.setdefault(fpr, []).append(frame[name])
    unknown = {fpr: sum(one.null_count() for one in several) for fpr, several in values.items()}
    resolved = [fpr for fpr, several in values.items() if 2 * unknown[fpr] <= sum(map(len, several))]
    return min(resolved, default=headline)


def strongest_only(grouped: Sequence[Groups]) -> list[Groups]:
    """Return every setting's groups under its attack with the largest AUC."""
    best: dict[str, Groups] = {}
    for one in grouped:
        place = one.finding.setting.path
        if place not in best or one.leak.auc_estimate.mean > best[place].leak.auc_estimate.mean:
            best[place] = one
    return list(best.values())


def _groups(
    frame: pl.DataFrame,
    small: Mapping[str, Mapping[str, int]],
    finding: Finding,
    leak: Leak,
    fpr: float | None,
    level: float,
) -> Groups:
    from mia_audit.evaluation.groups import holm

    rows = frame.filter(**dict(zip(GROUP_KEY, (*leak.key, finding.aggregate), strict=True)))
    parts = [part for _, part in rows.group_by("column", "group", maintain_order=True)]
    differences = [_difference(part) for part in parts]
    p_values = [math.nan if one is None else one[1] for one in differences]
    count = max(1, len(parts))
    listed = [
        _group(part, None if one is None else one[0], float(p), fpr=fpr, level=level, count=count)
        for part, one, p in zip(parts, differences, holm(p_values), strict=True)
    ]
    overs = [one[0] for one in differences if one is not None]
    return Groups(
        finding=finding,
        leak=leak,
        fpr=fpr,
        listed=listed,
        small=small.get(finding.aggregate, {}),
        highest=_highest(overs, listed, level),
    )


def _highest(overs: Sequence[OverTargets], listed: Sequence[Group], level: float) -> Estimate | None:
    """Return the largest difference after its selection, or, of a single target, as it is listed; None if none is known."""
    from mia_audit.evaluation.selection import after_selection

    highest = max((one.difference for one in listed if one.difference), key=lambda gap: gap.mean, default=None)
    if highest is None or highest.targets < 2:
        return highest
    found = after_selection(overs, level)
    return replace(highest, mean=found.mean, low=found.low, high=found.high)


def _group(
    part: pl.DataFrame, difference: OverTargets | None, p: float, fpr: float | None, level: float, count: int
) -> Group:
    from mia_audit.evaluation.intervals import OverTargets

    first = part.row(0, named=True)

    def over(name: str, comparisons: int = 1) -> Estimate:
        if part[name].null_count():  # not resolvable for some target: the mean of the others would be biased
            return UNKNOWN
        return estimate_over(OverTargets.from_metrics(part, name, level), level, comparisons).as_rate()

    own, common, common_fpr = (
        UNKNOWN if fpr is None else over(f"{name}_at_fpr_{fpr:g}") for name in ("tpr", "common_tpr", "common_fpr")
    )
    inside, outside = (_mean(part, name) for name in ("train_accuracy", "test_accuracy"))
    gap = None if difference is None else _gap(difference, part, level, count)
    auc = over("auc", count)
    return Group(
        column=first["column"],
        label=first["group"],
        units=first["units"],
        auc=auc,
        difference=gap,
        p=p,
        own=own,
        common=common,
        common_fpr=common_fpr,
        train_accuracy=inside,
        test_accuracy=outside,
    )


def _difference(part: pl.DataFrame) -> tuple[OverTargets, float] | None:
    """Return a group's AUC minus that of everybody else, over targets, with the p-value of no difference; None if it is not known."""
    from mia_audit.evaluation.intervals import OverTargets

    known = part.filter(part["auc"].is_not_null() & part["rest_auc"].is_not_null())
    if not len(known):
        return None
    gap = OverTargets.from_metrics(known, "auc").minus(OverTargets.from_metrics(known, "rest_auc"))
    if gap.count > 1:
        return gap, gap.p_value()
    from scipy.special import ndtr

    error = _error(known)
    return gap, float(2 * ndtr(-abs(gap.mean) / error)) if error else math.nan


def _gap(difference: OverTargets, part: pl.DataFrame, level: float, count: int) -> Estimate:
    if difference.count > 1:
        return estimate_over(difference, level, count)
    from scipy.special import ndtri

    half = float(ndtri(1 - (1 - level) / count / 2)) * _error(part)
    return Estimate(difference.mean, math.nan, difference.mean - half, difference.mean + half, 1)


def _error(part: pl.DataFrame) -> float:
    """Return the standard error of a single target's difference of two AUCs, which are of different records (DeLong et al. 1988)."""
    names = ("auc_error", "rest_auc_error")
    if not set(names) <= set(part.columns):
        return math.nan
    return math.hypot(*(math.nan if part[name][0] is None else float(part[name][0]) for name in names))


def _mean(part: pl.DataFrame, name: str) -> float:
    values = part[name].drop_nulls().to_numpy() if name in part.columns else np.empty(0)
    return float(values.mean()) if len(values) else math.nan
