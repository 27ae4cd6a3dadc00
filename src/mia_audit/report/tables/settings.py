"""The table of settings: guarantees, lower bounds on ε, accuracies and the strongest attack on each channel.

The strongest attacks on persons and on their records, side by side.

Membership risk by group: the strongest attack on every group of records or persons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mia_audit.attacks.design import HEADLINE, RECORDS, unit_of
from mia_audit.report.data.findings import CHANNELS, Finding, Findings, Leak, chosen, shadow_estimate
from mia_audit.report.data.groups import Group, Groups, groups_of, strongest_only
from mia_audit.report.data.provenance import guarantee
from mia_audit.report.tables.catalogue import (
    ATTACK,
    SETTING,
    SETTING_COLUMNS,
    Cell,
    Column,
    Layout,
    estimate_cell,
    frame_of,
    identity,
    leak_cells,
    parts,
    parts_schema,
    rate_cell,
    setting_cells,
    table,
    text,
)
from mia_audit.report.text.answer import TITLES
from mia_audit.report.text.formatting import (
    at_least,
    at_most,
    capital,
    count,
    fixed,
    percent,
    percent_interval,
    power,
    protection,
    rate,
    significant,
    titled,
)
from mia_audit.report.text.statements import gap_sentence, missing_models, most_targets, setting_notes
from mia_audit.signals.name import read_signal

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.data.findings import Estimate
    from mia_audit.report.data.results import Results, Start
    from mia_audit.report.data.spec import Setting

PREFIXES = {"outputs": "output", "explanations": "explanation", "both": "joint", "other": "signal"}
"""Prefixes of the columns of a channel."""
TRAINED = ("train_accuracy", "test_accuracy", "train_loss", "test_loss")
PHASES = ("train", "test")
UNKNOWN = Cell("–")


def present_channels(group: Sequence[Finding]) -> list[str]:
    """List the channels that were attacked in some setting, outputs first."""
    return [channel for channel in CHANNELS if any(channel in finding.strongest for finding in group)]


def settings_layout(
    results: Results, findings: Findings, frame: pl.DataFrame | None = None, page: bool = False
) -> Layout:
    """Return a table with a row per setting and a note per guarantee; on the page it has one column for a setting's name."""
    present = present_channels(findings.settings)
    spent = any(one.setting.private or (one.setting.trained and one.shadows is not None) for one in findings.settings)
    phases = [phase for phase in PHASES if any(getattr(one, f"{phase}_accuracy") for one in findings.settings)]
    tpr = "TPR" if findings.fpr is None else f"TPR at {rate(findings.fpr)} FPR"
    columns = [
        *(text("Setting") if page else SETTING_COLUMNS),
        *([Column("ε spent")] if spent else []),
        Column("lower bound on ε"),
        *(Column(phase, "Accuracy") for phase in phases),
        *(Column(title, TITLES[channel]) for channel in present for title in ("AUC", tpr)),
    ]
    rows: list[list[Cell | str]] = []
    started: set[tuple[str, str]] = set()
    for finding in findings.settings:
        place = finding.setting.group
        if place in results.starts and place not in started:
            started.add(place)
            leaks = [UNKNOWN] * (2 * len(present))
            rows.append([*_start_names(finding, findings, page), *_start_cells(results.starts[place], phases), *leaks])
        cells = [*([_spent_cell(finding)] if spent else []), _bound_cell(finding)]
        cells += [_accuracy_cell(finding, phase, findings.confidence) for phase in phases]
        for channel in present:
            cells += leak_cells(finding.strongest.get(channel), findings.fpr)
        rows.append([*([setting_name(finding, findings)] if page else setting_cells(finding.setting)), *cells])
    lost = [gap.setting for gap in results.spec.gaps if not gap.attacked and not page]
    rows += [[*names, *[UNKNOWN] * (len(columns) - len(names))] for names in map(setting_cells, lost)]
    caption = f"Means over {count(most_targets(findings), 'model')}, with intervals; of each kind the strongest attack by its mean AUC."
    notes = setting_notes(findings)
    notes += list(dict.fromkeys(filter(None, (_chance_note(results, one.setting) for one in findings.settings))))
    notes += [] if page else [gap_sentence(gap) for gap in results.spec.gaps]
    return Layout(columns, rows, caption, notes)


