"""Hold the settings of an audit to a policy: a function per criterion; a key that the policy leaves out is not checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import polars as pl

from mia_audit.attacks.persons import NONE, PERSON
from mia_audit.errors import UserError, suggest
from mia_audit.evaluation.files import Scored, read_scores
from mia_audit.evaluation.summary import of_drawn_unit, with_units
from mia_audit.pools.groups import read_groups
from mia_audit.report.data.canaries import canary_bound
from mia_audit.report.data.find import find
from mia_audit.report.data.findings import Finding, Findings, estimate
from mia_audit.report.data.provenance import guarantee
from mia_audit.report.data.results import Results
from mia_audit.report.gate import intervals, verdicts
from mia_audit.report.gate.policy import Limits, Policy
from mia_audit.report.gate.verdicts import Interval, Judged, Verdict
from mia_audit.report.text.formatting import significant
from mia_audit.storage import open_table, read_table

FEW = "one model has no interval over models"
NO_POOL = "the audit has no pool, whose columns make the groups"


@dataclass(frozen=True)
class Case:
    """One setting of an audit, and the policy for it."""

    policy: Policy
    results: Results
    finding: Finding
    drawn: pl.DataFrame
    """The metrics of the unit (records or persons) for which membership was drawn."""
    metrics: pl.DataFrame
    """The metrics of all units."""

    @property
    def setting(self) -> str:
        """The setting's name: its folder below the results."""
        return self.finding.setting.path

    @cached_property
    def scores(self) -> list[Scored]:
        """The scores of every attack on the true membership of the unit that membership was drawn for."""
        scored = [one for one in read_scores(self._scores_file) if not one.key[3]]
        persons = {one.aggregate for one in scored} - {NONE}
        return [one for one in scored if not persons or one.aggregate in persons]

    @cached_property
    def record_scores(self) -> list[Scored]:
        """The scores of every attack on the true membership of records."""
        return [one for one in read_scores(self._scores_file, aggregate=NONE) if not one.key[3]]

    @property
    def _scores_file(self) -> Path:
        return self.results.root / self.setting / "scores.parquet"

    def judged(self, criterion: str, verdict: Verdict, value: str, limit: str, note: str = "") -> Judged:
        """Return a criterion's verdict on this setting."""
        return Judged(criterion, self.setting, verdict, value, limit, note)

    def undecided(self, criterion: str, limit: str, note: str = "") -> Judged:
        """Return that a criterion cannot be judged, and why."""
        return self.judged(criterion, Verdict.CANNOT_TELL, "unknown", limit, note)

    def held_to(self, criterion: str, interval: Interval, limit: float, unknown: str) -> Judged:
        """Compare an interval with the largest allowed value; `unknown` is the note if there is no interval."""
        verdict = verdicts.at_most(interval, limit)
        note = interval.of if not math.isnan(interval.high) else unknown
        return self.judged(criterion, verdict, printed(interval), f"at most {limit:g}", note)


def printed(interval: Interval) -> str:
    """Return a value with its confidence limits."""
    if math.isnan(interval.value):
        return "unknown"
    ends = "" if math.isnan(interval.high) else f" [{interval.low:.3f}, {interval.high:.3f}]"
    return f"{interval.value:.3f}{ends}"


def leak(case: Case) -> Iterator[Judged]:
    """Judge AUC and TPRs of all attacks on the unit for which membership was drawn."""
    yield from _limits(case, case.policy, case.drawn, "")


def persons(case: Case) -> Iterator[Judged]:
    """Judge AUC and TPRs of attacks on persons."""
    limits = case.policy.persons
    if limits is None:
        return
    rows = with_units(case.metrics).filter(pl.col("unit") == PERSON)
    if len(rows):
        yield from _limits(case, limits, rows, " per person")
    else:
        yield case.undecided("leak per person", "", "the audit has no persons (datasets.NAME.person)")


