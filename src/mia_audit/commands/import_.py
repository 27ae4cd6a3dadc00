"""`mia-audit import`: convert files of other tools to a signals.parquet."""

import argparse
from pathlib import Path

import numpy as np

from mia_audit.attacks.io.layouts import LAYOUTS, from_logits
from mia_audit.attacks.io.published import parse_where, write_signals
from mia_audit.errors import UserError
from mia_audit.storage import atomic_write, check_out
from mia_audit.storage.digests import state

READ_BY = {"where": ("per-model-csv",), "labels": ("carlini",), "membership": ()}
"""The layouts with which an option is read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("folder", type=Path, nargs="?", help="folder with the files, for --layout")
    parser.add_argument("--layout", choices=LAYOUTS, help="the tool that wrote the files, or their layout")
    parser.add_argument(
        "--logits",
        type=Path,
        help="logits in a .npy file, instead of a folder: records × models (× queries) × classes, or models × records …",
    )
    parser.add_argument(
        "--labels", type=Path, help="labels of the records (.npy), for --logits and layouts without labels"
    )
    parser.add_argument(
        "--membership", type=Path, help="membership for --logits: records × models, or models × records"
    )
    parser.add_argument(
        "--temperatures",
        type=float,
        nargs="+",
        default=[],
        metavar="T",
        help="for --logits: temperatures T at which the loss of the softmax of logits / T is added, for rmia (its paper uses 2)",
    )
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="read only folders with this value of a key (dataset, model, mode …)",
    )
    parser.add_argument("--out", required=True, type=Path, help="signals.parquet")


def run(options: argparse.Namespace) -> None:
    """Write signals.parquet, and next to it the losses of a population if the files have one."""
    if min(options.temperatures, default=1) <= 0:
        raise UserError("--temperatures: expected positive numbers")
    if options.temperatures and not options.logits:
        raise UserError("--temperatures: only logits have a temperature; expected --logits, --labels and --membership")
    if options.logits:
        if options.folder or options.layout or not (options.labels and options.membership):
            raise UserError("--logits: expected --labels and --membership with it, and neither a folder nor --layout")
        if options.where:
            raise UserError("--where: only layouts have folders to choose from; leave it out")
        check_out(options.out, options.logits, options.labels, options.membership)
        write_signals(
            options.out,
            from_logits(options.logits, options.labels, options.membership, options.temperatures),
            str(options.logits),
        )
        return
    if not (options.folder and options.layout):
        raise UserError("import: expected a folder and --layout, or --logits, --labels and --membership")
    for name, layouts in READ_BY.items():
        if getattr(options, name) and options.layout not in layouts:
            raise UserError(f"--{name}: --layout {options.layout} does not read it; leave it out")
    if not options.folder.is_dir():
        raise UserError(f"{options.folder}: no such folder")
    where = parse_where(options.where)
    check_out(options.out, options.labels)
    inside = options.out.exists() and options.out.resolve().is_relative_to(options.folder.resolve())
    if inside and state(options.out) == "absent":  # no earlier import wrote it
        raise UserError(f"{options.out}: would overwrite a file of the folder that is read; choose another --out")
    published = LAYOUTS[options.layout](options.folder, where, options.labels)
    file = options.out.with_name(f"{options.out.stem}_population.npy")
    if published.population is not None:
        check_out(file, options.labels)
    write_signals(options.out, published, str(options.folder))
    if published.population is not None:
        with atomic_write(file) as partial:
            np.save(partial, published.population)
        print(f"{file}: RMIA's population; read it with population.loss={file}")
