"""`mia-audit evaluate`: compute ROC metrics of the membership scores of a setting."""

import argparse
from pathlib import Path
from typing import Any

from mia_audit.commands._arguments import add_spec
from mia_audit.config.specs import EvaluationSpec
from mia_audit.evaluation.files import metric_rows, metrics_table, read_scores
from mia_audit.storage import ROW_GROUPS, table_metadata, write_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, EvaluationSpec)
    parser.add_argument("--scores", required=True, type=Path, help="scores.parquet")
    parser.add_argument("--out", required=True, type=Path, help="metrics.parquet")


def run(options: argparse.Namespace) -> None:
    """Write metrics.parquet."""
    section = EvaluationSpec.read(options.spec).evaluation
    metadata = table_metadata(options.scores, "scores") | {"confidence": section.confidence}
    metadata.pop(ROW_GROUPS, None)
    rows: list[dict[str, Any]] = []
    for scored in read_scores(options.scores):
        rows += metric_rows(scored, section.fprs, section.confidence)
    metrics = metrics_table(rows)
    write_table(options.out, metrics.to_arrow(), "metrics", len(metrics), metadata)
