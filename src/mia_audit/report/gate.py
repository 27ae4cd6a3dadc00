"""Hold the settings of an audit to a policy: a function per criterion; a key that the policy leaves out is not checked.

Verdicts compare an interval with a limit. They are written as lines, JSON, JUnit's XML, and a table of the report.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl

from mia_audit.attacks.design import PERSON, RECORDS
from mia_audit.errors import UserError, suggest
from mia_audit.evaluation.files import Scored, of_drawn_unit, read_scores, with_units
from mia_audit.evaluation.intervals import OverTargets
from mia_audit.evaluation.metrics import clopper_pearson, metrics_of_columns
from mia_audit.evaluation.selection import after_selection
from mia_audit.pools.groups import read_groups
from mia_audit.report.findings import Finding, Findings, estimate
from mia_audit.report.formatting import capital, count, significant
from mia_audit.report.opened import find
from mia_audit.report.results import CANARIES, Results
from mia_audit.report.spec import Limits, Policy
from mia_audit.report.tables.catalogue import Cell, Column, Layout, text
from mia_audit.sanitise import visible
from mia_audit.signals.name import read_signal
from mia_audit.storage import open_table, read_table

METHOD = "one-run-f-dp"
"""The method of the quoted bound: it assumes only fair coins, and one bound alone holds at its confidence."""


@dataclass(frozen=True)
class CanaryBound:
    """A lower bound on ε at δ, at a confidence, the ε that the training on canaries spent, and the number of canaries."""

    epsilon: float
    delta: float
    confidence: float
    spent: float
    canaries: int


def canary_bound(results: Results, setting: str) -> CanaryBound | None:
    """Return the bound of a setting; None if no canaries were asked for.

    UserError for a file that is missing, damaged, or of an earlier training, which the audit's report does not know.
    """
    path, known = results.root / setting / CANARIES, setting in results.spec.canaries
    if path.exists() != known:
        raise UserError(
            f"{path}: missing, but canaries.settings names its setting: run the audit to its end"
            if known
            else f"{path}: of an earlier audit, because this one has no canaries of its setting: delete the file"
        )
    if not known:
        return None
    try:
        with path.open(encoding="utf-8", newline="") as file:
            (row,) = [row for row in csv.DictReader(file) if row.get("method") == METHOD]
        numbers = {name: float(row[name]) for name in ("epsilon", "delta", "confidence")}
        return CanaryBound(**numbers, spent=float(row["epsilon_spent"]), canaries=int(row["canaries"]))
    except (OSError, KeyError, TypeError, ValueError):
        raise UserError(f"{path}: damaged; expected what mia-audit canary-bounds writes") from None


class Verdict(StrEnum):
    """The outcome of a criterion."""

    PASS = "pass"
    FAIL = "fail"
    CANNOT_TELL = "cannot tell"


EXIT_CODES = {Verdict.PASS: 0, Verdict.FAIL: 3, Verdict.CANNOT_TELL: 4}


@dataclass(frozen=True)
class Interval:
    """A value, the limits of its confidence interval (NaN if it has none), and what the value is of."""

    value: float
    low: float
    high: float
    of: str = ""


@dataclass(frozen=True)
class Judged:
    """One criterion on one setting (an empty name: on the whole audit): the measured value, the limit, and the verdict."""

    criterion: str
    setting: str
    verdict: Verdict
    value: str
    limit: str
    note: str = ""

    @property
    def name(self) -> str:
        """The criterion, with its setting if it has one."""
        return f"{self.criterion} of {self.setting}" if self.setting else self.criterion


def at_most(interval: Interval, limit: float) -> Verdict:
    """Pass if the upper confidence limit is within the limit, fail if the lower one is beyond it."""
    if math.isnan(interval.low) or math.isnan(interval.high):
        return Verdict.CANNOT_TELL
    return Verdict.PASS if interval.high <= limit else Verdict.FAIL if interval.low > limit else Verdict.CANNOT_TELL


def at_least(interval: Interval, limit: float) -> Verdict:
    """Pass if the lower confidence limit is within the limit, fail if the upper one is beyond it."""
    return at_most(Interval(-interval.value, -interval.high, -interval.low), -limit)


def overall(judged: Iterable[Judged]) -> Verdict:
    """Return the verdict of all criteria together: one failure fails all, an undecided criterion leaves it open."""
    verdicts = {one.verdict for one in judged}
    return next((one for one in (Verdict.FAIL, Verdict.CANNOT_TELL) if one in verdicts), Verdict.PASS)


FEWEST_RECORDS = 30
"""Smallest number of records in a group that is evaluated."""
UNKNOWN = Interval(math.nan, math.nan, math.nan)


def strongest(metrics: pl.DataFrame, column: str, confidence: float) -> Interval:
    """Return the interval of the largest mean of a metric over all attacks of a metrics table, null controls left out.

    NaN, with the name of an attack that is `unmeasured`, if there is one, or if some attack's metric is unknown.
    """
    if (lacking := unmeasured(metrics)).height:
        return replace(UNKNOWN, of=_attack(lacking.row(0)))
    real = with_units(metrics).filter(~pl.col("null_control") & pl.col("auc").is_not_null())
    if real[column].null_count():
        return UNKNOWN
    attacks = real.group_by("attack", "signal", "likelihood", "aggregate", maintain_order=True)
    measured = [(_attack(key), OverTargets.from_metrics(rows, column, confidence)) for key, rows in attacks]
    return largest(measured, confidence, column.startswith("tpr"))


def unmeasured(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return attack and signal of the runs that have no AUC on a model on which another one has; null controls left out."""
    real = with_units(metrics).filter(~pl.col("null_control"))
    attacked = pl.col("target").is_in(real.filter(pl.col("auc").is_not_null())["target"].unique().to_list())
    return real.filter(attacked & pl.col("auc").is_null()).select("attack", "signal").unique(maintain_order=True)


