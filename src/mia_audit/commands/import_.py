"""`mia-audit import`: convert published score files to a signals.parquet."""

import argparse
from pathlib import Path

from mia_audit.attacks.io.published import LAYOUTS, write_signals
from mia_audit.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("folder", type=Path, help="folder with the files")
    parser.add_argument("--layout", required=True, choices=LAYOUTS, help="how the files are laid out")
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="keep the folders with this value (dataset, model, mode …)",
    )
    parser.add_argument("--out", required=True, type=Path, help="signals.parquet")


def run(options: argparse.Namespace) -> None:
    """Write signals.parquet."""
    if not options.folder.is_dir():
        raise UserError(f"{options.folder}: no such folder")
    where = {}
    for text in options.where:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--where {text}: expected KEY=VALUE")
        where[key] = value
    write_signals(options.out, LAYOUTS[options.layout](options.folder, where))
