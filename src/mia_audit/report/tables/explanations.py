"""Tables of explanations, their measures and curves, private ones, and of paired differences over the same targets.

Differences are between channels, settings and their reference, mechanisms, and what the config compares; data sets are unpaired.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from mia_audit.explanation_metrics import FULL_MAP, OTHER, REFERENCE
from mia_audit.report.findings import (
    Estimate,
    Finding,
    Findings,
    Leak,
    accuracy_difference,
    chosen,
    difference,
    independent_difference,
    reference,
    welch,
)
from mia_audit.report.formatting import fixed, rate
from mia_audit.report.series import curves_of, interpretations, margin_of, peers
from mia_audit.report.tables.attacks import level
from mia_audit.report.tables.catalogue import (
    PARTS,
    SETTING,
    Cell,
    Column,
    Layout,
    frame_of,
    identity,
    laid_out,
    parts,
    parts_schema,
    printed,
    setting_columns,
    spread_column,
    table,
    within,
)
from mia_audit.signals.name import read_signal

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.results import Results, Studied

EXPLAINED = [printed("Explainer", "explainer"), printed("Quantity", "quantity"), printed("Measure", "measure")]


def _metric(row: Mapping[str, Any]) -> str:
    """Return a metric's name as it is printed."""
    name = str(row["metric"])
    if name.startswith("tpr_at_fpr_"):
        return f"TPR at {rate(float(name.removeprefix('tpr_at_fpr_')))}"
    return "AUC" if name == "auc" else name.replace("_", " ")


DIFFERENCE: list[tuple[Column, Any]] = [
    (Column("Metric", number=False), _metric),
    *(printed(name.capitalize(), name) for name in ("minuend", "subtrahend")),
    (Column("Difference"), lambda row: Cell(fixed(row["mean"]), within(row["low"], row["high"]))),
]


def _metrics_layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    columns = [
        *setting_columns(results.spec.settings),
        *EXPLAINED,
        printed("Compared with", "against"),
        spread_column("Value", "value", interval=True),
    ]
    caption = f"Mean over records and shadow models, with the standard deviation over models in its last digits in parentheses, {level(results)}."
    return laid_out(columns, frame.iter_rows(named=True), caption)


@table("explanation_metrics", _metrics_layout, condition=lambda spec: spec.explanation_metrics)
def explanation_metrics(results: Results, findings: Findings) -> pl.DataFrame:
    """Return every measure of every explainer in every setting."""
    interpreted = interpretations(results)
    rows = [
        {
            **identity(finding.setting),
            **{"explainer": one.explainer, "quantity": one.quantity, "measure": measure, "against": against},
            "models": value.targets,
            **parts("value", value),
            "same_class": same.mean if same else None,
        }
        for finding in findings.settings
        if (interpretation := interpreted.get(finding.setting.group))
        for one in interpretation.explained
        for measure in interpretation.measures
        for against in (None, REFERENCE, OTHER, FULL_MAP)
        if (value := interpretation.estimate(finding.setting, one, measure, against))
        for same in [interpretation.estimate(finding.setting, one, measure, against, "same_class")]
    ]
    schema = SETTING | dict.fromkeys(("explainer", "quantity", "measure", "against"), str) | {"models": int}
    return frame_of(schema | parts_schema("value") | {"same_class": float}, rows)


def _curves_layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    shares = frame["share"].unique().sort().to_list()
    curves = [
        curve.row(0, named=True) | dict(zip(curve["share"], curve["value_mean"], strict=True))
        for _, curve in frame.group_by(*SETTING, "explainer", "quantity", "measure", maintain_order=True)
    ]
    heights = [
        (Column(fixed(share, 2)), lambda curve, at=share: fixed(curve[at]) if at in curve else "–") for share in shares
    ]
    caption = (
        "The class's probability when this share of the coordinates is removed (deletion) or inserted (insertion): mean over "
        "records, then over shadow models."
    )
    return laid_out([*setting_columns(results.spec.settings), *EXPLAINED, *heights], curves, caption)


