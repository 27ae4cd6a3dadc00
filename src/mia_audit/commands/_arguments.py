"""Arguments that several subcommands share."""

import argparse
from pathlib import Path

from mia_audit.config.specs import Spec
from mia_audit.learners.protocol import Compute
from mia_audit.planning.requests import RunFile


def add_spec(parser: argparse.ArgumentParser, model: type[Spec]) -> None:
    """Declare --spec, the JSON file of a stage's specification."""
    keys = ", ".join(name if field.is_required() else f"[{name}]" for name, field in model.model_fields.items())
    summary = (model.__doc__ or "").rstrip(".")
    parser.add_argument(
        "--spec", required=True, type=Path, metavar="FILE", help=f"{summary}, as a JSON file with the keys {keys}"
    )


def add_pool(parser: argparse.ArgumentParser) -> None:
    """Declare --pool, the folder of a pool."""
    parser.add_argument("--pool", required=True, type=Path, help="folder of the pool")


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Declare --threads."""
    parser.add_argument("--threads", type=int, default=1, help="threads of this process (1)")


def add_device(parser: argparse.ArgumentParser) -> None:
    """Declare --threads and --device."""
    add_threads(parser)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (auto)")


def add_batch(parser: argparse.ArgumentParser) -> None:
    """Declare --batch, which bounds the memory used by records."""
    parser.add_argument("--batch", type=int, default=256, help="records in memory at once, with their gradients (256)")


def add_run(parser: argparse.ArgumentParser) -> None:
    """Declare --threads and --run, the file that says how the jobs of an audit compute."""
    add_threads(parser)
    parser.add_argument(
        "--run",
        type=Path,
        metavar="FILE",
        help="JSON file with the config's section compute: device, micro_batch, checkpoint_seconds, … (their defaults)",
    )


def add_shadows(parser: argparse.ArgumentParser, verb: str) -> None:
    """Declare --shadows, the numbers of a job's models."""
    parser.add_argument("--shadows", required=True, metavar="FIRST-LAST", help=f"shadow models to {verb}, such as 0-8")


def add_stamp(parser: argparse.ArgumentParser) -> None:
    """Declare --stamp, a file that marks the job as finished for the workflow."""
    parser.add_argument(
        "--stamp",
        type=Path,
        help="file for the models' keys, named after the first and last model; written when the job ends",
    )


def computing(run: RunFile, threads: int) -> Compute:
    """Return how a job computes by its run file."""
    stated = run.compute
    return Compute(stated.device, threads, stated.micro_batch)


def compute_of(options: argparse.Namespace) -> Compute:
    """Return the values of --device, --threads and --batch."""
    return Compute(options.device, options.threads, options.batch)
