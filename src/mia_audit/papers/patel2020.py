"""Patel, Shokri and Zick 2020, Model Explanations with Differential Privacy: its numbers, and those of studies on substitute data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from mia_audit.config.load import check_audit
from mia_audit.config.specs import ReportSpec
from mia_audit.errors import UserError
from mia_audit.papers.cells import Paper, printed_rows
from mia_audit.report.figures.private import of_experiment, of_protocol
from mia_audit.report.findings import Estimate, estimate, mean_over_seeds
from mia_audit.report.opened import PROVENANCE, read_provenance
from mia_audit.report.results import Results, ResultsOverSeeds
from mia_audit.report.tables.catalogue import parts
from mia_audit.seeds import folder_of_seed

if TYPE_CHECKING:
    from mia_audit.report.results import Rows, Studied


PAPER = Paper(
    tables={"3": "Approximation loss of Algorithm 1", "text": "Numbers of the text"},
    figures={},
    configs={},
    elsewhere={
        "Table 1": "notation: no result",
        "Table 2": "influential words of the reviews, which are not available",
        "Figures 1 to 9": "figures of the studies of config/patel2020 (docs/results/papers.md)",
        "Section 6.2": "disjoint parts: figures/private_parts and tables/private_parts.csv of the studies",
    },
    studies=True,
)


@dataclass(frozen=True)
class StandIn:
    """The substitute for a paper's data set: the data set and black box of a config; no config if there is none."""

    dataset: str = ""
    black_box: str = ""
    config: str = ""
    why: str = ""
    """Why there is no config."""

    @property
    def command(self) -> str:
        """The command that runs the study, or the reason why there is none."""
        return f"snakemake --cores all --configfile {self.config}" if self.config else self.why


STAND_INS: Mapping[str, StandIn] = {
    "Face": StandIn("digits", "forest-labels", "config/patel2020/digits.yaml"),
    "ACS13": StandIn("clusters", "forest-labels", "config/patel2020/table.yaml"),
    "ACS13 overfitted": StandIn("clusters", "forest-overfitted-labels", "config/patel2020/table.yaml"),
    "Face models": StandIn("digits", "", "config/patel2020/models.yaml"),
    "Text": StandIn("wordnet", "labels", "config/patel2020/wordnet.yaml"),
    "Text models": StandIn(why="none: the reviews are not available, and no network is trained on other text"),
}
"""Substitutes for the data sets of Patel et al. 2020, which are not available."""


@dataclass(frozen=True)
class PrintedNumber:
    """A number of the paper: its table (`text` if it is in none), its place, its key, and the variance printed with it."""

    table: str
    where: str
    dataset: str
    quantity: str
    epsilon: str
    mean: float
    variance: float | None


def printed_numbers(name: str) -> list[PrintedNumber]:
    """Return the printed numbers of a paper of private explanations."""
    return [
        PrintedNumber(
            **{part: row[part] for part in ("table", "where", "dataset", "quantity", "epsilon")},
            mean=float(row["mean"]),
            variance=float(row["variance"]) if row["variance"] else None,
        )
        for row in printed_rows(name)
    ]


def finished_study(root: Path) -> Results:
    """Open the results of a finished audit with a study; UserError if they have none."""
    sources = read_provenance(root, seeds=True)
    config = sources.get("config")
    if not isinstance(config, dict) or not config.get("private_explanations"):
        raise UserError(f"{root / PROVENANCE}: no study of private explanations; expected results of config/patel2020")
    audit = check_audit(config, str(root / PROVENANCE))
    spec = ReportSpec.from_audit(audit)
    folders = tuple(root / folder_of_seed(seed) for seed in audit.seeds)
    return ResultsOverSeeds(root, spec, folders=folders) if folders else Results(root, spec)


class Studies:
    """Black boxes of finished studies, by the paper's names of their data sets."""

    def __init__(self, audits: Sequence[Results]) -> None:
        self.audits = audits

    def results(self, dataset: str) -> Results | None:
        """Return the audit with the substitute for one of the paper's data sets; None if there is none."""
        return next((results for results in reversed(self.audits) if self._own(results, STAND_INS[dataset])), None)

    def boxes(self, dataset: str) -> list[Studied]:
        """Return the substitute's black box, or its models; empty if it was not studied."""
        results = self.results(dataset)
        return self._own(results, STAND_INS[dataset]) if results is not None else []

    def number(self, printed: PrintedNumber) -> dict[str, Estimate]:
        """Return the measurements for a printed number: `alike` with the published noise, `exact` with exactly calibrated noise."""
        measure = QUANTITIES.get(printed.quantity)
        results, boxes = self.results(printed.dataset), self.boxes(printed.dataset)
        if printed.quantity == "test_accuracy" and results is not None:
            return _accuracy(results, boxes, printed.epsilon)
        return measure(boxes[0], printed.epsilon) if measure and boxes else {}

    @staticmethod
    def _own(results: Results, stand_in: StandIn) -> list[Studied]:
        mine = [one for one in results.studied if one.dataset == stand_in.dataset]
        if stand_in.black_box:
            return [one for one in mine if one.name == stand_in.black_box]
        return [one for one in mine if one.setting is not None]


