"""`mia-audit audit`: from score matrices to the finished audit, without training anything."""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mia_audit.attacks.files import write_scores
from mia_audit.attacks.matrices import MatrixFiles, parse_given
from mia_audit.attacks.run import Run, permuted_membership, plan
from mia_audit.audit import exposure_table, judge, strongest
from mia_audit.config.load import parse
from mia_audit.config.schema import Attacks, Evaluation
from mia_audit.errors import UserError
from mia_audit.evaluation.bounds import bounds_table
from mia_audit.evaluation.files import metrics_table, read_scores
from mia_audit.evaluation.summary import summarise
from mia_audit.heap import keep_freed_memory
from mia_audit.storage import write_table, write_text

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
        help="loss, confidence, an attribution's …_variance, …_l1, …_l2 or …_linf, or NAME:positive|real:low|high for "
        "any other, saying whether it may be negative and where members lie; records × models (× queries), as the membership",
    )
    parser.add_argument("--out", required=True, type=Path, help="folder for the audit")
    parser.add_argument("--attacks", nargs="+", default=METHODS, metavar="ATTACK", help=f"default: {' '.join(METHODS)}")
    parser.add_argument(
        "--variances", nargs="+", default=["hierarchical"], metavar="VARIANCE", help="default: hierarchical"
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
        help="how membership was drawn; bernoulli allows one-run bounds (half)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the null control (0)")
    parser.add_argument("--name", default="audit", help="what the audit is called (audit)")
    parser.add_argument(
        "--exposed", type=int, default=8, help="how many of the most exposed records the report shows (8)"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=os.cpu_count() or 1,
        help="signals worked on at a time; each needs memory (all cores)",
    )
    parser.add_argument("--no-report", action="store_true", help="tables only")


def run(options: argparse.Namespace) -> None:
    """Write scores.parquet, metrics.parquet, metrics.csv, summary.csv, exposure.csv, epsilon.csv, figures/ and report.html."""
    keep_freed_memory()
    if not 0 < options.delta < 1:
        raise UserError(f"--delta {options.delta:g}: expected a number between 0 and 1")
    attacks = parse(Attacks, {"methods": options.attacks, "variances": options.variances}, "audit")
    evaluation = parse(Evaluation, {"fprs": options.fprs, "confidence": options.confidence}, "audit")
    source = MatrixFiles(options.membership, [parse_given(text) for text in options.signal])
    runs = plan(attacks.methods, source.signals, attacks.variances)
    if not runs:
        raise UserError(f"none of the attacks ({', '.join(attacks.methods)}) reads any of the signals")
    new = not options.out.exists()
    try:
        _write(options, source, runs, attacks, evaluation)
    except BaseException:
        if new and options.out.exists() and not any(options.out.iterdir()):
            options.out.rmdir()
        raise


def _write(
    options: argparse.Namespace, source: MatrixFiles, runs: list[Run], attacks: Attacks, evaluation: Evaluation
) -> None:
    out: Path = options.out
    null = permuted_membership(source.member, options.seed, options.name)
    rows: list[dict[str, Any]] = []

    def scored() -> Iterator[Any]:
        for judged in judge(runs, source, null, evaluation.fprs, evaluation.confidence, max(1, options.threads)):
            rows.extend(judged.rows)
            yield judged.run, judged.member, judged.scores

    facts = {"seed": options.seed, "dataset": options.name}
    write_scores(out / "scores.parquet", scored(), runs, source.record, range(source.models), facts)
    metrics = metrics_table(rows)
    write_table(
        out / "metrics.parquet",
        metrics.to_arrow(),
        "metrics",
        len(metrics),
        facts | {"confidence": evaluation.confidence},
    )
    write_text(out / "metrics.csv", metrics.write_csv())
    write_text(out / "summary.csv", summarise(metrics, evaluation.confidence).write_csv())
    best = next(read_scores(out / "scores.parquet", *strongest(metrics)))
    write_text(out / "exposure.csv", exposure_table(best).write_csv())
    proved = bounds_table(metrics, options.delta, evaluation.confidence, options.design == "bernoulli")
    write_text(out / "epsilon.csv", proved.write_csv())
    if not options.no_report:
        _report(options, attacks, evaluation)


def _report(options: argparse.Namespace, attacks: Attacks, evaluation: Evaluation) -> None:
    from mia_audit.report.figures import draw
    from mia_audit.report.findings import find
    from mia_audit.report.page import render
    from mia_audit.report.provenance import provenance
    from mia_audit.report.results import Results, Setting, Spec
    from mia_audit.storage import write_json

    setting = Setting(options.name, "signals", "none", "inf", trained=False, design=options.design, folder=".")
    config = {
        "membership": options.membership,
        "signals": options.signal,
        "seed": options.seed,
        "attacks": attacks.model_dump(mode="json"),
        "evaluation": evaluation.model_dump(mode="json"),
    }
    spec = Spec(
        options.name,
        (setting,),
        exposed=options.exposed,
        variance=attacks.variances[0],
        confidence=evaluation.confidence,
        config=config,
    )
    results = Results(options.out, spec)
    findings = find(results)
    draw(results, findings, options.out / "figures")
    sources = provenance(results, findings.settings)
    write_json(options.out / "provenance.json", sources)
    write_text(options.out / "report.html", render(results, findings, sources))
