"""`mia-audit cost`: what a training step took in every setting, read off the logs of training, beside dp-sgd's and unprotected ones."""

import argparse
import json
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")
    parser.add_argument("--spec", required=True, help="the settings that were trained, as JSON")
    parser.add_argument("--out", type=Path, required=True, help="the table, CSV; measured, so other on every run")


def run(options: argparse.Namespace) -> None:
    """Write the median over a setting's models, and its ratio to the same of other mechanisms on the same model."""
    import polars as pl

    from mia_audit.storage import write_text
    from mia_audit.training.cost import costs

    logs = options.results / "logs" / "train"
    table = costs(logs, json.loads(options.spec)["settings"])
    floats = [name for name, kind in table.schema.items() if kind == pl.Float64]
    rounded = [pl.col(name).map_elements(lambda value: f"{value:.3g}", return_dtype=pl.String) for name in floats]
    write_text(options.out, table.with_columns(rounded).write_csv())
