"""Tables of settings and attacks: guarantees and strongest attacks, every attack, exposure, persons, groups, numbers of models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mia_audit.attacks.catalogue import AUTHORS, attacks
from mia_audit.attacks.design import HEADLINE, PERSON, RECORDS, unit_of
from mia_audit.report.findings import CHANNELS, TITLES, Finding, Findings, Leak, chosen, guarantee, shadow_estimate
from mia_audit.report.formatting import (
    at_least,
    at_most,
    capital,
    fixed,
    percent,
    percent_interval,
    power,
    protection,
    rate,
    significant,
    titled,
)
from mia_audit.report.series import Group, Groups, groups_of, strongest_only
from mia_audit.report.statements import gap_sentence, missing_models, setting_notes, targets_of
from mia_audit.report.tables.catalogue import (
    ATTACK,
    ATTACK_COLUMNS,
    PARTS,
    SETTING,
    SETTING_COLUMNS,
    Cell,
    Column,
    Layout,
    estimate_cell,
    frame_of,
    identity,
    laid_out,
    leak_cells,
    parts,
    parts_schema,
    printed,
    rate_cell,
    setting_cells,
    setting_columns,
    spread_column,
    table,
    text,
)
from mia_audit.signals.name import read_signal

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.findings import Estimate
    from mia_audit.report.results import Results
    from mia_audit.report.spec import AuditedSetting, ReportedAudit


def _summary_layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    means = [name for name in frame.columns if name.startswith("tpr_") and name.endswith("_mean")]
    rates = [name.removesuffix("_mean") for name in means if frame[name].is_not_null().any()]
    columns = [*attack_columns(results, frame), spread_column("AUC", "auc")]
    for name in rates:
        columns.append(spread_column(f"TPR at {rate(float(name.removeprefix('tpr_at_fpr_')))}", name, "not resolvable"))
    caption = (
        "Mean over targets, with the standard deviation in its last digits in parentheses; not resolvable where the pool has"
        " too few non-members for the FPR."
    )
    return laid_out(columns, frame.iter_rows(named=True), caption)


@table("summary", _summary_layout)
def summary(results: Results, findings: Findings) -> pl.DataFrame:
    """Return the metrics of every attack on the true membership, over targets."""
    frame = _summarised(results).filter(null_control=False).drop("null_control")
    return frame if PERSON in set(frame["unit"]) else frame.drop("unit", "aggregate")


def _null_layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    columns = [*attack_columns(results, frame), spread_column("AUC", "auc", interval=True)]
    caption = f"The same attacks against permuted membership, {level(results)}."
    return laid_out(columns, frame.iter_rows(named=True), caption)


@table("null_control", _null_layout)
def null_control(results: Results, findings: Findings) -> pl.DataFrame:
    """Return the AUC of every attack on a permuted membership, and whether its interval contains ½."""
    frame = _summarised(results).filter(null_control=True)
    units = ["unit", "aggregate"] if PERSON in set(frame["unit"]) else []
    null = frame.select(*SETTING, *ATTACK, *units, "targets", *(f"auc_{part}" for part in PARTS))
    return null.with_columns(holds_half=(null["auc_low"] <= 0.5) & (null["auc_high"] >= 0.5))


def attack_columns(results: Results, frame: pl.DataFrame) -> list[tuple[Column, Any]]:
    """Return the columns of setting and attack, and those of unit and aggregate if some scores are those of persons."""
    persons = [printed("Unit", "unit"), printed("Aggregate", "aggregate")] if "unit" in frame.columns else []
    return [*setting_columns(results.spec.settings), *ATTACK_COLUMNS, *persons]


def level(results: Results) -> str:
    """Return how intervals were computed."""
    return f"with {results.spec.confidence * 100:g} % intervals over targets"


def _summarised(results: Results) -> pl.DataFrame:
    import polars as pl

    frames = [
        summary.select(*(pl.lit(value).alias(name) for name, value in identity(setting).items()), pl.all())
        for setting, summary in zip(results.spec.settings, results.summaries, strict=True)
    ]
    return pl.concat(frames, how="diagonal")


def _of_workflow(spec: ReportedAudit) -> bool:
    """Whether the workflow wrote the settings: `mia-audit audit` writes both tables itself, with or without a report."""
    return bool(spec.settings) and not any(setting.folder for setting in spec.settings)


@table("exposure", condition=lambda spec: spec.exposed > 0 and _of_workflow(spec))
def exposures(results: Results, findings: Findings) -> pl.DataFrame:
    """Return what fresh models would reveal about every record and person under the strongest attack on each setting.

    Within a setting the most exposed come first. `origin` is the row in the user's table, or the file of the image.
    """
    import polars as pl

    words = dict.fromkeys((*SETTING, "unit"), pl.String)
    units = {"record": pl.Int32, "person": pl.String, "origin": pl.String}
    attack = dict.fromkeys(ATTACK, pl.String)
    estimates = ("fpr", "revealed", "false_alarms", "advantage", "advantage_low", "advantage_high")
    numbers = dict.fromkeys((*estimates, "member_score", "non_member_score", "gap", "percentile"), pl.Float64)
    schema = pl.Schema({**words, **units, **attack, "models": pl.Int32, **numbers, "rank": pl.Int32})
    parts = [
        _ranked(results, finding, aggregate)  # persons, where membership was drawn for them, then records
        for finding in findings.settings
        if finding.strongest
        for aggregate in dict.fromkeys((finding.aggregate, RECORDS))
    ]
    return pl.concat([pl.DataFrame(schema=schema), *(part.select(schema.names()).cast(schema) for part in parts)])


def _ranked(results: Results, finding: Finding, aggregate: str) -> pl.DataFrame:
    import numpy as np
    import polars as pl

    from mia_audit.evaluation.exposure import exposure_columns

    halves, origin = results.halves(finding.setting), results.origins(finding.setting.pool)
    fpr = min(map(float, halves.hits), default=None) if halves else None
    found = results.estimated(finding.setting, fpr) if aggregate == finding.aggregate else None
    key = halves.key if halves else finding.chief.key
    scored = results.scored(finding.setting, *key, aggregate)
    persons = aggregate != RECORDS
    named = identity(finding.setting) | {"unit": unit_of(aggregate)} | dict(zip(ATTACK, key, strict=True))
    columns = {
        "record": None if persons else scored.record,
        "person": None if scored.person is None else scored.person.astype(np.str_),
        "origin": None if persons else [origin(int(number)) or None for number in scored.record],
    }
    return (
        pl.DataFrame(exposure_columns(scored.score, scored.member, fpr, found))
        .with_columns(pl.lit(value).alias(name) for name, value in named.items())
        .with_columns(
            pl.lit(None).alias(name) if values is None else pl.Series(name, values) for name, values in columns.items()
        )
        .fill_nan(None)
        .sort("rank")
    )


@table("epsilon", condition=_of_workflow)
def bounds(results: Results, findings: Findings) -> pl.DataFrame:
    """Return the lower bound on ε of every attack and null control on every setting, by every method.

    Each bound is from one attack; the table of settings has the joint bounds of all attacks.
    """
    import polars as pl

    from mia_audit.evaluation.epsilon_bounds import bounds_table

    spec = results.spec
    tables = []
    for setting, metrics in zip(spec.settings, results.metrics, strict=True):
        delta = setting.delta or spec.delta
        named = [pl.lit(value).alias(name) for name, value in identity(setting).items()]
        bounded = bounds_table(metrics, delta, spec.confidence, setting.design == "bernoulli", setting.gaussian)
        bounded = bounded.rename({"epsilon": "epsilon_lower_bound"})
        tables.append(bounded.select(*named, pl.all()))
    return pl.concat(tables)


LITTLE = 0.005
"""AUC and TPR are taken to have levelled off if using all other models changes each by less than this."""
MODELS_CAPTION = (
    "The strongest attack on every setting, on persons where membership was drawn by person, with fewer other models per target, in random"
    " groups: means over the same targets, not corrected for the choice of the attack. "
    "The likelihood hierarchical stands in for blend and types, which take long. "
    f"*: with this many or more, using all other models changes AUC and TPR by less than {LITTLE:g}."
)


def models_level(rows: Sequence[Mapping[str, Any]], tpr: str | None) -> int | None:
    """Return the number of other models beyond which further ones add little to AUC and TPR; None if there is no such number.

    `rows` are of one attack and likelihood, in the order of their numbers (`evaluation.model_counts.by_count`).
    """
    number = None
    for row in reversed(rows[:-1]):
        gaps = [row["auc_more"], row.get(f"{tpr}_more", 0.0) if tpr else 0.0]
        if any(abs(gap) >= LITTLE for gap in gaps):
            break
        number = int(row["others"])
    return number


def _models_layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    tpr = f"TPR at {rate(findings.fpr)}" if findings.fpr is not None else "TPR"
    titles = {"auc": "AUC", "auc_more": "All add", "tpr": tpr, "tpr_more": "All add"}
    columns = [
        *attack_columns(results, frame),
        (Column("Other models"), lambda row: f"{row['others']}{'*' if row['level'] else ''}"),
        *((Column(title), partial(_number, name)) for name, title in titles.items()),
    ]
    return laid_out(columns, frame.iter_rows(named=True), MODELS_CAPTION)


def _number(name: str, row: Mapping[str, Any]) -> str:
    return "–" if row[name] is None else fixed(row[name])


@table("models", _models_layout)
def models(results: Results, findings: Findings) -> pl.DataFrame:
    """Return mean AUC and TPR by likelihood and number of other models, and the gain from using all other models.

    `tpr` is at the report's FPR, null if it is not resolvable; `level` marks the number at which both have levelled off.
    """
    tpr = f"tpr_at_fpr_{findings.fpr:g}" if findings.fpr is not None else None
    rows = []
    for setting, counted in zip(results.spec.settings, results.model_counts, strict=True):
        for likelihood in dict.fromkeys(row["likelihood"] for row in counted):
            alike = [row for row in counted if row["likelihood"] == likelihood]
            rows += [
                identity(setting)
                | {name: row[name] for name in (*ATTACK, "others")}
                | {"auc": row["auc_mean"], "auc_more": row["auc_more"], "auc_more_error": row["auc_more_error"]}
                | {f"tpr{part}": row.get(f"{tpr}{source}") for part, source in MODELS_PARTS.items()}
                | {"level": row["others"] == models_level(alike, tpr)}
                for row in alike
            ]
    values = dict.fromkeys(("auc", "auc_more", "auc_more_error", "tpr", "tpr_more", "tpr_more_error"), float)
    return frame_of(SETTING | ATTACK | {"others": int} | values | {"level": bool}, rows)


MODELS_PARTS = {"": "_mean", "_more": "_more", "_more_error": "_more_error"}
METRICS = ("auc", "tpr_at_fpr_0.001", "tpr_at_fpr_0.01")
CAPTION = (
    "Mean over targets, with the standard deviation in its last digits in parentheses. The read-out of"
    " the authors' code is no TPR at an FPR: it swaps the axes of the "
    "curve and mistakes indices for rates (docs/results/papers.md). It is shown only for comparison with printed numbers."
)


def _published_layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    columns = [
        *setting_columns(results.spec.settings),
        printed("Attacked", "of"),
        *ATTACK_COLUMNS,
        printed("Read-out", "read_out"),
        spread_column("AUC", "auc"),
        spread_column("TPR at 0.1 %", "tpr_at_fpr_0.001", "not resolvable"),
        spread_column("TPR at 1 %", "tpr_at_fpr_0.01", "not resolvable"),
    ]
    return laid_out(columns, frame.iter_rows(named=True), CAPTION)


@table("as_published", _published_layout, condition=lambda spec: spec.as_published)
def as_published(results: Results, findings: Findings) -> pl.DataFrame:
    """Return, for the loss and every summary of explanations, the authors' score with both read-outs and all other attacks.

    Attacks with likelihoods use the headline's. `of` is that signal, which some of the attacks read together with others.
    """
    rows: list[dict[str, Any]] = []
    for setting, summary in zip(results.spec.settings, results.summaries, strict=True):
        known = summary.filter(null_control=False, aggregate="none")
        headlines = [row for row in known.iter_rows(named=True) if _headline(row, results.spec.likelihood)]
        for signal in (row["signal"] for row in headlines if row["attack"] == AUTHORS):
            read = _published_rows(results, setting, signal, headlines)
            rows += (identity(setting) | {"of": signal} | row for row in read)
    schema: dict[str, type] = SETTING | {"of": str} | ATTACK | {"read_out": str, "targets": int}
    schema |= {f"{metric}_{part}": float for metric in METRICS for part in ("mean", "sd")}
    return frame_of(schema, rows)


def _headline(row: Mapping[str, Any], likelihood: str) -> bool:
    known = attacks[row["attack"]].likelihoods if row["attack"] in attacks else ()
    own = likelihood if likelihood in known else known[0] if known else "none"
    return bool(row["likelihood"] == own)


def _published_rows(
    results: Results, setting: AuditedSetting, signal: str, headlines: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    import numpy as np

    from mia_audit.evaluation.metrics import FPRS, authors_read_out

    scored = results.scored(setting, AUTHORS, signal, "none")
    read = [authors_read_out(*pair) for pair in zip(scored.score.T, scored.member.T, strict=True)]
    values = np.array([[auc, *tprs] for tprs, auc in read])
    names = ("auc", *(f"tpr_at_fpr_{fpr:g}" for fpr in FPRS))
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else [None] * len(names)
    yield {
        **{"attack": AUTHORS, "signal": signal, "likelihood": "none", "read_out": "authors'", "targets": len(read)},
        **{f"{name}_mean": float(value) for name, value in zip(names, values.mean(axis=0), strict=True)},
        **{f"{name}_sd": value for name, value in zip(names, spread, strict=True)},
    }
    read_with = {signal, "confidence"} if signal == "loss" else {signal}
    # attacks that read explanations with the confidence are not listed under the loss
    known = [row for row in headlines if signal != "loss" or "+" not in row["signal"]]
    own = [row for row in known if read_with & set(row["signal"].split("+"))]
    yield from ({**row, "read_out": "exact"} for row in sorted(own, key=lambda row: row["attack"] != AUTHORS))


PREFIXES = {"outputs": "output", "explanations": "explanation", "both": "joint", "other": "signal"}
"""Prefixes of the columns of a channel."""
TRAINED = ("train_accuracy", "test_accuracy", "train_loss", "test_loss")
PHASES = ("train", "test")


def settings_layout(
    results: Results, findings: Findings, frame: pl.DataFrame | None = None, page: bool = False
) -> Layout:
    """Return a table with a row per setting and a note per guarantee; on the page it has one column for a setting's name."""
    present = [channel for channel in CHANNELS if any(channel in one.strongest for one in findings.settings)]
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
    alone = len(findings.groups()) == 1
    for finding in findings.settings:
        place = finding.setting.group
        if place in results.starts and place not in started:
            started.add(place)
            start = results.starts[place]
            names = [finding.setting.dataset_name, finding.setting.architecture_name, PUBLIC_START, "0"]
            if page:
                names = ["Public start" if alone else f"{finding.setting.place}: {PUBLIC_START}"]
            accuracies = {
                "train": Cell("–", (f"{start.public_records} public records",)),
                "test": Cell(percent(start.accuracy), (f"loss {fixed(start.loss)}",)),
            }
            rows.append([*names, "0", "–", *(accuracies[phase] for phase in phases), *["–"] * (2 * len(present))])
        cells: list[Cell | str] = [_spent_cell(finding)] if spent else []
        cells.append(Cell(at_least(finding.bound.epsilon), (f"δ = {power(finding.bound.delta)}",)))
        cells += [_accuracy_cell(finding, phase, findings.confidence) for phase in phases]
        for channel in present:
            cells += leak_cells(finding.strongest.get(channel), findings.fpr)
        rows.append([*([setting_name(finding, findings)] if page else setting_cells(finding.setting)), *cells])
    lost = [gap.setting for gap in results.spec.gaps if not gap.attacked and not page]
    rows += [[*cells, *["–"] * (len(columns) - len(cells))] for cells in map(setting_cells, lost)]
    caption = f"Means over {targets_of(findings, 'model')}, with intervals; of each kind the strongest attack by its mean AUC."
    gaps = [] if page else map(gap_sentence, results.spec.gaps)
    return Layout(columns, rows, caption, [*setting_notes(findings), *_chance_notes(results, findings), *gaps])


