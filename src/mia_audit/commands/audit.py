"""`mia-audit audit`: audit score matrices, without training anything."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.errors import UserError

if TYPE_CHECKING:
    from mia_audit.report.given import GivenSetting

METHODS = ("threshold", "loss-lira", "var-lrt", "l1-lrt", "l2-lrt", "linf-lrt", "lrt")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--table", type=Path, help="signals.parquet, as import writes it, instead of --membership and --signal"
    )
    parser.add_argument("--membership", help="records × models, 0/1 or true/false (.npy, .npz:KEY, .csv, .parquet)")
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
        help="one of several settings: its signals (loss=FILE …), membership, epsilon, delta, mechanism and accuracy (a number, or a"
        " file with one number per model); the setting without privacy comes first",
    )
    parser.add_argument(
        "--settings", type=Path, metavar="FILE", help="the settings in a YAML file (docs/your_models.md)"
    )
    parser.add_argument("--out", required=True, type=Path, help="folder for the audit")
    parser.add_argument("--attacks", nargs="+", metavar="ATTACK", help=f"default: {' '.join(METHODS)}")
    parser.add_argument("--likelihoods", nargs="+", default=["blend"], metavar="LIKELIHOOD", help="default: blend")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key that one of the attacks declares: offline_a=0.5 or offline_a=tuned, population.loss=FILE (config/README.md)",
    )
    parser.add_argument(
        "--fprs", nargs="+", type=float, default=[0.001, 0.01, 0.1], metavar="FPR", help="default: 0.001 0.01 0.1"
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


def run(options: argparse.Namespace) -> None:
    """Call `mia_audit.report.matrix_audit.audit`, and print the answer."""
    from mia_audit.attacks.section import Attacks
    from mia_audit.config.load import parse
    from mia_audit.evaluation.section import Evaluation
    from mia_audit.report.matrix_audit import Request, audit
    from mia_audit.report.section import Report

    settings = _settings(options)
    matrices = bool(options.membership), bool(options.signal)
    single = not any(matrices) if options.table else all(matrices)
    if settings and (options.table or options.signal):
        raise UserError(
            "audit: --signal and --table are for a single setting: give each setting's files in its own --setting"
        )
    if not settings and not single:
        raise UserError(
            "audit: expected --membership and at least one --signal, --table alone, or several of --setting"
        )
    parse(Report, {"exposed": options.exposed}, "audit")
    options.stated = options.attacks is not None
    keys = {"methods": options.attacks or METHODS, "likelihoods": options.likelihoods, **_options(options.option)}
    attacks = parse(Attacks, keys, "audit")
    options.attacks = list(attacks.methods)
    evaluation = parse(Evaluation, {"fprs": options.fprs, "confidence": options.confidence}, "audit")
    config = {
        **({"table": str(options.table)} if options.table else {}),
        **({"membership": options.membership, "signals": options.signal} if single and not options.table else {}),
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
    given["options"] = attacks.model_extra or {}
    print(audit(Request(**{name: given[name] for name in Request.__dataclass_fields__})))


def _settings(options: argparse.Namespace) -> "dict[str, GivenSetting]":
    """Return the settings that the command line or a file names; empty if there is a single one."""
    from mia_audit.config.load import parse
    from mia_audit.config.plain import read_plain
    from mia_audit.report.given import GivenAudit, below, from_words

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


def _options(texts: list[str]) -> dict[str, Any]:
    """Read every KEY=VALUE like a key of a config; KEY.NAME=VALUE is an item of a mapping."""
    values: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        name, dot, item = key.partition(".")
        if not (equals and name and value) or (dot and not item):
            raise UserError(f"--option {text}: expected KEY=VALUE, for example offline_a=tuned")
        read = float(value) if _is_number(value) else value
        if dot:
            values[name] = {**values.get(name, {}), item: read}
        else:
            values[name] = read
    return values


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