@table("settings", settings_layout)
def settings(results: Results, findings: Findings) -> pl.DataFrame:
    """Return a row per setting, without columns that no setting has; settings that could not be attacked come last."""
    gaps = {gap.setting: missing_models(gap) for gap in results.spec.gaps}
    rows = [_row(finding, findings, results) | {"left_out": gaps.get(finding.setting)} for finding in findings.settings]
    lost = [gap.setting for gap in results.spec.gaps if not gap.attacked]
    rows += [identity(setting) | {"left_out": gaps[setting]} for setting in lost]
    groups = [row["dataset"] for row in rows], [row["architecture"] for row in rows]
    places = list(zip(*groups, strict=True))
    for place in sorted((one for one in results.starts if one in places), key=places.index, reverse=True):
        rows.insert(places.index(place), _start_row(place, results.starts[place]))
    schema = _schema()
    frame = frame_of(schema, [{name: row.get(name) for name in schema} for row in rows])
    absent = tuple(f"{prefix}_" for prefix in PREFIXES.values() if frame[f"{prefix}_attack"].is_null().all())
    unknown = ["no_guarantee"] if frame["no_guarantee"].is_null().all() else []
    return frame.drop(unknown, *(name for name in frame.columns if name.startswith(absent)))


def _schema() -> dict[str, type]:
    numbers = ("delta", "epsilon_spent", "epsilon_spent_rdp", "noise_multiplier", "sampling_rate")
    bounds = ("epsilon_lower_bound", "epsilon_lower_bound_delta")
    schema = SETTING | {"no_guarantee": str} | dict.fromkeys([*numbers, *bounds], float)
    schema |= dict.fromkeys(["epsilon_lower_bound_method", "accountant", "sampling", "clipping"], str)
    schema |= {"models": int} | parts_schema(*TRAINED) | {"left_out": str, "fpr": float}
    for prefix in PREFIXES.values():
        schema |= {f"{prefix}_{name}": str for name in ATTACK}
        schema |= {f"{prefix}_attacks_tried": int} | parts_schema(f"{prefix}_auc", f"{prefix}_tpr_at_fpr")
    return schema


def _row(finding: Finding, findings: Findings, results: Results) -> dict[str, Any]:
    setting, bound = finding.setting, finding.bound
    losses = {name: shadow_estimate(finding.shadows, name, findings.confidence) for name in ("train_loss", "test_loss")}
    estimates = {"train_accuracy": finding.train_accuracy, "test_accuracy": finding.test_accuracy, **losses}
    row: dict[str, Any] = {
        **identity(setting),
        "no_guarantee": setting.no_guarantee or None,
        "delta": setting.delta,
        "accountant": setting.accountant,
        "clipping": setting.clipping,
        "fpr": findings.fpr,
        **guarantee(finding),
    }
    for name, value in estimates.items():
        row |= parts(name, value)
    if bound:
        names = ("epsilon_lower_bound", "epsilon_lower_bound_delta", "epsilon_lower_bound_method")
        row |= dict(zip(names, (bound.epsilon, bound.delta, bound.method), strict=True))
    for channel, leak in finding.strongest.items():
        prefix = PREFIXES[channel]
        row |= {f"{prefix}_{name}": getattr(leak, name) for name in ATTACK}
        row |= {f"{prefix}_attacks_tried": leak.tried, **parts(f"{prefix}_auc", leak.auc_estimate)}
        row |= parts(f"{prefix}_tpr_at_fpr", leak.tpr_estimate)
    targets = max((len(leak.targets) for leak in finding.strongest.values()), default=None)
    return row | {"models": len(finding.shadows) if finding.shadows is not None else targets}


PUBLIC_START = "public start"


def _start_row(place: tuple[str, str], start: Start) -> dict[str, Any]:
    """Return the row of the public model from which the trainings of a group start; it spends no privacy of the audited records."""
    where = dict(zip(SETTING, (*place, PUBLIC_START, "0"), strict=True))
    return where | {"test_accuracy_mean": start.accuracy, "test_loss_mean": start.loss, "models": 1}


def _start_names(finding: Finding, findings: Findings, page: bool) -> list[Cell | str]:
    setting = finding.setting
    if not page:
        return [setting.dataset_name, setting.architecture_name, PUBLIC_START, "0"]
    return ["Public start" if len(findings.groups()) == 1 else f"{setting.place}: {PUBLIC_START}"]


def _start_cells(start: Start, phases: Sequence[str]) -> list[Cell]:
    """Return the cells of ε spent, the lower bound on ε, and the accuracies."""
    accuracies = {
        "train": Cell("–", (f"{start.public_records} public records",)),
        "test": Cell(percent(start.accuracy), (f"loss {fixed(start.loss)}",)),
    }
    return [Cell("0"), UNKNOWN, *(accuracies[phase] for phase in phases)]