@table("curves", _curves_layout, condition=lambda spec: spec.curves)
def curves(results: Results, findings: Findings) -> pl.DataFrame:
    """Return every curve of every explainer in every setting, a row per step."""
    rows = [
        {
            **identity(curve.finding.setting),
            **{"explainer": curve.explained.explainer, "quantity": curve.explained.quantity, "measure": curve.measure},
            **{"share": share, "models": height.targets},
            **parts("value", height),
        }
        for group in findings.groups().values()
        if group[0].setting.trained
        for curve in curves_of(results, group, results.spec.confidence)
        for share, height in zip(curve.shares, curve.heights, strict=True)
    ]
    schema = SETTING | dict.fromkeys(("explainer", "quantity", "measure"), str) | {"share": float, "models": int}
    return frame_of(schema | parts_schema("value"), rows)


def _differences_layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    columns = [*setting_columns(results.spec.settings), *DIFFERENCE]
    caption = f"Paired over the same targets (accuracy: the same shadow models), {level(results)}."
    return replace(laid_out(columns, frame.iter_rows(named=True), caption), notes=list(_equal_numbers(findings)))


def _equal_numbers(findings: Findings) -> Iterator[str]:
    """Say that settings with more models than others are attacked by the first ones alone."""
    leaks = (leak.by_first for finding in findings.settings for leak in finding.strongest.values())
    for models in sorted({len(leak.targets) for leak in leaks if leak}):
        yield (
            f"Settings have different numbers of models: of those with more than {models}, differences from others are of the first"
            f" {models}, each attacked with {models - 1} others."
        )


@table("differences", _differences_layout)
def differences(results: Results, findings: Findings) -> pl.DataFrame:
    """Return each channel minus outputs, each private setting minus its reference, and mechanisms at the same ε."""
    confidence, interpreted = results.spec.confidence, interpretations(results)
    rows = [
        {**identity(finding.setting), **row}
        for group in findings.groups().values()
        for finding in group
        for row in _compare(finding, reference(group), findings.fpr, confidence)
    ]
    for place, group in findings.groups().items():
        for peer in peers(group, interpreted.get(place), confidence):
            row = _row(peer.metric, _name(peer.first), _name(peer.second), peer.gap)
            if margin := margin_of(peer.metric, results.spec.margins):
                p = peer.gap.equivalence(margin, confidence)
                row |= {} if math.isnan(p) else {"margin": margin, "p_equivalence": p}
            rows.append(identity(peer.first.setting) | row)
    schema = SETTING | dict.fromkeys(("metric", "minuend", "subtrahend"), str) | {"targets": int}
    tested = ("margin", "p_equivalence") if results.spec.margins else ()
    return frame_of(schema | dict.fromkeys((*PARTS, *tested), float), rows)


def _comparisons_layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    layout = _differences_layout(results, findings, frame)
    caption = f"Paired over the same targets (data sets: unpaired), {level(results)} that hold together for all {len(frame)} differences."
    return replace(layout, caption=caption)


@table("comparisons", _comparisons_layout, condition=lambda spec: spec.compare)
def comparisons(results: Results, findings: Findings) -> pl.DataFrame:
    """Return the differences between the settings of every pair that is compared, corrected for their number (Bonferroni)."""
    count = len(list(_pairwise(results, findings, results.spec.confidence)))
    corrected = 1 - (1 - results.spec.confidence) / max(count, 1)
    schema = SETTING | dict.fromkeys(("metric", "minuend", "subtrahend"), str) | {"targets": int}
    return frame_of(schema | dict.fromkeys(PARTS, float), _pairwise(results, findings, corrected))


def _pairwise(results: Results, findings: Findings, confidence: float) -> Iterator[dict[str, Any]]:
    for earlier, later in combinations(results.spec.compare, 2):
        for finding in findings.settings:
            where = identity(finding.setting)
            for row in _between_explainers(finding, later, earlier, findings.fpr, confidence):
                yield where | row
            for dimension in ("dataset", "architecture", "mechanism"):
                for other in _partners(finding, findings.settings, dimension, later, earlier):
                    names = _named(finding, dimension), _named(other, dimension)
                    for channel in (name for name in finding.strongest if name in other.strongest):
                        leaks = finding.strongest[channel], other.strongest[channel]
                        labels = f"{channel} of {names[0]}", f"{channel} of {names[1]}"
                        rows = _gaps(*leaks, *labels, findings.fpr, confidence, paired=dimension != "dataset")
                        yield from (where | row for row in rows)
                    compared = _independent_accuracies if dimension == "dataset" else accuracy_difference
                    if gap := compared(finding, other, confidence):
                        labels = f"test_accuracy of {names[0]}", f"test_accuracy of {names[1]}"
                        yield where | _row("test_accuracy", *labels, gap)


