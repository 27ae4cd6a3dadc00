"""An audit of score matrices, from membership and signals to the report, without a workflow."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from mia_audit.attacks.files import write_scores
from mia_audit.attacks.matrices import MatrixFiles, parse_given
from mia_audit.attacks.run import Run, permuted_membership, plan
from mia_audit.config.load import parse
from mia_audit.config.schema import Attacks, Evaluation, Report
from mia_audit.errors import UserError
from mia_audit.evaluation.bounds import bounds_table
from mia_audit.evaluation.exposure import exposure
from mia_audit.evaluation.files import KEYS, Scored, metrics_table, read_scores
from mia_audit.evaluation.summary import summarise
from mia_audit.judging import judge
from mia_audit.storage import write_table, write_text


@dataclass(frozen=True)
class Request:
    """What is to be audited, how, and where to: the arguments of `mia-audit audit`."""

    membership: str
    signals: Sequence[str]
    out: Path
    attacks: Sequence[str]
    variances: Sequence[str]
    fprs: Sequence[float]
    confidence: float
    delta: float
    design: str
    seed: int
    name: str
    exposed: int
    threads: int
    report: bool


def audit(request: Request) -> None:
    """Write scores.parquet, metrics.parquet and .csv, summary.csv, exposure.csv, epsilon.csv, tables/, figures/ and report.html."""
    if not 0 < request.delta < 1:
        raise UserError(f"--delta {request.delta:g}: expected a number between 0 and 1")
    if not request.name or "/" in request.name:
        raise UserError(f"--name '{request.name}': files are named after it; expected a name without /")
    parse(Report, {"exposed": request.exposed}, "audit")
    attacks = parse(Attacks, {"methods": request.attacks, "variances": request.variances}, "audit")
    evaluation = parse(Evaluation, {"fprs": request.fprs, "confidence": request.confidence}, "audit")
    source = MatrixFiles(request.membership, [parse_given(text) for text in request.signals])
    runs = plan(attacks.methods, source.signals, attacks.variances)
    if not runs:
        raise UserError(f"none of the attacks ({', '.join(attacks.methods)}) reads any of the signals")
    made = [folder for folder in (request.out, *request.out.parents) if not os.path.lexists(folder)]
    try:
        _write(request, source, runs, attacks, evaluation)
    except BaseException:
        for folder in made:
            with suppress(OSError):  # not there, or not empty
                folder.rmdir()
        raise


def strongest(metrics: pl.DataFrame) -> tuple[str, str, str]:
    """Return attack, signal and variance of the largest mean AUC over targets."""
    real = metrics.filter(~pl.col("null_control"))
    means = real.group_by("attack", "signal", "variance", maintain_order=True).agg(pl.col("auc").mean())
    attack, signal, variance, _ = means.row(int(means["auc"].arg_max() or 0))
    return attack, signal, variance


def exposure_table(scored: Scored, columns: dict[str, np.ndarray]) -> pl.DataFrame:
    """Return the exposures of records under one attack, the most exposed first."""
    named = [pl.lit(value).alias(name) for name, value in zip(KEYS, scored.key[:3], strict=False)]
    return pl.DataFrame({"record": scored.record, **columns}).with_columns(named).sort("rank")


def _write(request: Request, source: MatrixFiles, runs: list[Run], attacks: Attacks, evaluation: Evaluation) -> None:
    out: Path = request.out
    null = permuted_membership(source.member, request.seed, request.name)
    rows: list[dict[str, Any]] = []

    def scored() -> Iterator[Any]:
        for judged in judge(runs, source, null, evaluation.fprs, evaluation.confidence, max(1, request.threads)):
            rows.extend(judged.rows)
            yield judged.run, judged.member, judged.scores

    facts = {"seed": request.seed, "dataset": request.name}
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
    exposures = exposure(best.score, best.member)
    write_text(out / "exposure.csv", exposure_table(best, exposures).write_csv())
    proved = bounds_table(metrics, request.delta, evaluation.confidence, request.design == "bernoulli")
    write_text(out / "epsilon.csv", proved.write_csv())
    if request.report:
        _report(request, attacks, evaluation, {best.key[:3]: exposures})


def _report(
    request: Request,
    attacks: Attacks,
    evaluation: Evaluation,
    exposures: dict[tuple[str, str, str], dict[str, np.ndarray]],
) -> None:
    from mia_audit.report import tables
    from mia_audit.report.figures import draw
    from mia_audit.report.findings import find
    from mia_audit.report.page import render
    from mia_audit.report.provenance import provenance
    from mia_audit.report.results import Results, Setting, Spec
    from mia_audit.storage import write_json

    setting = Setting(request.name, "signals", "given", "inf", trained=False, design=request.design, folder=".")
    config = {
        "membership": request.membership,
        "signals": list(request.signals),
        "design": request.design,
        "delta": request.delta,
        "seed": request.seed,
        "attacks": attacks.model_dump(mode="json"),
        "evaluation": evaluation.model_dump(mode="json"),
    }
    spec = Spec(
        request.name,
        (setting,),
        exposed=request.exposed,
        variance=attacks.variances[0],
        confidence=evaluation.confidence,
        delta=request.delta,
        config=config,
    )
    results = Results(request.out, spec)
    results.exposures.update({(setting, attack): columns for attack, columns in exposures.items()})
    findings = find(results)
    tables.write(tables.build(results, findings), request.out / "tables", spec)
    draw(results, findings, request.out / "figures")
    sources = provenance(results, findings.settings)
    write_json(request.out / "provenance.json", sources)
    write_text(request.out / "report.html", render(results, findings, sources))
