"""What studies of private explanations left on disk, summed up: the answers of every black box, and what published choices cost."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from mia_audit.evaluation.epsilon import epsilon_of_gdp
from mia_audit.explain.private_local.budget import epsilon_of_rho
from mia_audit.explain.private_local.terms import ADJACENCIES, Terms
from mia_audit.storage import read_frame

KEYS = ("experiment", "protocol", "as_published", "epsilon")
ROUNDING = 1e-12
"""Losses below are rounding."""
SOURCES = {"scratch": "scratch", "warm-start": "warm_start", "reused": "reused", "history": "history"}
PUBLISHED = {
    "": "exact noise, capped weights, centred, noisy β",
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
        trained = f"{self.setting['mechanism']} ε = {self.setting['epsilon']}" if private else "no DP"
        return f"{self.setting['architecture']}, {trained}"

    def experiment(self, name: str) -> pl.DataFrame:
        """Return the answers of one experiment, in their order."""
        return self.answers.filter(pl.col("experiment") == name).sort("number")

    def protocol(self, name: str) -> pl.DataFrame:
        """Return the answers of one protocol where protocols are compared, in their order."""
        return self.experiment("protocols").filter(pl.col("protocol") == name)

    def over_epsilon(self) -> dict[tuple[str, float], float]:
        """Return mean losses by published choice and ε of one explanation, each from scratch."""
        means = self.experiment("epsilon").group_by("as_published", "epsilon").agg(pl.col("excess_loss").mean())
        return {(published, epsilon): loss for published, epsilon, loss in means.iter_rows()}

    def epsilon_of(self, rows: pl.DataFrame) -> float:
        """Return the ε of all these answers together."""
        return epsilon_of_rho(float(rows["rho_spent"].to_numpy().max()), self.study["delta"])

    def scratch_at_equal_loss(self, rows: pl.DataFrame) -> float | None:
        """Return the ε that as many queries from scratch would spend at the mean loss of these; None beyond what was measured.

        The ε of one query at that loss is read off its losses over ε, between two of which log ε is linear in log loss.
        """
        losses = {epsilon: loss for (published, epsilon), loss in self.over_epsilon().items() if not published}
        losses[self.study["epsilon"]] = mean_of(self.protocol("non-adaptive"), "excess_loss")
        known = sorted((math.log(max(loss, ROUNDING)), math.log(epsilon)) for epsilon, loss in losses.items())
        wanted = math.log(max(mean_of(rows, "excess_loss"), ROUNDING))
        if not known[0][0] <= wanted <= known[-1][0]:
            return None
        epsilon = math.exp(float(np.interp(wanted, [loss for loss, _ in known], [at for _, at in known])))
        terms = _terms(self.study, epsilon)
        return epsilon_of_rho(len(rows) * terms.steps * terms.step_cost, terms.delta)


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

    def published(self) -> pl.DataFrame:
        """Return what each published choice really costs, at the ε of a study's protocols, for one explanation from scratch."""
        rows = [
            {"dataset": dataset, "choice": choice, "meaning": meaning, **_cost(study, choice)}
            for dataset, study in self.spec["studies"].items()
            for choice, meaning in PUBLISHED.items()
        ]
        return pl.DataFrame(rows)


def mean_of(rows: pl.DataFrame, column: str) -> float:
    """Return the mean of a column that has no gaps."""
    return float(rows[column].to_numpy().mean())


def _terms(study: Mapping[str, Any], epsilon: float) -> Terms:
    """Return the terms of one explanation at that ε, which is all that it may cost."""
    return Terms(epsilon, study["delta"], epsilon, study["steps"], study["c"], study["kernel"], study["adjacency"])


def _cost(study: Mapping[str, Any], choice: str) -> dict[str, Any]:
    terms = replace(_terms(study, study["epsilon"]), as_published=(choice,) if choice else ())
    really = {}
    for adjacency, moves in ADJACENCIES.items():
        mu = math.sqrt(terms.steps) / terms.multiplier * terms.excess * moves / ADJACENCIES[terms.adjacency]
        really[f"epsilon_{adjacency.replace('-', '_')}"] = (
            epsilon_of_gdp(mu, terms.delta) if terms.guaranteed else math.inf
        )
    return {"epsilon_claimed": terms.epsilon, "delta": terms.delta, "steps": terms.steps, **really}