def _partners(
    finding: Finding, every: Sequence[Finding], dimension: str, later: str, earlier: str
) -> Iterator[Finding]:
    """Yield the settings that differ from a setting only in data set or architecture, or only in mechanism and, if one has none, ε."""
    setting, kept = finding.setting, {"dataset", "architecture", "mechanism"} - {dimension}
    if getattr(setting, dimension) != later:
        return
    for other in every:
        alike = all(getattr(other.setting, name) == getattr(setting, name) for name in kept)
        none = dimension == "mechanism" and "inf" in (setting.epsilon, other.setting.epsilon)
        same_epsilon = none or setting.epsilon == other.setting.epsilon
        if getattr(other.setting, dimension) == earlier and alike and same_epsilon:
            yield other


def _between_explainers(
    finding: Finding, later: str, earlier: str, fpr: float | None, confidence: float
) -> Iterator[dict[str, Any]]:
    """Yield the differences between the strongest attacks on two explainers' attributions."""
    leaks = finding.leaks.get("explanations", ())
    first, second = (
        [leak for leak in leaks if read_signal(leak.signal).explainer == name] for name in (later, earlier)
    )
    if first and second:
        yield from _gaps(chosen(first), chosen(second), later, subtrahend=earlier, fpr=fpr, confidence=confidence)


def _gaps(
    first: Leak, second: Leak, minuend: str, subtrahend: str, fpr: float | None, confidence: float, paired: bool = True
) -> Iterator[dict[str, Any]]:
    first, minus = replace(first, confidence=confidence), difference if paired else independent_difference
    for metric, column in _metrics(fpr).items():
        yield _row(column, minuend, subtrahend, minus(first, second, metric))


def _metrics(fpr: float | None) -> dict[str, str]:
    """Return AUC and, where it is resolved, TPR: their names in findings, and in tables."""
    return {"auc": "auc"} | ({"tpr": f"tpr_at_fpr_{fpr:g}"} if fpr is not None else {})


def _independent_accuracies(first: Finding, second: Finding, confidence: float) -> Estimate | None:
    """Return the difference in test accuracy between models of two data sets; None where one was not trained."""
    one, other = first.test_accuracy, second.test_accuracy
    if one is None or other is None:
        return None
    sides = [(side.mean, side.sd / math.sqrt(side.targets), side.targets) for side in (one, other)]
    return welch(sides, confidence)


def _named(finding: Finding, dimension: str) -> str:
    return _name(finding) if dimension == "mechanism" else str(getattr(finding.setting, dimension))


def _compare(finding: Finding, base: Finding | None, fpr: float | None, confidence: float) -> Iterator[dict[str, Any]]:
    outputs = finding.strongest.get("outputs")
    for channel, leak in finding.strongest.items():
        for metric, column in _metrics(fpr).items():
            if outputs is not None and channel != "outputs":
                yield _row(column, channel, "outputs", difference(leak, outputs, metric))
            if base is not None and base is not finding and channel in base.strongest:
                gap = difference(leak, base.strongest[channel], metric)
                yield _row(column, channel, f"{channel} of {_name(base)}", gap)
    if base is not None and base is not finding and (cost := accuracy_difference(finding, base, confidence)):
        yield _row("test_accuracy", "test_accuracy", f"test_accuracy of {_name(base)}", cost)


def _name(finding: Finding) -> str:
    nominal = " (no guarantee)" if finding.setting.no_guarantee else ""
    return f"{finding.setting.mechanism}-eps{finding.setting.named}{nominal}"


def _row(metric: str, minuend: str, subtrahend: str, value: Estimate) -> dict[str, Any]:
    values = {part: known for part in PARTS if not math.isnan(known := getattr(value, part))}
    return {"metric": metric, "minuend": minuend, "subtrahend": subtrahend, "targets": value.targets, **values}


