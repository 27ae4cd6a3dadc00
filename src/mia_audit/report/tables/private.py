"""Private explanations: losses, steps and ε by protocol, the actual ε of published choices, disjoint parts, and misclassification."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mia_audit.report.data.findings import Findings
from mia_audit.report.tables.catalogue import parts, table

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.data.private import Studied
    from mia_audit.report.data.results import Results

KEYS = ("experiment", "protocol", "as_published", "epsilon")
SOURCES = {"scratch": "scratch", "warm-start": "warm_start", "reused": "reused", "history": "history"}
INTERVALS = ("excess_loss", "distance", "steps", "epsilon_spent", "epsilon_from_scratch_at_equal_loss")
"""The numbers of the table that have an interval over repetitions."""
PUBLISHED = {
    "": "exact noise, capped weights, centred, noisy β",
    "sigma": "the noise of Algorithm 1",
    "weight": "exp(−d²) without a cap",
    "uncentred": "f(x) itself is fitted: by construction 0 at the record explained",
    "beta": "β without noise decides the number of steps",
}


@table("private_explanations", condition=lambda spec: spec.studies, private=True)
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

    from mia_audit.report.data.findings import estimate

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


@table("private_published", condition=lambda spec: spec.studies, private=True)
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
    from mia_audit.report.data.private import terms_at

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
    private=True,
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
    private=True,
)
def private_misclassified(results: Results, findings: Findings) -> pl.DataFrame:
    """Return a row per black box: mean misclassification of the records nearest to queries, and its correlation with the loss.

    The correlation is Spearman's over a repetition's queries, null if nothing is misclassified. `_low` and `_high` are the
    ends of intervals over repetitions.
    """
    import polars as pl

    from mia_audit.report.figures.private import of_protocol
    from mia_audit.report.figures.private_models import correlation

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
    columns: dict[str, float | None] = {}
    for name, value in values.items():
        known = parts(name, value)
        columns |= {
            name: known[f"{name}_mean"],
            f"{name}_low": known[f"{name}_low"],
            f"{name}_high": known[f"{name}_high"],
        }
    return columns
