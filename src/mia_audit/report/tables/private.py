"""Private explanations: losses, steps and ε spent of every protocol, and the actual ε of the published choices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mia_audit.report.data.findings import Findings
from mia_audit.report.tables.catalogue import table

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.data.results import Results

KEYS = ("experiment", "protocol", "as_published", "epsilon")
SOURCES = {"scratch": "scratch", "warm-start": "warm_start", "reused": "reused", "history": "history"}
PUBLISHED = {
    "": "exact noise, capped weights, centred, noisy β",
    "sigma": "the noise of Algorithm 1",
    "weight": "exp(−d²) without a cap",
    "uncentred": "f(x) itself is fitted: by construction 0 at the record explained",
    "beta": "β without noise decides the number of steps",
}


@table("private_explanations", condition=lambda spec: spec.studies, private=True)
def private_explanations(results: Results, findings: Findings) -> pl.DataFrame:
    """Return a row per black box, experiment, protocol and ε: losses, steps, ε spent and sources of the answers."""
    import polars as pl

    from mia_audit.privacy.gaussian import epsilon_of_gdp

    frames = []
    for one in results.studied:
        delta = one.study["delta"]
        excess = pl.col("excess_loss")
        table = one.answers.group_by(*KEYS, maintain_order=True).agg(
            pl.len().cast(pl.Int32).alias("answers"),
            excess.mean().alias("excess_loss_mean"),
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
        front = [pl.lit(value).alias(name) for name, value in (("dataset", one.dataset), ("black_box", one.name))]
        table = table.with_columns(
            pl.lit(delta).alias("delta"),
            pl.Series("epsilon_spent", spent),
            pl.Series("epsilon_from_scratch_at_equal_loss", instead, pl.Float64),
        )
        frames.append(table.select(*front, pl.all()))
    return pl.concat(frames)


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