def _limits(case: Case, limits: Limits, rows: pl.DataFrame, whose: str) -> Iterator[Judged]:
    confidence = case.policy.confidence
    if limits.auc is not None:
        interval = intervals.strongest(rows, "auc", confidence)
        yield case.held_to(f"AUC{whose}", interval, limits.auc, FEW)
    for fpr, limit in limits.tpr_at_fpr.items():
        column, name = f"tpr_at_fpr_{fpr:g}", f"TPR at an FPR of {fpr:g}{whose}"
        if column not in rows.columns:
            yield case.undecided(name, f"at most {limit:g}", f"not evaluated there; add {fpr:g} to evaluation.fprs")
            continue
        interval = intervals.strongest(rows, column, confidence)
        unknown = "too few non-members for that FPR" if math.isnan(interval.value) else FEW
        yield case.held_to(name, interval, limit, unknown)


def groups(case: Case) -> Iterator[Judged]:
    """Judge AUC and TPRs of all attacks on records in every group of records."""
    limits = case.policy.groups
    if limits is None:
        return
    pool = case.results.root / "pools" / case.finding.setting.pool
    by = " and ".join(limits.columns)
    asked: list[tuple[str, float | None, float]] = []
    asked += [(f"AUC per {by}", None, limits.auc)] if limits.auc is not None else []
    asked += [(f"TPR at an FPR of {fpr:g} per {by}", fpr, limit) for fpr, limit in limits.tpr_at_fpr.items()]
    columns = _columns(pool)
    if absent := [name for name in limits.columns if name not in columns]:
        note = f"the pool has no groups by '{absent[0]}'; it has {', '.join(columns)}" if columns else NO_POOL
        yield from (case.undecided(name, f"at most {limit:g}", note) for name, _, limit in asked)
        return
    records = case.record_scores[0].record
    masks = intervals.groups_of({name: columns[name]()[records] for name in limits.columns})
    for name, fpr, limit in asked:
        interval = intervals.worst_group(case.record_scores, masks, fpr, case.policy.confidence)
        unknown = (
            f"{interval.of}: too few non-members for that FPR"
            if interval.of
            else f"no group of {intervals.FEWEST_RECORDS} records"
        )
        yield case.held_to(name, interval, limit, unknown)


def _columns(pool: Path) -> dict[str, Callable[[], np.ndarray]]:
    """Return the columns by which a pool's records can be grouped: the data set's `groups`, and those of its table of records."""
    columns: dict[str, Callable[[], np.ndarray]] = {}
    if (path := pool / "records.parquet").exists():
        columns = {name: partial(_column, path, name) for name in open_table(path, "records").schema_arrow.names}
    if (path := pool / "groups.parquet").exists():
        columns |= {one.name: partial(np.take, one.labels, one.of) for one in read_groups(path)}
    return columns


def _column(path: Path, name: str) -> np.ndarray:
    values: np.ndarray = read_table(path, "records", [name])[name].to_numpy()
    return values


def most_exposed(case: Case) -> Iterator[Judged]:
    """Judge how often the most exposed record (person) is recognised."""
    limit = case.policy.most_exposed
    if limit is None:
        return
    interval = intervals.most_exposed(case.scores, limit.fpr, case.policy.confidence)
    yield case.held_to(f"most exposed at an FPR of {limit.fpr:g}", interval, limit.at_most, "no record has a score")


def epsilon(case: Case) -> Iterator[Judged]:
    """Judge the lower bound on ε, at the confidence level of the audit's report, against the claimed ε."""
    if not case.policy.epsilon_below_claim:
        return
    setting, bound = case.finding.setting, case.finding.bound
    if not setting.private:
        yield case.judged("lower bound on ε", Verdict.PASS, _bound(case), "none claimed", "no guarantee to refute")
        return
    if bound is None:
        yield case.undecided("lower bound on ε", f"at most {setting.epsilon}")
        return
    claimed = min(float(setting.epsilon), guarantee(case.finding).get("epsilon_spent", math.inf))
    verdict = Verdict.FAIL if bound.epsilon > claimed else Verdict.PASS
    yield case.judged("lower bound on ε", verdict, _bound(case), f"at most {significant(claimed)}", bound.method)


def canaries(case: Case) -> Iterator[Judged]:
    """Judge the bound from canaries in one training of the setting, if the audit has one, against the claimed ε."""
    setting = case.finding.setting
    bound = canary_bound(case.results.root / setting.path) if case.policy.epsilon_below_claim else None
    if bound is None or not setting.private:
        return
    verdict = Verdict.FAIL if bound.epsilon > float(setting.epsilon) else Verdict.PASS
    value = f"{bound.epsilon:.3f} at δ = {bound.delta:g}"
    note = f"{bound.canaries} canaries in one training, at a confidence of {bound.confidence:g}"
    limit = f"at most {significant(float(setting.epsilon))}"
    yield case.judged("lower bound on ε from canaries", verdict, value, limit, note)