@table("settings", settings_layout)
def settings(results: Results, findings: Findings) -> pl.DataFrame:
    """Return a row per setting, without columns that no setting has; settings that could not be attacked come last."""
    gaps = {gap.setting: missing_models(gap) for gap in results.spec.gaps}
    rows = [
        _setting_row(finding, findings, results) | {"left_out": gaps.get(finding.setting)}
        for finding in findings.settings
    ]
    lost = [gap.setting for gap in results.spec.gaps if not gap.attacked]
    rows += [identity(setting) | {"left_out": gaps[setting]} for setting in lost]
    places = [(row["dataset"], row["architecture"]) for row in rows]
    for place in sorted((one for one in results.starts if one in places), key=places.index, reverse=True):
        start = results.starts[place]  # the public model spends no privacy of the audited records
        row = dict(zip(SETTING, (*place, PUBLIC_START, "0"), strict=True)) | {"models": 1}
        rows.insert(places.index(place), row | {"test_accuracy_mean": start.accuracy, "test_loss_mean": start.loss})
    frame = frame_of(_settings_schema(), rows)
    absent = tuple(f"{prefix}_" for prefix in PREFIXES.values() if frame[f"{prefix}_attack"].is_null().all())
    unknown = ["no_guarantee"] if frame["no_guarantee"].is_null().all() else []
    return frame.drop(unknown, *(name for name in frame.columns if name.startswith(absent)))


