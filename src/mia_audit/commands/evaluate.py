"""`mia-audit evaluate`: compute ROC metrics of the membership scores of a setting."""

import argparse
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from mia_audit.attacks.io.parquet import GIVEN, OPTIONS
from mia_audit.commands._arguments import add_spec
from mia_audit.config.specs import EvaluationSpec
from mia_audit.evaluation.files import Scored, metric_rows, metrics_table, read_scores
from mia_audit.evaluation.further import FurtherScorings
from mia_audit.evaluation.leave_outs import Columns, metrics_without
from mia_audit.evaluation.model_counts import MODEL_COUNTS, model_counts
from mia_audit.storage import ROW_GROUPS, check_out, given_digest, table_metadata, write_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, EvaluationSpec)
    parser.add_argument("--scores", required=True, type=Path, help="scores.parquet")
    parser.add_argument(
        "--signals",
        type=Path,
        help="the attacked signals.parquet. With it, attacks are repeated without some models, and intervals account for the"
        " correlation of targets. Without it, intervals assume that nothing leaks; if something does, they are up to 1.4 times too wide",
    )
    parser.add_argument("--out", required=True, type=Path, help="metrics.parquet")


def run(options: argparse.Namespace) -> None:
    """Write metrics.parquet."""
    check_out(options.out, options.spec, options.scores, options.signals)
    section = EvaluationSpec.read(options.spec).evaluation
    metadata = table_metadata(options.scores, "scores") | {"confidence": section.confidence}
    metadata.pop(ROW_GROUPS, None)
    given = metadata.pop(OPTIONS, None)
    if brought := given_digest(options.scores):
        metadata[GIVEN] = metadata.get(GIVEN, {}) | brought
    further: FurtherScorings | None = None
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1, "blas"):  # products of small matrices gain nothing from threads
        for scored in read_scores(options.scores):
            if (
                options.signals and further is None
            ):  # a setting whose models all diverged has neither scores nor signals
                further = FurtherScorings(options.signals, given)
            without = _without(further, scored, section.fprs) if further and not scored.key[-1] else None
            rows += metric_rows(scored, section.fprs, section.confidence, without)
            del scored  # free the memory before the next scores are read
        metrics = metrics_table(rows)
        if further:
            file, further = further.file, None  # free the signals that the file holds
            metadata[MODEL_COUNTS] = model_counts(metrics, file, section.fprs, given)
    write_table(options.out, metrics.to_arrow(), "metrics", len(metrics), metadata)


def _without(further: FurtherScorings, scored: Scored, fprs: tuple[float, ...]) -> Columns:
    rescored = further.of(scored)
    if rescored is None:
        return {}
    return metrics_without(rescored, scored.score, further.file.member, fprs, further.persons(scored), scored.aggregate)
