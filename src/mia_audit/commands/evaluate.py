"""`mia-audit evaluate`: compute ROC metrics of the membership scores of a setting."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from mia_audit.attacks.io.parquet import GIVEN, OPTIONS, SignalsFile
from mia_audit.attacks.io.population import with_population
from mia_audit.attacks.persons import NONE
from mia_audit.attacks.run import Run
from mia_audit.commands._arguments import add_spec
from mia_audit.config.specs import EvaluationSpec
from mia_audit.evaluation.files import Scored, metric_rows, metrics_table, read_scores
from mia_audit.evaluation.leave_outs import Columns, Rescored, metrics_without, scored_without
from mia_audit.evaluation.model_counts import MODEL_COUNTS, model_counts
from mia_audit.signals.name import Reading, Signal
from mia_audit.storage import ROW_GROUPS, given_digest, table_metadata, write_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, EvaluationSpec)
    parser.add_argument("--scores", required=True, type=Path, help="scores.parquet")
    parser.add_argument(
        "--signals",
        type=Path,
        help="the signals.parquet that was attacked: attacks are scored again without some models, for intervals that know "
        "what targets share; without it, intervals assume that nothing leaks, and are up to 1.4 times as wide where something does",
    )
    parser.add_argument("--out", required=True, type=Path, help="metrics.parquet")


def run(options: argparse.Namespace) -> None:
    """Write metrics.parquet."""
    section = EvaluationSpec.read(options.spec).evaluation
    metadata = table_metadata(options.scores, "scores") | {"confidence": section.confidence}
    metadata.pop(ROW_GROUPS, None)
    given = metadata.pop(OPTIONS, None)
    if brought := given_digest(options.scores):
        metadata[GIVEN] = metadata.get(GIVEN, {}) | brought
    further: Callable[[Scored], Columns] | None = None
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1, "blas"):  # products of small matrices gain nothing from threads
        for scored in read_scores(options.scores):
            if (
                options.signals and further is None
            ):  # a setting whose models all diverged has neither scores nor signals
                further = _further(options.signals, section.fprs, given)
            without = further(scored) if further and not scored.key[-1] else None
            rows += metric_rows(scored, section.fprs, section.confidence, without)
        metrics = metrics_table(rows)
        if options.signals and rows:
            metadata[MODEL_COUNTS] = model_counts(metrics, SignalsFile(options.signals), section.fprs, given)
    write_table(options.out, metrics.to_arrow(), "metrics", len(metrics), metadata)


def _further(path: Path, fprs: tuple[float, ...], given: dict[str, Any] | None) -> Callable[[Scored], Columns]:
    """Return what scores an attack again from the signals, those that the last attack read being kept.

    What an attack scored is kept too: the scores of persons that follow those of records come of the same.
    """
    file = SignalsFile(path)
    known = {signal.name: signal for signal in file.signals}
    held: dict[Signal, Reading] = {}
    options = with_population(given, file.models)
    last: tuple[Run, Rescored | None] | None = None

    def score(scored: Scored) -> Columns:
        nonlocal held, last
        attack, names, likelihood, null_control = scored.key
        persons = None if scored.aggregate == NONE else file.persons
        unit = file.member if persons is None else persons.gathered(file.member, str(path))
        if not (set(names.split("+")) <= set(known) and unit.shape == scored.member.shape):
            return {}
        signals = tuple(known[name] for name in names.split("+"))
        run = Run(attack, signals, likelihood, null_control)
        if last is None or last[0] != run:
            held = {
                signal: held[signal] if signal in held else Reading(signal, file.read(signal)) for signal in signals
            }
            last = run, scored_without(run, list(held.values()), file.member, options)
        rescored = last[1]
        return {} if rescored is None else metrics_without(rescored, file.member, fprs, persons, scored.aggregate)

    return score
