"""Every attack × signal × likelihood on every setting: on the true membership, and on a permuted one (null control).

Every record's exposure and every attack's lower bound on ε, as written by `mia-audit audit`; too long for print.

How many models: results with fewer of them.

The attacks of Huang et al. 2024 as published, with the authors' read-out of the ROC curve and the exact one, beside ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mia_audit.attacks.catalogue import AUTHORS, attacks
from mia_audit.attacks.design import PERSON, RECORDS, unit_of
from mia_audit.report.data.findings import Finding, Findings
from mia_audit.report.tables.catalogue import (
    ATTACK,
    ATTACK_COLUMNS,
    PARTS,
    SETTING,
    Column,
    Layout,
    frame_of,
    identity,
    laid_out,
    printed,
    setting_columns,
    spread_column,
    table,
)
from mia_audit.report.text.formatting import fixed, rate

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.data.results import Results
    from mia_audit.report.data.spec import Setting, Spec


def _summary_layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    means = [name for name in frame.columns if name.startswith("tpr_") and name.endswith("_mean")]
    rates = [name.removesuffix("_mean") for name in means if frame[name].is_not_null().any()]
    columns = [
        *setting_columns(results.spec.settings),
        *ATTACK_COLUMNS,
        *_unit_columns(frame),
        spread_column("AUC", "auc"),
    ]
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
    columns = [
        *setting_columns(results.spec.settings),
        *ATTACK_COLUMNS,
        *_unit_columns(frame),
        spread_column("AUC", "auc", interval=True),
    ]
    caption = f"The same attacks against permuted membership, {level(results)}."
    return laid_out(columns, frame.iter_rows(named=True), caption)


@table("null_control", _null_layout)
def null_control(results: Results, findings: Findings) -> pl.DataFrame:
    """Return the AUC of every attack on a permuted membership, and whether its interval contains ½."""
    frame = _summarised(results).filter(null_control=True)
    units = ["unit", "aggregate"] if PERSON in set(frame["unit"]) else []
    null = frame.select(*SETTING, *ATTACK, *units, "targets", *(f"auc_{part}" for part in PARTS))
    return null.with_columns(holds_half=(null["auc_low"] <= 0.5) & (null["auc_high"] >= 0.5))


def _unit_columns(frame: pl.DataFrame) -> list[tuple[Column, Any]]:
    """Return the columns of unit and aggregate, if some scores are those of persons."""
    return [printed("Unit", "unit"), printed("Aggregate", "aggregate")] if "unit" in frame.columns else []


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


def _of_workflow(spec: Spec) -> bool:
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
    parts = [part for finding in findings.settings for part in _of_setting(results, finding)]
    return pl.concat([pl.DataFrame(schema=schema), *(part.select(schema.names()).cast(schema) for part in parts)])


def _of_setting(results: Results, finding: Finding) -> Iterator[pl.DataFrame]:
    """Yield the exposures of a setting's persons, where membership was drawn for them, and of its records."""
    if not finding.strongest:
        return
    origin = results.origins(finding.setting.pool)
    if finding.by_person:
        yield _ranked(results, finding, finding.aggregate, origin)
    yield _ranked(results, finding, RECORDS, origin)


def _ranked(results: Results, finding: Finding, aggregate: str, origin: Callable[[int], str]) -> pl.DataFrame:
    import numpy as np
    import polars as pl

    from mia_audit.evaluation.exposure import exposure_columns

    halves, fpr = results.halves(finding.setting), results.fpr_of_halves(finding.setting)
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
    name = f"TPR at {rate(findings.fpr)}" if findings.fpr is not None else "TPR"
    columns = [
        *setting_columns(results.spec.settings),
        *ATTACK_COLUMNS,
        (Column("Other models"), lambda row: f"{row['others']}{'*' if row['level'] else ''}"),
        (Column("AUC"), lambda row: _cell(row["auc"])),
        (Column("All add"), lambda row: _cell(row["auc_more"])),
        (Column(name), lambda row: _cell(row["tpr"])),
        (Column("All add"), lambda row: _cell(row["tpr_more"])),
    ]
    return laid_out(columns, frame.iter_rows(named=True), MODELS_CAPTION)


def _cell(value: float | None) -> str:
    return "–" if value is None else fixed(value)


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


def _layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
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


@table("as_published", _layout, condition=lambda spec: spec.as_published)
def as_published(results: Results, findings: Findings) -> pl.DataFrame:
    """Return, for the loss and every summary of explanations, the authors' score with both read-outs and all other attacks.

    Attacks with likelihoods use the headline's. `of` is that signal, which some of the attacks read together with others.
    """
    rows: list[dict[str, Any]] = []
    for setting, summary in zip(results.spec.settings, results.summaries, strict=True):
        known = summary.filter(null_control=False, aggregate="none")
        headlines = [row for row in known.iter_rows(named=True) if _headline(row, results.spec.likelihood)]
        theirs = [row["signal"] for row in headlines if row["attack"] == AUTHORS]
        for signal in theirs:
            rows += (identity(setting) | {"of": signal} | row for row in _rows(results, setting, signal, headlines))
    schema: dict[str, type] = SETTING | {"of": str} | ATTACK | {"read_out": str, "targets": int}
    schema |= {f"{metric}_{part}": float for metric in METRICS for part in ("mean", "sd")}
    return frame_of(schema, [{name: row.get(name) for name in schema} for row in rows])


def _headline(row: Mapping[str, Any], likelihood: str) -> bool:
    known = attacks[row["attack"]].likelihoods if row["attack"] in attacks else ()
    own = likelihood if likelihood in known else known[0] if known else "none"
    return bool(row["likelihood"] == own)


def _rows(results: Results, setting: Setting, signal: str, headlines: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
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
    own = [row for row in headlines if read_with & set(row["signal"].split("+")) and _of(row, signal)]
    yield from ({**row, "read_out": "exact"} for row in sorted(own, key=lambda row: row["attack"] != AUTHORS))


def _of(row: Mapping[str, Any], signal: str) -> bool:
    """Return whether an attack is listed under the signal; one that reads explanations with the confidence is not, under the loss."""
    return signal != "loss" or "+" not in row["signal"]