def _settings_schema() -> dict[str, type]:
    numbers = ("delta", "epsilon_spent", "epsilon_spent_rdp", "noise_multiplier", "sampling_rate")
    bounds = ("epsilon_lower_bound", "epsilon_lower_bound_delta")
    schema = SETTING | {"no_guarantee": str} | dict.fromkeys([*numbers, *bounds], float)
    schema |= dict.fromkeys(["epsilon_lower_bound_method", "accountant", "sampling", "clipping"], str)
    schema |= {"models": int} | parts_schema(*TRAINED) | {"left_out": str, "fpr": float}
    for prefix in PREFIXES.values():
        schema |= {f"{prefix}_{name}": str for name in ATTACK}
        schema |= {f"{prefix}_attacks_tried": int} | parts_schema(f"{prefix}_auc", f"{prefix}_tpr_at_fpr")
    return schema


def _setting_row(finding: Finding, findings: Findings, results: Results) -> dict[str, Any]:
    setting = finding.setting
    row: dict[str, Any] = {
        **identity(setting),
        "no_guarantee": setting.no_guarantee or None,
        "delta": setting.delta,
        "accountant": setting.accountant,
        "clipping": setting.clipping,
        "fpr": findings.fpr,
        **guarantee(finding),
        "epsilon_lower_bound": finding.bound.epsilon,
        "epsilon_lower_bound_delta": finding.bound.delta,
        "epsilon_lower_bound_method": finding.bound.method,
    }
    for name in TRAINED:
        row |= parts(name, shadow_estimate(finding.shadows, name, findings.confidence))
    for channel, leak in finding.strongest.items():
        prefix = PREFIXES[channel]
        row |= {f"{prefix}_{name}": getattr(leak, name) for name in ATTACK}
        row |= {f"{prefix}_attacks_tried": leak.tried, **parts(f"{prefix}_auc", leak.auc_estimate)}
        row |= parts(f"{prefix}_tpr_at_fpr", leak.tpr_estimate)
    targets = max((len(leak.targets) for leak in finding.strongest.values()), default=None)
    return row | {"models": len(finding.shadows) if finding.shadows is not None else targets}


