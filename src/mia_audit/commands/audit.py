"""`mia-audit audit`: audit score matrices, without training anything."""

import argparse
import os
from pathlib import Path

METHODS = ("threshold", "loss-lira", "var-lrt", "l1-lrt", "l2-lrt", "linf-lrt", "lrt")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--membership", required=True, help="records × models, 0/1 or true/false (.npy, .npz:KEY, .csv, .parquet)"
    )
    parser.add_argument(
        "--signal",
        required=True,
        action="append",
        metavar="NAME=FILE",
        help="loss, confidence, probability (softmax, of the label), an attribution's …_variance, …_l1, …_l2 or …_linf, "
        "or NAME:positive|real:low|high for "
        "any other: positive where it is never negative, low where members have lower values; records × models (× queries)",
    )
    parser.add_argument("--out", required=True, type=Path, help="folder for the audit")
    parser.add_argument("--attacks", nargs="+", default=METHODS, metavar="ATTACK", help=f"default: {' '.join(METHODS)}")
    parser.add_argument("--likelihoods", nargs="+", default=["blend"], metavar="LIKELIHOOD", help="default: blend")
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
    parser.add_argument(
        "--exposed", type=int, default=8, help="how many of the most exposed records the report shows (8)"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=os.cpu_count() or 1,
        help="signals attacked at a time; each needs memory (all cores)",
    )
    parser.add_argument("--no-report", action="store_true", help="no tables/, figures/ and report.html")


def run(options: argparse.Namespace) -> None:
    """Write scores.parquet, metrics.parquet and .csv, summary.csv, exposure.csv, epsilon.csv, tables/, figures/ and report.html."""
    from mia_audit.attacks.section import Attacks
    from mia_audit.config.load import parse
    from mia_audit.evaluation.section import Evaluation
    from mia_audit.report.matrix_audit import Request, audit
    from mia_audit.report.section import Report

    parse(Report, {"exposed": options.exposed}, "audit")
    attacks = parse(Attacks, {"methods": options.attacks, "likelihoods": options.likelihoods}, "audit")
    evaluation = parse(Evaluation, {"fprs": options.fprs, "confidence": options.confidence}, "audit")
    config = {
        "membership": options.membership,
        "signals": options.signal,
        **{name: getattr(options, name) for name in ("design", "delta", "seed")},
        "attacks": attacks.model_dump(mode="json"),
        "evaluation": evaluation.model_dump(mode="json"),
    }
    given = {**vars(options), "signals": options.signal, "report": not options.no_report, "config": config}
    audit(Request(**{name: given[name] for name in Request.__dataclass_fields__}))
