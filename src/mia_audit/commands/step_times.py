"""`mia-audit step-times`: write the time of a training step in every setting, compared with dp-sgd and with no privacy."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_spec
from mia_audit.config.specs import StepTimesSpec
from mia_audit.sanitise import csv


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, StepTimesSpec)
    parser.add_argument(
        "--times", type=Path, required=True, help="folder of the tables that mia-audit train wrote with --step-times"
    )
    parser.add_argument("--out", type=Path, required=True, help="CSV file for the table; times differ between runs")


def run(options: argparse.Namespace) -> None:
    """Write the median step time over a setting's models, and its ratios to `none` and `dp-sgd` on the same architecture."""
    import polars as pl

    from mia_audit.storage import write_text
    from mia_audit.training.step_times import Timed, step_times

    spec = StepTimesSpec.read(options.spec)
    settings = [Timed(**setting.model_dump()) for setting in spec.settings]
    table = step_times(options.times, settings, spec.models)
    floats = [name for name, kind in table.schema.items() if kind == pl.Float64]
    rounded = [pl.col(name).map_elements(lambda value: f"{value:.3g}", return_dtype=pl.String) for name in floats]
    write_text(options.out, csv(table.with_columns(rounded)))
