"""`mia-audit evaluate`: read ROC metrics off the membership scores of a setting."""

import argparse
import json
from pathlib import Path
from typing import Any

from mia_audit.config.load import parse
from mia_audit.config.schema import Evaluation
from mia_audit.evaluation.files import metric_rows, metrics_table, read_scores
from mia_audit.storage import ROW_GROUPS, table_facts, write_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--scores", required=True, type=Path, help="scores.parquet")
    parser.add_argument("--spec", required=True, help="JSON: the section `evaluation`")
    parser.add_argument("--out", required=True, type=Path, help="metrics.parquet")


def run(options: argparse.Namespace) -> None:
    """Write metrics.parquet."""
    section = parse(Evaluation, json.loads(options.spec), "evaluation")
    facts = table_facts(options.scores, "scores") | {"confidence": section.confidence}
    facts.pop(ROW_GROUPS, None)
    rows: list[dict[str, Any]] = []
    for scored in read_scores(options.scores):
        rows += metric_rows(scored, section.fprs, section.confidence)
    metrics = metrics_table(rows)
    write_table(options.out, metrics.to_arrow(), "metrics", len(metrics), facts)
