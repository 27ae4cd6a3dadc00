"""`mia-audit discard`: delete the weights of shadow models whose signals are computed."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_shadows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--models", required=True, type=Path, help="folder of the setting's models")
    add_shadows(parser, "discard")
    parser.add_argument("--keep", type=int, default=0, help="number of first models that keep their weights (0)")
    parser.add_argument("--out", required=True, type=Path, help="a file with the number of deleted models")


def run(options: argparse.Namespace) -> None:
    """Delete the models' files, but keep their tables, the masks of their noise and the first model."""
    from mia_audit.storage import write_text
    from mia_audit.storage.stamps import parse_range
    from mia_audit.training.stored import discard

    shadows = parse_range(options.shadows, "--shadows")
    write_text(options.out, f"{discard(options.models, shadows, options.keep)} models\n")
