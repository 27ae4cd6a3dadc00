"""Studies of private explanations: the answers of every black box, and what they spent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from mia_audit.explain.private_local.terms import Terms
from mia_audit.privacy.gaussian import epsilon_of_gdp
from mia_audit.storage import read_frame

ROUNDING = 1e-12
"""Losses below this are rounding errors."""


@dataclass(frozen=True)
class Studied:
    """One black box of a study: its name, its answers, and its setting where it is a model of this audit."""

    dataset: str
    name: str
    study: Mapping[str, Any]
    answers: pl.DataFrame
    setting: Mapping[str, Any] | None

    @property
    def dataset_name(self) -> str:
        """What readers call the data set."""
        return str(self.study.get("dataset_label") or self.dataset)

    @property
    def architecture_name(self) -> str:
        """What readers call the model's architecture; empty for a black box that is none."""
        setting = self.setting or {}
        return str(setting.get("architecture_label") or setting.get("architecture", ""))

    @property
    def training(self) -> str:
        """How the model was trained, in prose; empty for a black box that is none."""
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

    def over_epsilon(self) -> dict[tuple[str, float], float]:
        """Return mean losses by published choice and ε of one explanation, each from scratch."""
        means = self.experiment("epsilon").group_by("as_published", "epsilon").agg(pl.col("excess_loss").mean())
        return {(published, epsilon): loss for published, epsilon, loss in means.iter_rows()}

    def epsilon_of(self, rows: pl.DataFrame) -> float:
        """Return the total ε of these answers."""
        return epsilon_of_gdp(math.sqrt(rows["mu_squared_spent"].to_numpy().max()), self.study["delta"])

    def scratch_at_equal_loss(self, rows: pl.DataFrame) -> float | None:
        """Return the ε that as many queries from scratch spend at the mean loss of these; None outside the measured range.

        The ε of one query at that loss is interpolated linearly in log ε over log loss.
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


def studied(root: Path, studies: Mapping[str, Any]) -> Iterator[Studied]:
    """Yield every black box of every study whose answers are below `root`, those fitted to the pool first."""
    for dataset, study in studies.items():
        settings = {setting["name"]: setting for setting in study["settings"]}
        for name in (*study["black_boxes"], *settings):
            answers = read_frame(root / dataset / "private" / name / "answers.parquet", "private-answers")
            yield Studied(dataset, name, study, answers, settings.get(name))


def mean_of(rows: pl.DataFrame, column: str) -> float:
    """Return the mean of a column without nulls."""
    return float(rows[column].to_numpy().mean())


def terms_at(study: Mapping[str, Any], epsilon: float) -> Terms:
    """Return the terms of one explanation whose budget is this ε."""
    return Terms(epsilon, study["delta"], epsilon, study["steps"], study["c"], study["kernel"], study["adjacency"])