def _loss(one: Studied, epsilon: str) -> dict[str, Estimate]:
    known = one.losses()
    named = {"alike": ("sigma", float(epsilon)), "exact": ("", float(epsilon))}
    return {name: known[key] for name, key in named.items() if key in known}


def _steps(protocol: str) -> Callable[[Studied, str], dict[str, Estimate]]:
    return lambda one, epsilon: {"exact": one.mean(of_protocol(protocol), "steps")}


def _least_steps(one: Studied, epsilon: str) -> dict[str, Estimate]:
    """Return the fewest steps of any query with a warm start."""

    def least(again: Studied) -> float:
        return float(np.min(again.protocol("adaptive").filter(source="warm-start")["steps"].to_numpy()))

    return {"exact": one.estimated(least)}


def _all_steps(rows: Rows) -> Callable[[Studied, str], dict[str, Estimate]]:
    """Return a function that measures the share of queries that take all steps; nothing where the study lacks them."""

    def share(again: Studied) -> float | None:
        steps = rows(again)["steps"].to_numpy()
        return float((steps == again.study["steps"]).mean()) if len(steps) else None

    def measure(one: Studied, epsilon: str) -> dict[str, Estimate]:
        found = one.over(share)
        return {"exact": found} if found else {}

    return measure


def _accuracy(results: Results, boxes: Sequence[Studied], epsilon: str) -> dict[str, Estimate]:
    """Return the test accuracy of all of the audit's models at one ε, over its seeds if it has several."""
    confidence = results.spec.confidence
    for index, setting in enumerate(results.spec.settings):
        if setting.epsilon == epsilon and setting.dataset == boxes[0].dataset and setting.trained:
            known = [trained for one in results.every if (trained := one.training[index]) is not None]
            values = [trained["test_accuracy"].drop_nulls().to_numpy() for trained in known]
            each = [estimate(own, confidence) for own in values if len(own)]
            if len(each) == len(results.every):
                return {"exact": mean_over_seeds(each, confidence) if len(each) > 1 else each[0]}
    return {}


QUANTITIES: Mapping[str, Callable[[Studied, str], dict[str, Estimate]]] = {
    "loss": _loss,
    "steps_adaptive": _steps("adaptive"),
    "steps_enhanced": _steps("enhanced"),
    "least_steps": _least_steps,
    "share_of_all_steps": _all_steps(of_protocol("adaptive")),
    "share_of_all_steps_overfitted_region": _all_steps(of_experiment("overfitted")),
}
"""Functions that measure a printed number, by its name."""

NOT_MEASURED: Mapping[str, str] = {
    "words_shared_with_mim": "none: MIM is not implemented",
    "words_shared_with_lime": "none: LIME asks a model about altered records, and the labels of the reviews have none",
}
"""Reasons why the other printed numbers are not measured, by their names."""


def frame(printed: Sequence[PrintedNumber], studies: Studies) -> pl.DataFrame:
    """Return a row per printed number, with its measurements and their intervals over repetitions (or seeds), or the command if there are none."""
    lines = []
    for number in printed:
        known, stand_in = studies.number(number), STAND_INS[number.dataset]
        line: dict[str, object] = {"table": number.table, "where": number.where, "dataset": number.dataset}
        line |= {"stand_in": stand_in.dataset, "quantity": number.quantity, "epsilon": number.epsilon}
        line |= {"printed_mean": number.mean, "printed_variance": number.variance}
        for name in ("alike", "exact"):
            line |= {key: value for key, value in parts(name, known.get(name)).items() if not key.endswith("_sd")}
        instead = NOT_MEASURED.get(number.quantity, stand_in.command)
        repeated = next((value.targets for value in known.values()), None)
        lines.append(line | {"repetitions": repeated, "command": "" if known else instead})
    words = ("table", "where", "dataset", "stand_in", "quantity", "epsilon", "command")
    kinds = {name: pl.String if name in words else pl.Float64 for name in lines[0]}
    return pl.DataFrame(lines, schema=kinds | {"repetitions": pl.Int32})
