"""`mia-audit tune`: release the best of a random number of private training runs."""

import argparse
from collections.abc import Callable
from typing import Any

from mia_audit.commands._arguments import compute_of
from mia_audit.commands.release import add_release
from mia_audit.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_release(parser)
    parser.add_argument(
        "--learning-rates", default="", metavar="LIST", help="learning rates to try, such as 0.001,0.003"
    )
    parser.add_argument("--batches", default="", metavar="LIST", help="batches to try, such as 64,256")
    parser.add_argument("--clip-norms", default="", metavar="LIST", help="norms of flat clipping to try, such as 0.5,1")
    parser.add_argument("--runs", type=float, default=10.0, help="mean of the random number of training runs (10)")
    parser.add_argument(
        "--shape",
        type=float,
        default=1.0,
        help="η of the truncated negative binomial; 0: logarithmic, 1: geometric (1)",
    )


def run(options: argparse.Namespace) -> None:
    """Charge the whole selection, train a random number of times, and write the best model, its card and SHA256SUMS."""
    if not 1 <= options.runs <= 10_000:
        raise UserError(f"--runs: a number from 1 to 10,000 was expected, not {options.runs:g}")
    if not 0 <= options.shape <= 100:
        raise UserError(f"--shape: a number from 0 to 100 was expected, not {options.shape:g}")
    rates = _listed(options, "learning_rates", float)
    batches = _listed(options, "batches", int)
    norms = _listed(options, "clip_norms", float)
    from mia_audit.commands.release import finished, prepared

    recipe, digest, password = prepared(options)
    from mia_audit.releasing.tuning import Search, tune

    search = Search(rates, batches, norms, options.runs, options.shape)
    finished(options, tune(recipe, search, digest, options.out, compute_of(options), options.to), password)


def _listed(options: argparse.Namespace, name: str, kind: Callable[[str], Any]) -> list[Any]:
    text = getattr(options, name)
    try:
        values = [kind(word) for word in text.split(",") if word.strip()]
    except ValueError:
        values = [0]
    if not all(0 < value < float("inf") for value in values):
        raise UserError(f"--{name.replace('_', '-')}: expected positive numbers separated by commas, not '{text}'")
    return values
