"""`mia-audit init`: inspect data and a script, ask for what cannot be read from them, and write a config that runs."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.errors import UserError

if TYPE_CHECKING:
    from mia_audit.config.schema import Audit
    from mia_audit.planning.look import Looked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("data", type=Path, help="a table (.csv, .parquet), a folder of images, or a folder of arrays")
    parser.add_argument("--name", default="", help="name of the audit and of its file (the name of the data)")
    parser.add_argument("--label", default="", help="the table's column that holds the class")
    parser.add_argument("--drop", nargs="*", default=[], metavar="COLUMN", help="columns to leave out, such as ids")
    parser.add_argument(
        "--keep",
        nargs="*",
        default=[],
        metavar="COLUMN",
        help="columns to keep as features although they look like ids",
    )
    parser.add_argument(
        "--person", default="", metavar="COLUMN", help="the table's column with the person of every record"
    )
    parser.add_argument(
        "--impute",
        nargs="*",
        default=[],
        metavar="COLUMN=CONSTANT",
        help="the constant that replaces missing values of a column",
    )
    parser.add_argument(
        "--model", default="", help="train.py, package.module:Class, or any built-in model (a small one)"
    )
    parser.add_argument(
        "--outputs",
        choices=["logits", "probabilities", "labels"],
        default="",
        help="what the script's predict returns",
    )
    parser.add_argument("--no-estimate", action="store_true", help="do not time the built-in models")


def run(options: argparse.Namespace) -> None:
    """Write NAME.yaml."""
    from mia_audit.config.load import load_audit
    from mia_audit.planning.first_config import architecture_of, config_path, first_config
    from mia_audit.storage import write_text

    name = options.name or options.data.stem
    path = config_path(name, Path())
    looked = _look(options)
    architecture = architecture_of(looked, options.model, options.outputs)
    write_text(path, first_config(name, looked, architecture))
    try:
        audit = load_audit(path)
        if not options.no_estimate:
            write_text(path, first_config(name, looked, architecture, _estimate(audit, looked)))
    except UserError:
        path.unlink()
        raise
    print(f"{path}: {looked.records} records, {looked.classes} classes; next: mia-audit run {path}")


def _look(options: argparse.Namespace) -> "Looked":
    from mia_audit.planning.look import columns_of, label_of, look_at_folder, look_at_table
    from mia_audit.pools.columns import identifiers

    if not options.data.exists():
        raise UserError(f"{options.data}: no such file or folder; expected a table, or a folder of images or arrays")
    if options.data.is_dir():
        return look_at_folder(options.data)
    frame = columns_of(options.data)
    label = label_of(frame, options.label or _asked_label(frame.columns))
    said = dict.fromkeys(options.drop, "drop") | dict.fromkeys(options.keep, "feature")
    impute = dict(_constant(text) for text in options.impute)
    named = [*said, *impute, *([options.person] if options.person else [])]
    unknown = [name for name in named if name not in frame.columns]
    if unknown:
        raise UserError(f"{options.data}: no column '{unknown[0]}'; it has {', '.join(frame.columns)}")
    for column, why in identifiers(frame, {label, options.person, *said}).items():
        said[column] = "drop" if _asked(column, why) else "feature"
    more = {"person": options.person, "impute": impute}
    return look_at_table(options.data, frame, label, said, {key: value for key, value in more.items() if value})


def _constant(text: str) -> tuple[str, float | str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise UserError(f"--impute {text}: expected COLUMN=CONSTANT")
    try:
        return name, float(value)
    except ValueError:
        return name, value


def _asked_label(columns: list[str]) -> str:
    """Ask for the class column if the terminal is interactive and no column has a usual name."""
    from mia_audit.planning.look import LABELS

    if not sys.stdin.isatty() or any(name.lower() in LABELS for name in columns):
        return ""
    return input(f"Which column holds the class ({', '.join(columns)})? ").strip()


def _asked(column: str, why: str) -> bool:
    """Ask whether to drop a column; UserError if the terminal is not interactive."""
    if not sys.stdin.isatty():
        raise UserError(
            f"column '{column}' looks like an identifier, by {why}: give --drop {column}, --person {column} if it"
            f" names the record's person, or --keep {column} to train on it"
        )
    answer = input(f"Column '{column}' looks like an identifier, by {why}. Drop it? [Y/n] ")
    return answer.strip().lower() not in ("n", "no")


def _estimate(audit: "Audit", looked: "Looked") -> str:
    """Return a sentence on the cost of an audit on this machine. For the user's own code it states only the number of models to train."""
    from mia_audit.planning.estimate import estimate, models_of
    from mia_audit.planning.sizes import Size, human

    section = next(iter(audit.datasets.values()))
    sizes = {
        name: Size(looked.records - section.public, section.public, looked.shape, looked.classes)
        for name in audit.datasets
    }
    models = models_of(audit, sizes)
    if not models:
        return f"The audit trains your model {audit.membership.models} times, and then queries each trained model on all records."
    from mia_audit.planning.costs import Costs
    from mia_audit.runtime.device import device_for

    device = device_for(audit.compute.threads, audit.compute.device)
    plan = estimate(audit, sizes, models, Costs(audit.compute.micro_batch, device), {})
    minutes = max(1, round(plan.total / 60))
    return f"About {minutes} minutes of one process on this machine, excluding start-up, and {human(sum(plan.disk.values()))} on disk."