def largest(measured: Sequence[tuple[str, OverTargets]], confidence: float, rate: bool) -> Interval:
    """Return the interval of the largest of several means over targets, each with its name.

    Estimate and lower limit are those of the largest after its selection. The upper limit is the largest of all: it is
    too small only if that of the truly largest mean is. The interval of a rate is at least as wide as if all targets'
    members were independent trials (Clopper and Pearson 1934); an interval over targets alone would have width 0 for a
    rate that is 0 for all of them. NaN if there is no mean.
    """
    if not measured:
        return UNKNOWN
    of, chief = max(measured, key=lambda one: one[1].mean)
    found = after_selection([over for _, over in measured], confidence)
    low, highs = found.low, [over.interval(confidence)[1] for _, over in measured]
    if rate and not math.isnan(chief.members):
        low = min(low, _binomial(chief, 1 - (1 - confidence) / len(measured))[0])
        highs = [max(high, _binomial(over, confidence)[1]) for high, (_, over) in zip(highs, measured, strict=True)]
    return Interval(_cut(found.mean), _cut(low), _cut(float(np.max(highs))), of)


def _binomial(over: OverTargets, confidence: float) -> tuple[float, float]:
    """Return the interval of a rate if all targets' members are independent trials."""
    trials = round(over.members * over.count)
    return clopper_pearson(round(over.mean * trials), trials, confidence)


def _cut(end: float) -> float:
    return math.nan if math.isnan(end) else min(max(end, 0.0), 1.0)


def worst_group(scores: Sequence[Scored], groups: dict[str, np.ndarray], column: str, confidence: float) -> Interval:
    """Return the interval of the largest AUC (`auc`), or TPR at an FPR (`tpr_at_fpr_{x}`), of any attack in any group.

    `groups` are masks of records [N] by name. Records are ranked within their group. NaN if some group cannot resolve the
    FPR, or if there is no group.
    """
    fprs, measured = [float(column.removeprefix(RATE))] if column.startswith(RATE) else [], []
    for scored in scores:
        for name, inside in groups.items():
            member = scored.member[inside]
            values = metrics_of_columns(scored.score[inside], member, fprs)[column]
            if np.isnan(values).any():
                return Interval(math.nan, math.nan, math.nan, name)
            members = float(member.sum(axis=0).mean())
            over = OverTargets(values, None, members, len(member) - members)
            measured.append((f"{_attack(scored.key[:3])}, {name}", over))
    return largest(measured, confidence, bool(fprs))