PUBLIC_START = "public start"


def _chance_notes(results: Results, findings: Findings) -> dict[str, None]:
    """State accuracy and loss of guessing on every data set used for training."""
    known = [(one.setting.dataset_name, results.guessing(one.setting)) for one in findings.settings]
    return dict.fromkeys(
        f"On {name}, the most frequent class alone has an accuracy of {percent(chance.accuracy)}, and answering the classes'"
        f" shares a loss of {fixed(chance.loss)}."
        for name, chance in known
        if chance
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
    accuracy: Estimate | None = getattr(finding, f"{phase}_accuracy")
    if accuracy is None:
        return Cell("unknown")
    loss = shadow_estimate(finding.shadows, f"{phase}_loss", confidence)
    losses = [f"loss {fixed(loss.mean)}"] if loss else []
    return Cell(percent(accuracy.mean), (percent_interval(accuracy), *losses))


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
            alike = {name: {one.key: one for one in leaks.get(channel, ())} for name, leaks in by_name.items()}
            same = {name: leaks.get(leak.key) for name, leaks in alike.items()} | {finding.aggregate: leak}
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


@table(
    "persons",
    lambda results, findings, frame: persons_layout([one for one in findings.settings if one.by_person], findings.fpr),
    condition=lambda spec: any(one.by_person for one in spec.settings),
)
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
    rows = [
        [f"{one.finding.setting.place}: {name}" if several else name, *_group_cells(group)]
        for one in grouped
        for name in [titled(one.finding.setting)]
        for group in one.listed
    ]
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


def _group_cells(group: Group) -> list[Cell | str]:
    return [
        group.column,
        group.label,
        str(group.units),
        estimate_cell(group.auc),
        estimate_cell(group.difference),
        _p(group.p),
        _group_rate(group.own, "not resolvable"),
        _group_rate(group.common, "–"),
        percent(group.common_fpr.mean),
        percent(group.test_accuracy),
    ]


def _p(value: float) -> str:
    if math.isnan(value):
        return "–"
    return significant(value, 2) if value >= SMALL_P else power(float(f"{value:.1e}")) if value > 0 else "0"


def _group_rate(value: Estimate, missing: str) -> Cell:
    return Cell(missing) if math.isnan(value.mean) else rate_cell(value)


@table(
    "groups",
    lambda results, findings, frame: groups_layout(
        strongest_only(groups_of(results, findings)), findings.confidence, several=True
    ),
    condition=lambda spec: any(one.grouped for one in spec.settings),
)
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