def _bound(case: Case) -> str:
    bound = case.finding.bound
    return f"{bound.epsilon:.3f} at δ = {bound.delta:g}" if bound else "unknown"


def null_control(case: Case) -> Iterator[Judged]:
    """Judge whether the attacks find nothing in a permuted membership."""
    if not case.policy.null_control:
        return
    null = case.finding.null
    if null is None or not null.headline or any(math.isnan(one.low) for one in null.headline.values()):
        yield case.undecided(
            "null control", "contains 0.5", "the audit has no null control with an interval over models"
        )
        return
    means = "; ".join(printed(Interval(one.mean, one.low, one.high)) for one in null.headline.values())
    yield case.judged("null control", Verdict.PASS if null.sound else Verdict.FAIL, means, "contains 0.5")


def models(case: Case) -> Iterator[Judged]:
    """Judge how many models were attacked."""
    fewest = case.policy.models
    if fewest is None:
        return
    count = case.drawn.filter(~pl.col("null_control") & pl.col("auc").is_not_null())["target"].n_unique()
    verdict = Verdict.PASS if count >= fewest else Verdict.FAIL
    yield case.judged("models attacked", verdict, str(count), f"at least {fewest}")


def accuracy(case: Case) -> Iterator[Judged]:
    """Judge the mean test accuracy over models."""
    least = case.policy.accuracy
    if least is None:
        return
    shadows = case.finding.shadows
    values = [] if shadows is None else shadows["test_accuracy"].drop_nulls().to_list()
    if not values:
        yield case.undecided("test accuracy", f"at least {least:g}", "the models were not trained here")
        return
    known = estimate(values, case.policy.confidence).as_rate()
    interval = Interval(known.mean, known.low, known.high)
    verdict, note = verdicts.at_least(interval, least), FEW if math.isnan(interval.low) else ""
    yield case.judged("test accuracy", verdict, printed(interval), f"at least {least:g}", note)


CRITERIA: tuple[Callable[[Case], Iterator[Judged]], ...] = (
    *(leak, persons, groups, most_exposed),
    *(epsilon, canaries, null_control, models, accuracy),
)
"""All criteria, in the order of output."""


def judge(results: Results, policy: Policy, findings: Findings | None = None) -> list[Judged]:
    """Return a verdict per criterion and setting, setting by setting; `findings` are used if they have the policy's level.

    All criteria are undecided for a setting of which too many models diverged. Raises UserError for a setting that the
    audit does not have.
    """
    lost = {gap.setting.path: gap for gap in results.spec.gaps if not gap.attacked}
    known = [*(setting.path for setting in results.spec.settings), *lost]
    for name in policy.settings:
        if name not in known:
            raise UserError(f"policy: settings: '{name}' is not a setting of this audit: {suggest(name, known)}")
    chosen = policy.settings or tuple(known)
    if findings is None or findings.confidence != policy.confidence:
        results = Results(results.root, replace(results.spec, confidence=policy.confidence))
        findings = find(results)
    judged = []
    for finding, metrics in zip(findings.settings, results.metrics, strict=True):
        if finding.setting.path in chosen:
            case = Case(policy, results, finding, of_drawn_unit(metrics), metrics)
            judged += [one for criterion in CRITERIA for one in criterion(case)]
    note = "too many of its models diverged for an attack"
    undecided = (
        Judged("all criteria", name, Verdict.CANNOT_TELL, "unknown", "", note) for name in chosen if name in lost
    )
    return [*judged, *undecided]


def judge_digests(complaints: Iterator[str]) -> Judged:
    """Return the verdict on the files of an audit, given a line for every file that differs from its digest."""
    differences = list(complaints)
    value = f"{len(differences)} differ" if differences else "all as written"
    verdict = Verdict.FAIL if differences else Verdict.PASS
    return Judged("digests", "", verdict, value, "none differs", differences[0] if differences else "")