def _chance_note(results: Results, setting: Setting) -> str:
    """State accuracy and loss of guessing on a data set used for training."""
    chance = results.guessing(setting)
    if chance is None:
        return ""
    return (
        f"On {setting.dataset_name}, the most frequent class alone has an accuracy of {percent(chance.accuracy)}, and answering the classes'"
        f" shares a loss of {fixed(chance.loss)}."
    )


def setting_name(finding: Finding, findings: Findings) -> str:
    """Return a setting's name among all settings, including its group only if there are several."""
    name = protection(finding.setting)
    return capital(name) if len(findings.groups()) == 1 else f"{finding.setting.place}: {name}"


def _spent_cell(finding: Finding) -> Cell:
    setting = finding.setting
    spent = guarantee(finding).get("epsilon_spent")
    delta = f"δ = {power(setting.delta)}" if setting.delta else ""
    if setting.explained and setting.private:
        spent, delta = float(setting.epsilon), f"each, {delta}"
    if setting.claimed:
        return Cell(f"{setting.epsilon} claimed", (delta,))
    if spent is not None and not setting.no_guarantee:
        return Cell(at_most(spent), (delta,))
    return Cell("none" if setting.no_guarantee else "∞", ("no guarantee",))


def _accuracy_cell(finding: Finding, phase: str, confidence: float) -> Cell:
    accuracy = finding.test_accuracy if phase == "test" else finding.train_accuracy
    if accuracy is None:
        return Cell("unknown")
    loss = shadow_estimate(finding.shadows, f"{phase}_loss", confidence)
    losses = [f"loss {fixed(loss.mean)}"] if loss else []
    return Cell(percent(accuracy.mean), (percent_interval(accuracy), *losses))


def _bound_cell(finding: Finding) -> Cell:
    bound = finding.bound
    return Cell(at_least(bound.epsilon), (f"δ = {power(bound.delta)}",)) if bound else UNKNOWN


WORDS = {RECORDS: "Records", "sum": "Persons, sum", "mean": "Persons, mean", "max": "Persons, largest"}
"""Headings of the aggregates."""


def by_aggregate(finding: Finding) -> dict[str, dict[str, list[Leak]]]:
    """Return a setting's attacks by aggregate, records first, then by channel."""
    leaks = {finding.aggregate: finding.leaks} | finding.others
    order = [RECORDS, HEADLINE, *(name for name in leaks if name not in (RECORDS, HEADLINE))]
    return {name: leaks[name] for name in order if name in leaks}


def persons_layout(group: Sequence[Finding], fpr: float | None) -> Layout:
    """Return a table with a row per setting and channel: AUC and TPR, on records and on persons, of the attack that is strongest on persons."""
    tpr = "TPR" if fpr is None else f"TPR at {rate(fpr)}"
    rows: list[list[Cell | str]] = []
    for finding in group:
        by_name = by_aggregate(finding)
        for channel, leak in _different(finding).items():
            same = {name: _same(leaks.get(channel, ()), leak) for name, leaks in by_name.items()}
            same[finding.aggregate] = leak
            cells = [cell for name in WORDS for cell in leak_cells(same.get(name), fpr)]
            described = f"{leak.attack} on {read_signal(leak.signal).label}"
            rows.append([titled(finding.setting), described, *cells])
    columns = [
        *text("Setting"),
        Column("Attack", number=False, wide=True),
        *(Column(title, group_name) for group_name in WORDS.values() for title in ("AUC", tpr)),
    ]
    caption = (
        "The attack that is strongest on persons: its results on single records and on persons, whose scores are the sum, the mean or the"
        " largest of their records' scores. Membership was drawn by person in all columns. Only the columns of the sum, by which it was"
        " chosen, allow for this choice."
    )
    return Layout(columns, rows, caption)


def _different(finding: Finding) -> dict[str, Leak]:
    """Return the strongest attack of every channel, omitting an attack that is already listed for another channel."""
    first = {leak.key: channel for channel, leak in reversed(finding.strongest.items())}
    return {channel: finding.strongest[channel] for channel in finding.strongest if channel in first.values()}


def _same(leaks: Sequence[Leak], wanted: Leak) -> Leak | None:
    return next((leak for leak in leaks if leak.key == wanted.key), None)


def _layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    return persons_layout([one for one in findings.settings if one.by_person], findings.fpr)


