"""Stages from signals to metrics, and the command for lower bounds on ε."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from mia_audit.attacks.catalogue import AttackRun, Scores, permuted_membership, plan, scores_of
from mia_audit.attacks.design import HEADLINE, RECORDS, in_unit, recognise
from mia_audit.attacks.io.outliers import LEFT_OUT, without_left_out
from mia_audit.attacks.io.parquet import (
    GIVEN,
    TARGET,
    UNLIKE,
    SignalsFile,
    TooFewModels,
    check_coins,
    readings_metadata,
    write_scores,
)
from mia_audit.commands._arguments import add_spec
from mia_audit.config.specs import AttackSpec, EvaluationSpec
from mia_audit.errors import UserError, few
from mia_audit.evaluation.epsilon_bounds import bounds_table, is_score_list, read_score_list
from mia_audit.evaluation.files import Scored, metric_rows, metrics_table, read_scores
from mia_audit.evaluation.groups import Slices, group_rows, groups_table
from mia_audit.evaluation.intervals import Columns, metrics_without
from mia_audit.evaluation.run import FIRST_MODELS, MODEL_COUNTS, FurtherScorings, by_first, in_halves, model_counts
from mia_audit.pools.groups import Grouping, read_groups
from mia_audit.sanitise import csv
from mia_audit.storage import ROW_GROUPS, check_out, given_digest, table_metadata, write_table, write_text
from mia_audit.storage.tables import DIVERGED, diverged_metadata, diverged_models, diverged_of_all


def attack_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, AttackSpec)
    parser.add_argument("--signals", required=True, type=Path, help="signals.parquet of a setting")
    parser.add_argument("--out", required=True, type=Path, help="scores.parquet")


def run_attack(options: argparse.Namespace) -> None:
    """Write scores.parquet; the table has no rows if too many models diverged for an attack."""
    check_out(options.out, options.spec, options.signals)
    spec = AttackSpec.read(options.spec)
    metadata: dict[str, Any] = {"seed": spec.seed, "dataset": spec.dataset}
    metadata |= diverged_of_all([options.signals], "signals")
    metadata |= diverged_metadata(without_left_out(metadata.get(DIVERGED, {}), spec.attacks.leave_out))
    try:
        file = SignalsFile(options.signals, spec.attacks.leave_out)
    except TooFewModels:
        if DIVERGED not in metadata:
            raise
        write_scores(options.out, (), (), record=(), target=(), metadata=metadata)
        return
    signals_metadata = table_metadata(options.signals, "signals")
    if given := signals_metadata.get(GIVEN, {}) | (given_digest(options.signals) or {}):
        metadata[GIVEN] = given
    metadata |= readings_metadata(spec.attacks.methods if spec.stated else (), file.signals, file.derived)
    runs = plan(spec.attacks.methods, file.signals, spec.attacks.likelihoods)
    if not runs:
        names = few(signal.name for signal in file.signals)
        raise UserError(f"{options.signals}: no attack in attacks.methods reads any of its signals ({names})")
    metadata |= recognise(file.member).metadata
    null = permuted_membership(file.member, spec.seed, spec.dataset, file.persons)
    targets = slice(None)
    if TARGET in signals_metadata:  # a finished model is the target, and the others are only its references
        place = file.target.tolist().index(signals_metadata[TARGET])
        targets, metadata[TARGET] = slice(place, place + 1), signals_metadata[TARGET]
        metadata[UNLIKE] = signals_metadata.get(UNLIKE)

    def of_targets(one: Scores) -> tuple[AttackRun, np.ndarray, np.ndarray]:
        return one.run, one.member[:, targets], one.scores[:, targets]

    with threadpool_limits(1, "blas"):  # the attacks' matrix products are too small to gain from threads
        # map keeps no scores while the next ones are computed; a generator's variable would
        scored = map(of_targets, scores_of(runs, file.read, file.member, null))
        write_scores(
            options.out,
            scored,
            runs,
            record=file.record,
            target=file.target[targets],
            metadata=metadata,
            persons=file.persons,
        )


def evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, EvaluationSpec)
    parser.add_argument("--scores", required=True, type=Path, help="scores.parquet")
    parser.add_argument(
        "--signals",
        type=Path,
        help="the attacked signals.parquet. With it, attacks are repeated without some models, and intervals account for the"
        " correlation of targets. Without it, intervals assume that nothing leaks; if something does, they are up to 1.4 times too wide",
    )
    parser.add_argument("--out", required=True, type=Path, help="metrics.parquet")


def run_evaluate(options: argparse.Namespace) -> None:
    """Write metrics.parquet: numbers alone; the report computes curves from scores.parquet (`series.roc_curves`)."""
    check_out(options.out, options.spec, options.scores, options.signals)
    spec = EvaluationSpec.read(options.spec)
    section = spec.evaluation
    metadata = table_metadata(options.scores, "scores") | {"confidence": section.confidence}
    metadata.pop(ROW_GROUPS, None)
    if brought := given_digest(options.scores):
        metadata[GIVEN] = metadata.get(GIVEN, {}) | brought
    further: FurtherScorings | None = None
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1, "blas"):  # products of small matrices gain nothing from threads
        for scored in read_scores(options.scores):
            # a setting whose models all diverged has neither scores nor signals
            if options.signals and further is None:
                further = _attacked(options)
            without = _without(further, scored, section.fprs) if further and not scored.key[-1] else None
            rows += metric_rows(scored, section.fprs, section.confidence, without)
            del scored  # free the memory before the next scores are read
        metrics = metrics_table(rows)
        if further:
            file, further = further.file, None  # free the signals that the file holds
            metadata |= file.outliers.metadata
            place = file.target.tolist().index(metadata[TARGET]) if TARGET in metadata else None
            metadata[MODEL_COUNTS] = model_counts(metrics, file, section.fprs, place)
            if place is None:
                metadata |= in_halves(metrics, file, section.fprs)
                if spec.models:
                    metadata[FIRST_MODELS] = by_first(spec.models, metrics, file, section.fprs, section.confidence)
    write_table(options.out, metrics.to_arrow(), "metrics", len(metrics), metadata)


def _attacked(options: argparse.Namespace) -> FurtherScorings:
    """Open the signals that were attacked, without the models that the attack left out."""
    missing = diverged_models(options.scores, "scores")
    return FurtherScorings(options.signals, [model for model, why in missing.items() if why == LEFT_OUT])


def _without(further: FurtherScorings, scored: Scored, fprs: tuple[float, ...]) -> Columns:
    rescored = further.of(scored)
    if rescored is None:
        return {}
    return metrics_without(
        rescored,
        scored.score,
        further.file.member,
        fprs=fprs,
        persons=further.persons(scored),
        aggregate=scored.aggregate,
    )


def evaluate_groups_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, EvaluationSpec)
    parser.add_argument("--scores", required=True, type=Path, help="scores.parquet")
    parser.add_argument("--signals", required=True, type=Path, help="the signals.parquet that was attacked")
    parser.add_argument("--groups", required=True, type=Path, help="groups.parquet of the pool")
    parser.add_argument("--out", required=True, type=Path, help="groups.parquet of the setting")


def run_evaluate_groups(options: argparse.Namespace) -> None:
    """Write groups.parquet for attacks on records and, with the aggregate sum, on persons; small groups are left out and counted."""
    section = EvaluationSpec.read(options.spec).evaluation
    scores_metadata = table_metadata(options.scores, "scores")
    groupings = read_groups(options.groups)
    rows: list[dict[str, Any]] = []
    metadata: dict[str, Any] = {"confidence": section.confidence}
    setting: _Setting | None = None
    with threadpool_limits(1, "blas"):
        for scored in read_scores(options.scores):
            if scored.key[-1] or scored.aggregate not in (RECORDS, HEADLINE):
                continue
            if setting is None:  # a setting whose models all diverged has no scores
                setting = _Setting(_attacked(options), groupings, scores_metadata.get(TARGET))
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
        self.slices = {RECORDS: Slices(records)}
        self.accuracy = {RECORDS: None if right is None else (right.astype(float), np.ones((len(right), 1)))}
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
        return list(group_rows(scored, slices, fprs, confidence=confidence, further=again, accuracy=accuracy))


def epsilon_bound_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scores",
        required=True,
        type=Path,
        help="scores.parquet; or a CSV or Parquet file with the columns member and score, or in and out, of one model",
    )
    parser.add_argument("--delta", type=float, default=1e-5, help="δ of the bounds (1e-5)")
    parser.add_argument("--confidence", type=float, default=0.95, help="confidence of each bound (0.95)")
    parser.add_argument("--design", choices=["half", "bernoulli"], default="half", help="design of membership (half)")
    parser.add_argument(
        "--gaussian",
        action="store_true",
        help="the noise of the training is known to be Gaussian, as in DP-SGD: add the bounds that assume it",
    )
    parser.add_argument("--out", required=True, type=Path, help="a CSV file")


def run_epsilon_bound(options: argparse.Namespace) -> None:
    """Write a row per attack and method."""
    for name in ("delta", "confidence"):
        if not 0 < getattr(options, name) < 1:
            raise UserError(f"--{name} {getattr(options, name):g}: expected a number between 0 and 1")
    check_out(options.out, options.scores)
    rows: list[dict[str, Any]] = []
    listed = is_score_list(options.scores)
    for scored in [read_score_list(options.scores)] if listed else read_scores(options.scores):
        if options.design == "bernoulli" and not scored.key[-1]:
            check_coins(scored.member, "--design bernoulli")
        rows += metric_rows(scored, (), options.confidence)
    coins = options.design == "bernoulli"
    table = bounds_table(metrics_table(rows), options.delta, options.confidence, coins, options.gaussian)
    write_text(options.out, csv(table))
