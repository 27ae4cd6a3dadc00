"""`mia-audit answer`: the report's answer in the terminal."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("results", type=Path, help="folder of the audit's results")


def run(options: argparse.Namespace) -> None:
    """Print the opening sentences of the report, its table of settings and the path of the page."""
    from mia_audit.report.terminal import answer_text

    print(answer_text(options.results))