def groups_of(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return masks of the records with each value of each column that at least `FEWEST_RECORDS` records have."""
    masks: dict[str, np.ndarray] = {}
    for name, values in columns.items():
        kinds, counts = np.unique(values, return_counts=True)
        masks |= {f"{name} {kind}": values == kind for kind in kinds[counts >= FEWEST_RECORDS]}
    return masks


def _attack(key: Sequence[object]) -> str:
    attack, signal = str(key[0]), str(key[1])
    return f"{attack} on {read_signal(signal).label}"


FEW = "one model has no interval over models"
FEW_OTHERS = "too few non-members for that FPR"
NO_AUC = "{} has no AUC on some models: add models, or leave it out of the audit"
RATE = "tpr_at_fpr_"
"""Start of the names of columns of TPRs."""
NO_HALVES = "estimates for single records need 8 models or more, and their signals"
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
    def record_scores(self) -> list[Scored]:
        """The scores of every attack on the true membership of records."""
        path = self.results.root / self.setting / "scores.parquet"
        return [one for one in read_scores(path, aggregate=RECORDS) if not one.key[3]]

    def judged(self, criterion: str, verdict: Verdict | bool, value: str, limit: str, note: str = "") -> Judged:
        """Return a criterion's verdict (true passes) on this setting; the only one of an audit of matrices has the audit's name."""
        if isinstance(verdict, bool):
            verdict = Verdict.PASS if verdict else Verdict.FAIL
        name = self.finding.setting.dataset if self.setting == "." else self.setting
        return Judged(criterion=criterion, setting=name, verdict=verdict, value=value, limit=limit, note=note)

    def undecided(self, criterion: str, limit: str, note: str = "") -> Judged:
        """Return that a criterion cannot be judged, and why."""
        return self.judged(criterion, Verdict.CANNOT_TELL, "unknown", limit, note)

    def held_to(self, criterion: str, interval: Interval, limit: float, unknown: str) -> Judged:
        """Compare an interval with the largest allowed value; `unknown` is the note if there is no interval."""
        verdict = at_most(interval, limit)
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
    for name, column, limit in limits.given:
        if column not in rows.columns:
            note = f"not evaluated there; add {column.removeprefix(RATE)} to evaluation.fprs"
            yield case.undecided(f"{name}{whose}", f"at most {limit:g}", note)
            continue
        interval = strongest(rows, column, case.policy.confidence)
        unknown = FEW_OTHERS if column.startswith(RATE) and math.isnan(interval.value) else FEW
        yield case.held_to(f"{name}{whose}", interval, limit, _why(interval, unknown))


def _why(interval: Interval, otherwise: str) -> str:
    """Say why the strongest attack has no interval."""
    return NO_AUC.format(interval.of) if interval.of and math.isnan(interval.value) else otherwise


def groups(case: Case) -> Iterator[Judged]:
    """Judge AUC and TPRs of all attacks on records in every group of records."""
    limits = case.policy.groups
    if limits is None:
        return
    pool = case.results.root / "pools" / case.finding.setting.pool
    by = " and ".join(limits.columns)
    columns = _columns(pool)
    if absent := [name for name in limits.columns if name not in columns]:
        note = f"the pool has no groups by '{absent[0]}'; it has {', '.join(columns)}" if columns else NO_POOL
        yield from (case.undecided(f"{name} per {by}", f"at most {limit:g}", note) for name, _, limit in limits.given)
        return
    records = case.record_scores[0].record
    masks = groups_of({name: columns[name]()[records] for name in limits.columns})
    for name, column, limit in limits.given:
        interval = worst_group(case.record_scores, masks, column, case.policy.confidence)
        unknown = f"{interval.of}: {FEW_OTHERS}" if interval.of else f"no group of {FEWEST_RECORDS} records"
        yield case.held_to(f"{name} per {by}", interval, limit, unknown)


def _columns(pool: Path) -> dict[str, Callable[[], np.ndarray]]:
    """Return the columns by which a pool's records can be grouped: the data set's `groups`, and those of its table of records."""
    columns: dict[str, Callable[[], np.ndarray]] = {}
    if (path := pool / "records.parquet").exists():
        names = open_table(path, "records").schema_arrow.names
        columns = {name: partial(_column, path, name) for name in names}
    if (path := pool / "groups.parquet").exists():
        columns |= {one.name: partial(np.take, one.labels, one.of) for one in read_groups(path)}
    return columns


def _column(path: Path, name: str) -> np.ndarray:
    values: np.ndarray = read_table(path, "records", [name])[name].to_numpy()
    return values


def judge_most_exposed(case: Case) -> Iterator[Judged]:
    """Judge how often the most exposed record (person) is recognised."""
    limit = case.policy.most_exposed
    if limit is None:
        return
    name = f"most exposed at an FPR of {limit.fpr:g}"
    halves = case.results.halves(case.finding.setting)
    found = case.results.estimated(case.finding.setting, limit.fpr)
    if halves is None or found is None:
        unresolved = f"not evaluated there, or too few non-members; add {limit.fpr:g} to evaluation.fprs"
        yield case.undecided(name, f"at most {limit.at_most:g}", unresolved if halves else NO_HALVES)
        return
    unit = "record" if halves.aggregate == RECORDS else "person"
    of = f"{_attack(halves.key)}, any {unit}; {int(found.models.max())} models in two halves"
    yield case.held_to(name, Interval(*found.largest, of), limit.at_most, "")


def epsilon(case: Case) -> Iterator[Judged]:
    """Judge the lower bound on ε, at the confidence level of the audit's report, against the claimed ε for its unit."""
    if not case.policy.epsilon_below_claim:
        return
    setting, bound = case.finding.setting, case.finding.bound
    value = f"{bound.epsilon:.3f} at δ = {bound.delta}"
    if not setting.private:
        yield case.judged("lower bound on ε", True, value, "none claimed", "no guarantee to refute")
        return
    promised = case.finding.promised
    limit = f"at most {significant(promised.epsilon)}"
    whose = f"; ε of a person with {count(promised.records, 'record')}" if promised.records > 1 else ""
    yield case.judged("lower bound on ε", bound.epsilon <= promised.epsilon, value, limit, f"{bound.method}{whose}")


def canaries(case: Case) -> Iterator[Judged]:
    """Judge the bound from canaries in one training of the setting, if the audit has one, against the ε of that training."""
    setting = case.finding.setting
    bound = canary_bound(case.results, setting.path) if case.policy.epsilon_below_claim else None
    if bound is None or not setting.private:
        return
    value = f"{bound.epsilon:.3f} at δ = {bound.delta}"
    note = f"{bound.canaries} canaries in one training, at a confidence of {bound.confidence:g}"
    limit = f"at most {significant(bound.spent)}"
    yield case.judged("lower bound on ε from canaries", bound.epsilon <= bound.spent, value, limit, note)


def measured(case: Case) -> Iterator[Judged]:
    """Judge whether the audit measured what the policy requires: attacks, signals, intervals, the unit, and canaries.

    An audit that lacks one of them gets the verdict "cannot tell".
    """
    policy, rows = case.policy, case.drawn.filter(~pl.col("null_control") & pl.col("auc").is_not_null())
    limited = policy.given or policy.groups or policy.persons or policy.most_exposed
    if limited and not (policy.attacks or policy.signals):
        note = "the policy limits what attacks find, whatever they read: add what they must have read, such as signals: [loss]"
        yield case.undecided("attacks or signals that were run", "named by the policy", note)
    without = unmeasured(case.drawn)
    for name, wanted, column in (("attacks", policy.attacks, "attack"), ("signals", policy.signals, "signal")):
        known, unknown = (
            {part for one in table[column].unique() for part in str(one).split("+")} for table in (rows, without)
        )
        if lacking := [one for one in wanted if one not in known - unknown]:
            note = f"not among them, or without an AUC on some models: {', '.join(lacking)}"
            yield case.undecided(f"{name} that were run", ", ".join(wanted), note)
        elif wanted:
            yield case.judged(f"{name} that were run", True, f"{len(known)}, with these", ", ".join(wanted))
    if policy.intervals:
        interval = strongest(case.drawn, "auc", policy.confidence)
        if math.isnan(interval.high):
            yield case.undecided("interval over models", "known", _why(interval, FEW))
        else:
            yield case.judged("interval over models", Verdict.PASS, printed(interval), "known")
    if policy.unit:
        unit = "person" if case.finding.by_person else "record"
        verdict = Verdict.PASS if unit == policy.unit else Verdict.CANNOT_TELL
        note = "" if unit == policy.unit else f"set datasets.NAME.unit: {policy.unit}"
        yield case.judged("unit of membership", verdict, unit, policy.unit, note)
    if policy.canaries:
        bound = canary_bound(case.results, case.setting)
        verdict = Verdict.PASS if bound and bound.canaries >= policy.canaries else Verdict.CANNOT_TELL
        note = "" if verdict == Verdict.PASS else f"set canaries.settings: [{case.setting}] and canaries.count"
        count_of = str(bound.canaries) if bound else "none"
        yield case.judged("canaries", verdict, count_of, f"at least {policy.canaries}", note)


def null_control(case: Case) -> Iterator[Judged]:
    """Judge whether the attacks find nothing in a permuted membership."""
    if not case.policy.null_control:
        return
    null = case.finding.null
    if null is None or not null.headline or any(math.isnan(one.low) for one in null.headline.values()):
        note = "the audit has no null control with an interval over models"
        yield case.undecided("null control", "contains 0.5", note)
        return
    means = "; ".join(printed(Interval(one.mean, one.low, one.high)) for one in null.headline.values())
    yield case.judged("null control", null.sound, means, "contains 0.5")


def models(case: Case) -> Iterator[Judged]:
    """Judge how many models were attacked."""
    fewest = case.policy.models
    if fewest is None:
        return
    count = case.drawn.filter(~pl.col("null_control") & pl.col("auc").is_not_null())["target"].n_unique()
    yield case.judged("models attacked", count >= fewest, str(count), f"at least {fewest}")


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
    verdict, note = at_least(interval, least), FEW if math.isnan(interval.low) else ""
    yield case.judged("test accuracy", verdict, printed(interval), f"at least {least:g}", note)


CRITERIA: tuple[Callable[[Case], Iterator[Judged]], ...] = (
    *(leak, persons, groups, judge_most_exposed),
    *(epsilon, canaries, measured, null_control, models, accuracy),
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
        results = Results(results.root, results.spec.model_copy(update={"confidence": policy.confidence}))
        findings = find(results)
    judged = []
    for finding, metrics in zip(findings.settings, results.metrics, strict=True):
        if finding.setting.path in chosen:
            case = Case(policy, results, finding, of_drawn_unit(metrics), metrics)
            judged += [one for criterion in CRITERIA for one in criterion(case)]
    note = "too many of its models diverged for an attack"
    unknown = partial(Judged, "all criteria", verdict=Verdict.CANNOT_TELL, value="unknown", limit="", note=note)
    return [*judged, *(unknown(setting=name) for name in chosen if name in lost)]


def judge_digests(complaints: Iterator[str]) -> Judged:
    """Return the verdict on the files of an audit, given a line for every file that differs from its digest."""
    differences = list(complaints)
    value = f"{len(differences)} differ" if differences else "all as written"
    verdict = Verdict.FAIL if differences else Verdict.PASS
    return Judged(
        criterion="digests",
        setting="",
        verdict=verdict,
        value=value,
        limit="none differs",
        note=differences[0] if differences else "",
    )


CONCLUSIONS = {
    Verdict.PASS: "The policy is met: {passed}.",
    Verdict.FAIL: "The policy is not met: {failed} ({passed}, {undecided}).",
    Verdict.CANNOT_TELL: "The audit cannot tell whether the policy is met: {undecided} ({passed}).",
}
SCOPE = "A verdict is about these attacks, limits and models; a stronger attack may find more."


def conclusion(judged: Sequence[Judged]) -> str:
    """Return the sentence with the joint outcome of all criteria."""
    numbers = Counter(one.verdict for one in judged)
    words = {"passed": Verdict.PASS, "failed": Verdict.FAIL, "undecided": Verdict.CANNOT_TELL}
    counted = {word: f"{count(numbers[verdict], 'criterion', 'criteria')} {word}" for word, verdict in words.items()}
    verdict = overall(judged)
    whole = CONCLUSIONS[verdict].format(**counted)
    if verdict == Verdict.PASS:
        return whole
    unmet = (f"{one.name} is {one.value}, expected {one.limit}" for one in judged if one.verdict == verdict)
    return f"{whole} {'; '.join(map(capital, unmet))}."


def lines(judged: Sequence[Judged]) -> Iterator[str]:
    """Yield a line per criterion with verdict, value, limit and remark, and the conclusion."""
    rows = [(one.verdict.value, one.name, one.value, one.limit) for one in judged]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, one in zip(rows, judged, strict=True):
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield visible(f"{cells}  {f'({one.note})' if one.note else ''}".rstrip())
    yield conclusion(judged)
    yield SCOPE


def as_json(judged: Sequence[Judged], **known: Any) -> dict[str, Any]:
    """Return the verdicts as JSON, together with the entries `known`."""
    names = ("criterion", "setting", "verdict", "value", "limit", "note")
    return {
        **known,
        "verdict": overall(judged).value,
        "conclusion": conclusion(judged),
        "criteria": [{name: str(getattr(one, name)) for name in names} for one in judged],
    }


def as_junit(judged: Sequence[Judged], suite: str) -> str:
    """Return the verdicts as JUnit's XML: one test per criterion; an undecided one is an error, not a failure."""
    numbers = Counter(one.verdict for one in judged)
    counts = {"tests": len(judged), "failures": numbers[Verdict.FAIL], "errors": numbers[Verdict.CANNOT_TELL]}
    attributes = {"name": visible(suite)} | {name: str(number) for name, number in counts.items()}
    root = ElementTree.Element("testsuite", attributes)
    elements = {Verdict.FAIL: "failure", Verdict.CANNOT_TELL: "error"}
    for one in judged:
        where = {"classname": visible(one.setting or suite), "name": visible(one.criterion)}
        case = ElementTree.SubElement(root, "testcase", where)
        said = visible(", ".join(filter(None, (one.value, one.limit, one.note))))
        if name := elements.get(one.verdict):
            ElementTree.SubElement(case, name, message=said)
        else:
            ElementTree.SubElement(case, "system-out").text = said
    ElementTree.indent(root)
    return f"{ElementTree.tostring(root, encoding='unicode', xml_declaration=True)}\n"


def layout(judged: Sequence[Judged]) -> Layout:
    """Return a table with a row per criterion."""
    columns = [*text("Criterion", "Setting"), Column("Value", number=False), *text("Limit", "Verdict")]
    rows = [
        [capital(one.criterion), one.setting or "all", Cell(one.value, (one.note,)), one.limit, one.verdict.value]
        for one in judged
    ]
    caption = "Values with their confidence intervals, over models where there are several."
    return Layout(columns, rows, caption, [SCOPE])
