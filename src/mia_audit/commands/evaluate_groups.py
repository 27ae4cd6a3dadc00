"""`mia-audit evaluate-groups`: compute the metrics of every group of a setting's records, or persons."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from mia_audit.attacks.io.parquet import OPTIONS, TARGET
from mia_audit.attacks.persons import HEADLINE, NONE, in_unit
from mia_audit.commands._arguments import add_spec
from mia_audit.config.specs import EvaluationSpec
from mia_audit.evaluation.files import Scored, read_scores
from mia_audit.evaluation.further import FurtherScorings
from mia_audit.evaluation.groups import Slices, group_rows, groups_table
from mia_audit.pools.groups import Grouping, read_groups
from mia_audit.storage import table_metadata, write_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, EvaluationSpec)
    parser.add_argument("--scores", required=True, type=Path, help="scores.parquet")
    parser.add_argument("--signals", required=True, type=Path, help="the signals.parquet that was attacked")
    parser.add_argument("--groups", required=True, type=Path, help="groups.parquet of the pool")
    parser.add_argument("--out", required=True, type=Path, help="groups.parquet of the setting")


def run(options: argparse.Namespace) -> None:
    """Write groups.parquet for attacks on records and, with the aggregate sum, on persons; small groups are left out and counted."""
    section = EvaluationSpec.read(options.spec).evaluation
    scores_metadata = table_metadata(options.scores, "scores")
    groupings = read_groups(options.groups)
    rows: list[dict[str, Any]] = []
    metadata: dict[str, Any] = {"confidence": section.confidence}
    setting: _Setting | None = None
    with threadpool_limits(1, "blas"):
        for scored in read_scores(options.scores):
            if scored.key[-1] or scored.aggregate not in (NONE, HEADLINE):
                continue
            if setting is None:  # a setting whose models all diverged has no scores
                setting = _Setting(
                    FurtherScorings(options.signals, scores_metadata.get(OPTIONS)),
                    groupings,
                    scores_metadata.get(TARGET),
                )
            rows += setting.rows(scored, section.fprs, section.confidence)
            metadata["small"] = {aggregate: slices.small for aggregate, slices in setting.slices.items()}
    table = groups_table(rows)
    write_table(options.out, table.to_arrow(), "group_metrics", len(table), metadata)


class _Setting:
    """Data for all attacks on a setting: groups of records and of persons, and the records that its models classify correctly."""

    def __init__(self, further: FurtherScorings, groupings: list[Grouping], target: int | None) -> None:
        file = further.file
        right = file.right()
        records = [Grouping(one.name, one.labels, one.of[file.record]) for one in groupings]
        self.further = further
        self.slices = {NONE: Slices(records)}
        self.accuracy = {NONE: None if right is None else (right.astype(float), np.ones((len(right), 1)))}
        if (persons := file.persons) is not None:
            self.slices[HEADLINE] = Slices([one.of_persons(persons) for one in records])
            counts = persons.records[:, None].astype(float)
            shares = None if right is None else (in_unit(right.astype(float), persons, "sum") / counts, counts)
            self.accuracy[HEADLINE] = shares
        if target is not None:
            place = file.target.tolist().index(target)
            self.accuracy = {
                name: known and (known[0][:, place : place + 1], known[1]) for name, known in self.accuracy.items()
            }

    def rows(self, scored: Scored, fprs: tuple[float, ...], confidence: float) -> list[dict[str, Any]]:
        rescored = self.further.of(scored)
        persons = self.further.persons(scored)
        again = None
        if rescored is not None:
            again = in_unit(rescored.scores, persons, scored.aggregate), rescored.pairs
        slices, accuracy = self.slices[scored.aggregate], self.accuracy[scored.aggregate]
        return list(group_rows(scored, slices, fprs, confidence, again, accuracy))
