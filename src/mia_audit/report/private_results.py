"""What studies of private explanations left on disk, summed up: the answers of every black box, and what published choices cost."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from mia_audit.evaluation.epsilon import epsilon_of_gdp
from mia_audit.explain.private_local.budget import epsilon_of_rho
from mia_audit.explain.private_local.terms import ADJACENCIES, Terms
from mia_audit.storage import read_frame

KEYS = ("experiment", "protocol", "as_published", "epsilon")
SOURCES = {"scratch": "scratch", "warm-start": "warm_start", "reused": "reused", "history": "history"}
PUBLISHED = {
    "": "as here: exact noise, capped weights, centred, noisy β",
    "sigma": "the noise of Algorithm 1",
    "weight": "exp(−d²) without a cap",
    "uncentred": "f(x) itself is fitted: by construction 0 at the record explained",
    "beta": "β without noise decides the number of steps",
}


@dataclass(frozen=True)
class Studied:
    """One black box of one study: its name, its answers, and the setting where it is a model of this audit."""

    dataset: str
    name: str
    study: Mapping[str, Any]
    answers: pl.DataFrame
    setting: Mapping[str, Any] | None

    @property
    def label(self) -> str:
        """The black box in words."""
        if self.setting is None:
            return self.name
        private = self.setting["epsilon"] != "inf"
        return f"{self.setting['architecture']}, " + (f"ε = {self.setting['epsilon']}" if private else "no DP")


@dataclass(frozen=True)
class PrivateResults:
    """The studies of an audit whose results are below `root`; `spec` is what `settings.private_report_slice` says."""

    root: Path
    spec: Mapping[str, Any]

    @classmethod
    def of(cls, root: Path, spec: str) -> PrivateResults:
        """Read the spec from JSON."""
        return cls(root, json.loads(spec))

    @cached_property
    def studied(self) -> list[Studied]:
        """Every black box of every study, those made of the pool first."""
        return list(self._studied())

    def _studied(self) -> Iterator[Studied]:
        for dataset, study in self.spec["studies"].items():
            settings = {setting["name"]: setting for setting in study["settings"]}
            for name in (*study["black_boxes"], *settings):
                path = self.root / dataset / "private" / name / "answers.parquet"
                frame = read_frame(path, "private-answers")
                yield Studied(dataset, name, study, frame, settings.get(name))

    def explanations(self) -> pl.DataFrame:
        """Return a row for every black box, experiment, protocol and ε: losses, steps, what was spent and where answers came from."""
        frames = []
        for one in self.studied:
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
                pl.col("rho_spent").max().alias("rho_spent"),
            )
            spent = [epsilon_of_rho(rho, delta) for rho in table["rho_spent"]]
            front = [pl.lit(value).alias(name) for name, value in (("dataset", one.dataset), ("black_box", one.name))]
            table = table.with_columns(pl.lit(delta).alias("delta"), pl.Series("epsilon_spent", spent))
            frames.append(table.select(*front, pl.all()))
        return pl.concat(frames)

    def published(self) -> pl.DataFrame:
        """Return what each published choice really costs, at the ε of a study's protocols, for one explanation from scratch."""
        rows = [
            {"dataset": dataset, "choice": choice, "meaning": meaning, **_cost(study, choice)}
            for dataset, study in self.spec["studies"].items()
            for choice, meaning in PUBLISHED.items()
        ]
        return pl.DataFrame(rows)


def _cost(study: Mapping[str, Any], choice: str) -> dict[str, Any]:
    terms = Terms(
        study["epsilon"],
        study["delta"],
        study["epsilon"],
        study["steps"],
        study["c"],
        study["kernel"],
        study["adjacency"],
    )
    terms = replace(terms, as_published=(choice,) if choice else ())
    really = {}
    for adjacency, moves in ADJACENCIES.items():
        mu = math.sqrt(terms.steps) / terms.multiplier * terms.excess * moves / ADJACENCIES[terms.adjacency]
        really[f"epsilon_{adjacency.replace('-', '_')}"] = (
            epsilon_of_gdp(mu, terms.delta) if terms.guaranteed else math.inf
        )
    return {"epsilon_claimed": terms.epsilon, "delta": terms.delta, "steps": terms.steps, **really}
