"""Studies of private explanations: the answers of every black box, and the ε they spent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from mia_audit.explain.private_local.terms import Terms
from mia_audit.privacy.gaussian import epsilon_of_gdp
from mia_audit.report.data.findings import Estimate, estimate
from mia_audit.storage import read_frame

ROUNDING = 1e-12
"""Losses below this are rounding errors."""


Rows = Callable[["Studied"], pl.DataFrame]
"""A function that selects some of the answers of one repetition."""


@dataclass(frozen=True)
class Studied:
    """One black box of a study: its name, its answers, and its setting if it is a model of this audit.

    If experiments were repeated, `experiment` and `protocol` are for a single item of `repetitions`; `over`, `mean`, `spent`,
    `instead`, `saved` and `losses` are over all repetitions.
    """

    dataset: str
    name: str
    study: Mapping[str, Any]
    answers: pl.DataFrame
    setting: Mapping[str, Any] | None
    confidence: float = 0.95

    @cached_property
    def repetitions(self) -> list[Studied]:
        """One study per repetition; only the study itself if nothing was repeated."""
        if "repetition" not in self.answers.columns:
            return [self]
        return [replace(self, answers=own) for own in self.answers.partition_by("repetition", maintain_order=True)]

    def over(self, value: Callable[[Studied], float | None]) -> Estimate | None:
        """Return the mean of a number over repetitions, with Student's t interval; None if some repetition has no such number."""
        values = [number for one in self.repetitions if (number := value(one)) is not None]
        return estimate(values, self.confidence) if len(values) == len(self.repetitions) else None

    def mean(self, rows: Rows, column: str) -> Estimate:
        """Return the mean of a column of some of the answers."""
        return estimate([mean_of(rows(one), column) for one in self.repetitions], self.confidence)

    def spent(self, rows: Rows) -> Estimate:
        """Return the total ε of some of the answers."""
        return estimate([one.epsilon_of(rows(one)) for one in self.repetitions], self.confidence)

    def instead(self, rows: Rows) -> Estimate | None:
        """Return the ε that as many queries from scratch would spend to reach the mean loss of some of the answers."""
        return self.over(lambda one: one.scratch_at_equal_loss(rows(one)))

    def saved(self, rows: Rows) -> Estimate | None:
        """Return the share of the ε of `instead` that some of the answers save; below 0 if they spend more."""

        def share(one: Studied) -> float | None:
            instead = one.scratch_at_equal_loss(rows(one))
            return None if instead is None else 1 - one.epsilon_of(rows(one)) / instead

        return self.over(share)

    def losses(self) -> dict[tuple[str, float], Estimate]:
        """Return mean losses of explanations from scratch, by published choice and ε of one explanation."""
        each = [one.over_epsilon() for one in self.repetitions]
        return {key: estimate([means[key] for means in each], self.confidence) for key in each[0]}

    @property
    def dataset_name(self) -> str:
        """What readers call the data set."""
        return str(self.study.get("dataset_label") or self.dataset)

    @property
    def architecture_name(self) -> str:
        """What readers call the model's architecture; empty for a black box that is not a model."""
        setting = self.setting or {}
        return str(setting.get("architecture_label") or setting.get("architecture", ""))

    @property
    def training(self) -> str:
        """How the model was trained, in prose; empty for a black box that is not a model."""
        if self.setting is None:
            return ""
        mechanism = self.setting.get("mechanism_label") or self.setting["mechanism"]
        plain = "no DP" if self.setting["epsilon"] == "inf" else f"{mechanism} ε = {self.setting['epsilon']}"
        return str(self.setting.get("label") or plain)

    @property
    def label(self) -> str:
        """The black box's name in prose."""
        return f"{self.architecture_name}, {self.training}" if self.setting else self.name

    def experiment(self, name: str) -> pl.DataFrame:
        """Return the answers of one experiment, in their order."""
        return self.answers.filter(experiment=name).sort("number")

    def protocol(self, name: str) -> pl.DataFrame:
        """Return the answers of one protocol where protocols are compared, in their order."""
        return self.experiment("protocols").filter(protocol=name)

    @property
    def from_scratch(self) -> pl.DataFrame:
        """The answers from scratch where protocols are compared, those of all repetitions."""
        return self.answers.filter(experiment="protocols", protocol="non-adaptive")

    def over_epsilon(self) -> dict[tuple[str, float], float]:
        """Return mean losses of explanations from scratch, by published choice and ε of one explanation."""
        means = self.experiment("epsilon").group_by("as_published", "epsilon").agg(pl.col("excess_loss").mean())
        return {(published, epsilon): loss for published, epsilon, loss in means.iter_rows()}

    def epsilon_of(self, rows: pl.DataFrame) -> float:
        """Return the total ε of these answers."""
        return epsilon_of_gdp(math.sqrt(rows["mu_squared_spent"].to_numpy().max()), self.study["delta"])

    def scratch_at_equal_loss(self, rows: pl.DataFrame) -> float | None:
        """Return the ε that as many queries from scratch would spend to reach these answers' mean loss; None outside the measured range.

        The ε of one query with that loss is interpolated linearly in log ε over log loss.
        """
        losses = {epsilon: loss for (published, epsilon), loss in self.over_epsilon().items() if not published}
        losses[self.study["epsilon"]] = mean_of(self.protocol("non-adaptive"), "excess_loss")
        known = sorted((math.log(max(loss, ROUNDING)), math.log(epsilon)) for epsilon, loss in losses.items())
        wanted = math.log(max(mean_of(rows, "excess_loss"), ROUNDING))
        if not known[0][0] <= wanted <= known[-1][0]:
            return None
        epsilon = math.exp(float(np.interp(wanted, [loss for loss, _ in known], [at for _, at in known])))
        terms = terms_at(self.study, epsilon)
        return epsilon_of_gdp(math.sqrt(len(rows) * terms.steps * terms.step_cost), terms.delta)


def studied(root: Path, studies: Mapping[str, Any], confidence: float = 0.95) -> Iterator[Studied]:
    """Yield every black box of every study, with the answers below `root`: first those fitted to the pool, then models by decreasing ε."""
    for dataset, study in studies.items():
        ordered = sorted(study["settings"], key=lambda setting: -float(setting["epsilon"]))
        settings = {setting["name"]: setting for setting in ordered}
        for name in (*study["black_boxes"], *settings):
            answers = read_frame(root / dataset / "private" / name / "answers.parquet", "private-answers")
            yield Studied(dataset, name, study, answers, settings.get(name), confidence)


def mean_of(rows: pl.DataFrame, column: str) -> float:
    """Return the mean of a column that has no nulls."""
    return float(rows[column].to_numpy().mean())


def terms_at(study: Mapping[str, Any], epsilon: float) -> Terms:
    """Return the terms of a single explanation whose budget is this ε."""
    return Terms(epsilon, study["delta"], epsilon, study["steps"], study["c"], study["kernel"], study["adjacency"])