@table("persons", _layout, condition=lambda spec: any(one.by_person for one in spec.settings))
def persons(results: Results, findings: Findings) -> pl.DataFrame:
    """Return the strongest attack on every channel by each aggregate (`none` for records)."""
    rows: list[dict[str, Any]] = [
        {
            **identity(finding.setting),
            "unit": "record" if aggregate == RECORDS else "person",
            "aggregate": aggregate,
            "channel": channel,
            **dict(zip(ATTACK, leaks[0].key, strict=True)),
            "fpr": findings.fpr,
            **parts("auc", chosen(leaks).auc_estimate),
            **parts("tpr_at_fpr", chosen(leaks).tpr_estimate),
        }
        for finding in findings.settings
        if finding.by_person
        for aggregate, channels in by_aggregate(finding).items()
        for channel, leaks in channels.items()
    ]
    schema = SETTING | dict.fromkeys(("unit", "aggregate", "channel"), str) | ATTACK | {"fpr": float}
    return frame_of(schema | parts_schema("auc", "tpr_at_fpr"), rows)


SMALL_P = 1e-3
"""The value below which p-values are written with a power of ten."""


def groups_layout(grouped: Sequence[Groups], confidence: float, several: bool = False) -> Layout:
    """Return a table with a row per setting and group; with `several`, it names data set and architecture too."""
    fpr = grouped[0].fpr if grouped else None
    at = "" if fpr is None else f" at {rate(fpr)}"
    rows = [[_name(one, several), *_cells(group)] for one in grouped for group in one.listed]
    columns = [
        *text("Setting", "Column", "Group"),
        Column("Persons" if grouped and grouped[0].finding.by_person else "Records"),
        Column("AUC"),
        Column("Against all others"),
        Column("p"),
        Column("own", f"TPR{at}, threshold"),
        Column("common", f"TPR{at}, threshold"),
        Column("FPR, common"),
        Column("Test accuracy"),
    ]
    caption = (
        "The strongest attack on every setting, by group. Against all others: the group's AUC minus that of everybody else. Own"
        " threshold: set by the group's own non-members; common: set by all non-members, with the FPR that the group then"
        f" has. The {confidence * 100:g}\u00a0% intervals of AUC and difference hold for all groups of a setting together"
        " (Bonferroni); p is corrected for their number (Holm)."
    )
    return Layout(columns, rows, caption)


def _name(grouped: Groups, several: bool) -> str:
    setting = grouped.finding.setting
    place = f"{setting.place}: " if several else ""
    return f"{place}{titled(setting)}"


def _cells(group: Group) -> list[Cell | str]:
    return [
        group.column,
        group.label,
        str(group.units),
        estimate_cell(group.auc),
        estimate_cell(group.difference),
        _p(group.p),
        _rate(group.own, "not resolvable"),
        _rate(group.common, "–"),
        percent(group.common_fpr.mean),
        percent(group.test_accuracy),
    ]


def _p(value: float) -> str:
    if math.isnan(value):
        return "–"
    return significant(value, 2) if value >= SMALL_P else power(value) if value > 0 else "0"


def _rate(value: Estimate, missing: str) -> Cell:
    return Cell(missing) if math.isnan(value.mean) else rate_cell(value)


def _groups_layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    return groups_layout(strongest_only(groups_of(results, findings)), findings.confidence, several=True)


@table("groups", _groups_layout, condition=lambda spec: any(one.grouped for one in spec.settings))
def groups(results: Results, findings: Findings) -> pl.DataFrame:
    """Return the strongest attack on every channel by group, each compared with everybody else."""
    rows: list[dict[str, Any]] = [
        {
            **identity(grouped.finding.setting),
            "unit": unit_of(grouped.finding.aggregate),
            "column": group.column,
            "group": group.label,
            "units": group.units,
            **dict(zip(ATTACK, grouped.leak.key, strict=True)),
            "fpr": grouped.fpr,
            **parts("auc", group.auc),
            **parts("difference", group.difference),
            "p_holm": _none(group.p),
            **parts("tpr_at_fpr", group.own),
            **parts("common_tpr", group.common),
            **parts("common_fpr", group.common_fpr),
            "train_accuracy": _none(group.train_accuracy),
            "test_accuracy": _none(group.test_accuracy),
        }
        for grouped in groups_of(results, findings)
        for group in grouped.listed
    ]
    schema: dict[str, type] = SETTING | {"unit": str, "column": str, "group": str, "units": int}
    schema |= ATTACK | {"fpr": float} | parts_schema("auc", "difference") | {"p_holm": float}
    schema |= parts_schema("tpr_at_fpr", "common_tpr", "common_fpr")
    return frame_of(schema | {"train_accuracy": float, "test_accuracy": float}, rows)


def _none(value: float) -> float | None:
    return None if math.isnan(value) else value
