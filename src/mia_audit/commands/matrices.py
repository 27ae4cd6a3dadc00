"""Commands for models trained elsewhere: draw their membership, import what they answered, audit score matrices."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.attacks.io.layouts import LAYOUTS, from_logits, parse_where, write_signals
from mia_audit.errors import UserError
from mia_audit.storage import atomic_write, check_out
from mia_audit.storage.digests import state

if TYPE_CHECKING:
    from mia_audit.report.spec import GivenSetting

METHODS = ("threshold", "loss-lira", "var-lrt", "l1-lrt", "l2-lrt", "linf-lrt", "lrt")
LIKELIHOODS = ("blend",)
FPRS = (0.001, 0.01, 0.1)
"""The defaults of an audit of matrices, from Python too."""


def audit_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--table", type=Path, help="signals.parquet of import, instead of --membership and --signal")
    parser.add_argument("--membership", help="records × models, 0/1 or true/false (.npy, .npz:KEY, .csv, .parquet)")
    parser.add_argument(
        "--person",
        metavar="FILE",
        help="the person of every row of the matrices, one per line (or a .npy array), if membership was drawn by person",
    )
    parser.add_argument(
        "--signal",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a signal, records × models (× queries). Its name is loss, confidence, probability (softmax of the label), or an"
        " attribution's …_variance, …_l1, …_l2 or …_linf. Any other signal is given as NAME:positive|real:low|high: positive if it"
        " is never negative, low if members have lower values",
    )
    parser.add_argument(
        "--setting",
        action="append",
        default=[],
        metavar="'NAME: KEY=VALUE …'",
        help="one of several settings: its signals (loss=FILE …), membership, person, epsilon, delta, mechanism and accuracy (a number, or a"
        " file with one number per model); the setting without privacy comes first",
    )
    parser.add_argument("--settings", type=Path, metavar="FILE", help="settings in a YAML file (docs/how-to/models.md)")
    parser.add_argument("--out", required=True, type=Path, help="folder for the audit")
    parser.add_argument("--attacks", nargs="+", action="extend", metavar="ATTACK", help=f"default: {' '.join(METHODS)}")
    parser.add_argument(
        "--likelihoods", nargs="+", action="extend", metavar="LIKELIHOOD", help=f"default: {' '.join(LIKELIHOODS)}"
    )
    parser.add_argument(
        "--leave-out",
        nargs="+",
        action="extend",
        type=int,
        default=[],
        metavar="MODEL",
        help="models, by number from 0, to leave out",
    )
    parser.add_argument(
        "--fprs", nargs="+", action="extend", type=float, metavar="FPR", help=f"default: {' '.join(map(str, FPRS))}"
    )
    parser.add_argument("--confidence", type=float, default=0.95, help="level of the intervals (0.95)")
    parser.add_argument("--delta", type=float, default=1e-5, help="δ of the lower bounds on ε (1e-5)")
    parser.add_argument(
        "--design",
        choices=["half", "bernoulli"],
        default="half",
        help="how membership was drawn; bernoulli allows one-run bounds on ε (half)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the null control (0)")
    parser.add_argument("--name", default="audit", help="name of the audit (audit)")
    parser.add_argument("--exposed", type=int, default=8, help="number of most exposed records in the report (8)")
    parser.add_argument(
        "--threads",
        type=int,
        default=os.cpu_count() or 1,
        help="signals attacked at a time; each needs memory (all cores)",
    )
    parser.add_argument("--no-report", action="store_true", help="do not write tables/, figures/ and report.html")


def run_audit(options: argparse.Namespace) -> None:
    """Call `mia_audit.report.matrix_audit.audit`, and print the answer."""
    from mia_audit.attacks.catalogue import Attacks
    from mia_audit.config.load import parse
    from mia_audit.evaluation.section import Evaluation
    from mia_audit.report.matrix_audit import Request, audit
    from mia_audit.report.spec import Report

    settings = _settings(options)
    matrices = bool(options.membership), bool(options.signal)
    single = not any(matrices) if options.table else all(matrices)
    if settings and (options.table or options.signal):
        raise UserError("audit: --signal and --table are for a single setting: give each one's files in its --setting")
    if options.table and options.person:
        raise UserError("audit: --person is for matrices; a table names persons in a column `person`")
    if not settings and not single:
        raise UserError("audit: expected --membership and at least one --signal, --table alone, or several --setting")
    parse(Report, {"exposed": options.exposed}, "audit")
    options.stated = options.attacks is not None
    options.likelihoods = options.likelihoods or list(LIKELIHOODS)
    options.fprs = options.fprs or list(FPRS)
    keys = {"methods": options.attacks or METHODS, "likelihoods": options.likelihoods, "leave_out": options.leave_out}
    attacks = parse(Attacks, keys, "audit")
    options.attacks = list(attacks.methods)
    evaluation = parse(Evaluation, {"fprs": options.fprs, "confidence": options.confidence}, "audit")
    config = {
        **({"table": str(options.table)} if options.table else {}),
        **({"membership": options.membership, "signals": options.signal} if single and not options.table else {}),
        **({"person": options.person} if options.person else {}),
        **(
            {"settings": {name: one.model_dump(mode="json", exclude_defaults=True) for name, one in settings.items()}}
            if settings
            else {}
        ),
        **{name: getattr(options, name) for name in ("design", "delta", "seed")},
        "attacks": attacks.model_dump(mode="json"),
        "evaluation": evaluation.model_dump(mode="json"),
    }
    given = {**vars(options), "signals": options.signal, "report": not options.no_report, "config": config}
    given["settings"] = settings
    print(audit(Request(**{name: given[name] for name in Request.__dataclass_fields__})))


def _settings(options: argparse.Namespace) -> "dict[str, GivenSetting]":
    """Return the settings that the command line or a file names; empty if there is a single one."""
    from mia_audit.config.load import parse, read_plain
    from mia_audit.report.spec import GivenAudit, below, from_words

    if not (options.setting or options.settings):
        return {}
    if options.setting and options.settings:
        raise UserError("audit: expected --setting or --settings, not both")
    if options.settings:
        file = str(options.settings)
        return below(options.settings.parent, parse(GivenAudit, read_plain(options.settings), file)).settings
    values: dict[str, Any] = {}
    for text in options.setting:
        try:
            name, keys = from_words(text)
        except ValueError as error:
            raise UserError(f"--setting '{text}': {error}") from None
        if name in values:
            raise UserError(f"--setting {name}: given twice")
        values[name] = keys
    return parse(GivenAudit, {"settings": values}, "--setting").settings


READ_BY = {"where": ("per-model-csv",), "labels": ("carlini",), "membership": ()}
"""The layouts with which an option is read."""


def import_arguments(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument("--membership", type=Path, help="membership for --logits: records × models or models × records")
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="read only folders with this value of a key (dataset, model, mode …)",
    )
    parser.add_argument("--out", required=True, type=Path, help="signals.parquet")


def run_import(options: argparse.Namespace) -> None:
    """Write signals.parquet."""
    if options.logits:
        if options.folder or options.layout or not (options.labels and options.membership):
            raise UserError("--logits: expected --labels and --membership with it, and neither a folder nor --layout")
        if options.where:
            raise UserError("--where: only layouts have folders to choose from; leave it out")
        check_out(options.out, options.logits, options.labels, options.membership)
        write_signals(options.out, from_logits(options.logits, options.labels, options.membership), str(options.logits))
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
    write_signals(options.out, published, str(options.folder))


def draw_membership_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", required=True, type=int, metavar="N", help="records to train models on")
    parser.add_argument("--models", required=True, type=int, metavar="K", help="models; 16 or more for a first answer")
    parser.add_argument(
        "--person",
        type=Path,
        metavar="FILE",
        help="the person of every record, one per line (or a .npy array); all of a person's records are then in a training set, or none of them",
    )
    parser.add_argument(
        "--design",
        choices=["half", "bernoulli"],
        default="half",
        help="half: a random half of the records per model; bernoulli: a fair coin per record, which allows one-run bounds on ε (half)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (0)")
    parser.add_argument("--out", required=True, type=Path, help="records × models, true or false (.npy)")


def run_draw_membership(options: argparse.Namespace) -> None:
    """Write the membership, and print how to use it."""

    from mia_audit.attacks.io.parquet import LEAST_MODELS
    from mia_audit.config.load import parse
    from mia_audit.pools.persons import Persons, read_ids
    from mia_audit.pools.section import Membership
    from mia_audit.pools.store import draw_membership

    if options.records < 2:
        raise UserError(f"--records {options.records}: expected two or more")
    if options.models < LEAST_MODELS:
        raise UserError(f"--models {options.models}: attacks need at least {LEAST_MODELS}")
    if options.out.suffix != ".npy":
        raise UserError(f"--out {options.out}: expected a file that ends in .npy")
    section = parse(Membership, {"design": options.design, "models": options.models}, "draw-membership")
    persons = Persons.numbered(read_ids(options.person, options.records)) if options.person else None
    units = options.records if persons is None else len(persons)
    member = draw_membership(section, units, "drawn", options.seed)
    if persons is not None:
        member = persons.spread(member)
    with atomic_write(options.out) as path:
        np.save(path, member)
    of = f" of {units} persons" if persons is not None else ""
    audited = f"; audit with --person {options.person}" if persons is not None else ""
    print(
        f"{options.out}: {options.records} records{of} × {options.models} models; train model k on the records with"
        f" numpy.load('{options.out}')[:, k]{audited}"
    )