KEYS = ("experiment", "protocol", "as_published", "epsilon")
SOURCES = {"scratch": "scratch", "warm-start": "warm_start", "reused": "reused", "history": "history"}
INTERVALS = (
    "excess_loss",
    "excess_loss_of_zero",
    "distance",
    "steps",
    "epsilon_spent",
    "epsilon_from_scratch_at_equal_loss",
)
"""The numbers of the table that have an interval over repetitions."""
PUBLISHED = {
    "": "exact noise, capped weights, centred, noisy β",
    "sigma": "the noise of Algorithm 1",
    "weight": "exp(−d²) without a cap",
    "uncentred": "f(x) itself is fitted: by construction 0 at the record explained",
    "beta": "β without noise decides the number of steps",
}


@table("private_explanations", condition=lambda spec: spec.studies)
def private_explanations(results: Results, findings: Findings) -> pl.DataFrame:
    """Return losses, steps, ε spent and sources of answers, a row per black box, experiment, protocol and ε.

    Numbers are means over repetitions. Those with `_mean` have the ends of Student's t intervals beside them, empty without
    repetitions. `answers` are those of one repetition.
    """
    import polars as pl

    frames = []
    for one in results.studied:
        each = pl.concat(
            _of_repetition(again).with_columns(pl.lit(number).alias("repetition"))
            for number, again in enumerate(one.repetitions)
        )
        front = [pl.lit(value).alias(name) for name, value in (("dataset", one.dataset), ("black_box", one.name))]
        frames.append(_over_repetitions(each, one).select(*front, pl.all()))
    return pl.concat(frames)


def _of_repetition(one: Studied) -> pl.DataFrame:
    """Return a row per experiment, protocol and ε of one repetition."""
    import polars as pl

    from mia_audit.privacy.gaussian import epsilon_of_gdp

    delta = one.study["delta"]
    excess = pl.col("excess_loss")
    table = one.answers.group_by(*KEYS, maintain_order=True).agg(
        pl.len().cast(pl.Int32).alias("answers"),
        excess.mean(),
        excess.std().alias("excess_loss_sd"),
        pl.col("excess_loss_of_zero").mean(),
        pl.col("distance").mean(),
        pl.col("steps").mean(),
        *((pl.col("source") == source).mean().alias(f"share_{name}") for source, name in SOURCES.items()),
        pl.col("mu_squared_spent").max(),
    )
    spent = [epsilon_of_gdp(math.sqrt(spent), delta) for spent in table["mu_squared_spent"]]
    compared = zip(table["experiment"], table["protocol"], strict=True)
    instead = [
        one.scratch_at_equal_loss(one.protocol(protocol))
        if experiment == "protocols" and protocol != "non-interactive"
        else None
        for experiment, protocol in compared
    ]
    return table.with_columns(
        pl.lit(delta).alias("delta"),
        pl.Series("epsilon_spent", spent),
        pl.Series("epsilon_from_scratch_at_equal_loss", instead, pl.Float64),
    )


def _over_repetitions(each: pl.DataFrame, one: Studied) -> pl.DataFrame:
    """Return means over repetitions with intervals; a number that a repetition lacks is empty."""
    import polars as pl

    from mia_audit.report.findings import estimate

    numbers = [name for name, kind in each.schema.items() if kind == pl.Float64 and name not in (*KEYS, "delta")]
    rows = []
    for _, own in each.group_by(*KEYS, maintain_order=True):
        row = own.row(0, named=True)
        row |= {name: None if own[name].null_count() else own[name].mean() for name in numbers}
        row["repetitions"] = row.pop("repetition") + len(own)
        for name in INTERVALS:
            known = None if own[name].null_count() or len(own) < 2 else estimate(own[name].to_numpy(), one.confidence)
            mean = row.pop(name)
            row |= {f"{name}_mean": mean, f"{name}_low": known and known.low, f"{name}_high": known and known.high}
        rows.append(row)
    ends = [f"{name}_{end}" for name in INTERVALS for end in ("mean", "low", "high")]
    kinds = {name: kind for name, kind in each.schema.items() if name not in ("repetition", *INTERVALS)}
    return pl.DataFrame(rows, schema=kinds | {"repetitions": pl.Int32} | dict.fromkeys(ends, pl.Float64))


