"""`mia-audit discard`: delete the weights of shadow models whose signals are made."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_shadows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--models", required=True, type=Path, help="folder of the setting's models")
    add_shadows(parser, "discard")
    parser.add_argument(
        "--keep", type=int, default=0, help="models that keep their weights: those numbered below this (0)"
    )
    parser.add_argument("--out", required=True, type=Path, help="a file that says how many were deleted")


def run(options: argparse.Namespace) -> None:
    """Delete the models' files; their tables, their noise's masks and the first model stay."""
    from mia_audit.storage import write_text
    from mia_audit.storage.stamps import parse_range
    from mia_audit.training.stored import discard

    shadows = parse_range(options.shadows, "--shadows")
    write_text(options.out, f"{discard(options.models, shadows, options.keep)} models\n")