@table("private_published", condition=lambda spec: spec.studies)
def private_published(results: Results, findings: Findings) -> pl.DataFrame:
    """Return the actual ε of each published choice, for one explanation from scratch at the ε of a study's protocols."""
    import polars as pl

    rows = [
        {"dataset": dataset, "choice": choice, "meaning": meaning, **_cost(study, choice)}
        for dataset, study in results.spec.studies.items()
        for choice, meaning in PUBLISHED.items()
    ]
    return pl.DataFrame(rows)


def _cost(study: Mapping[str, Any], choice: str) -> dict[str, Any]:
    from mia_audit.explain.private_local.terms import ADJACENCIES
    from mia_audit.privacy.gaussian import epsilon_of_gdp
    from mia_audit.report.results import terms_at

    terms = replace(terms_at(study, study["epsilon"]), as_published=(choice,) if choice else ())
    actual = {}
    for adjacency, moves in ADJACENCIES.items():
        mu = math.sqrt(terms.steps) / terms.multiplier * terms.excess * moves / ADJACENCIES[terms.adjacency]
        actual[f"epsilon_{adjacency.replace('-', '_')}"] = (
            epsilon_of_gdp(mu, terms.delta) if terms.guaranteed else math.inf
        )
    return {"epsilon_claimed": terms.epsilon, "delta": terms.delta, "steps": terms.steps, **actual}


@table(
    "private_parts",
    condition=lambda spec: any(study.get("parts", 1) > 1 for study in spec.studies.values()),
)
def private_parts(results: Results, findings: Findings) -> pl.DataFrame:
    """Return a row per black box and protocol: ε spent and mean loss of the whole data set and of its disjoint parts.

    The ε of the parts is the largest of any part, because nobody is in two parts (parallel composition). Losses are computed
    on the whole data set. `_low` and `_high` are the ends of intervals over repetitions.
    """
    import polars as pl

    from mia_audit.report.figures.private import SPENDING, in_parts, of_protocol

    lines = []
    for one in results.studied:
        for protocol in SPENDING:
            divided = in_parts(one, protocol)
            if divided is None:
                continue
            rows = of_protocol(protocol)
            front = {"dataset": one.dataset, "black_box": one.name, "protocol": protocol, "parts": one.study["parts"]}
            values = {"epsilon_spent": one.spent(rows), "loss": one.mean(rows, "excess_loss")}
            values |= {"epsilon_spent_in_parts": divided[0], "loss_in_parts": divided[1]}
            lines.append(front | {"delta": one.study["delta"]} | _columns(values))
    return pl.DataFrame(lines, infer_schema_length=None)


@table(
    "private_misclassified",
    condition=lambda spec: any(study.get("nearest") for study in spec.studies.values()),
)
def private_misclassified(results: Results, findings: Findings) -> pl.DataFrame:
    """Return a row per black box: mean misclassification of the records nearest to queries, and its correlation with the loss.

    The correlation is Spearman's over a repetition's queries, null if nothing is misclassified. `_low` and `_high` are the
    ends of intervals over repetitions.
    """
    import polars as pl

    from mia_audit.report.figures.private import correlation, of_protocol

    lines = []
    for one in results.studied:
        if not one.study.get("nearest"):
            continue
        values = {"misclassified": one.mean(of_protocol("non-adaptive"), "misclassified")}
        values["loss"] = one.mean(of_protocol("non-adaptive"), "excess_loss")
        front = {"dataset": one.dataset, "black_box": one.name, "nearest": one.study["nearest"]}
        lines.append(front | _columns(values | {"correlation": correlation(one)}))
    return pl.DataFrame(lines, infer_schema_length=None)


def _columns(values: dict[str, Any]) -> dict[str, float | None]:
    """Return a mean and the ends of its interval as columns, empty where they are not known."""
    known = {key: number for name, value in values.items() for key, number in parts(name, value).items()}
    return {key.removesuffix("_mean"): number for key, number in known.items() if not key.endswith("_sd")}
