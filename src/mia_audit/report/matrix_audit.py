"""An audit of score matrices without a workflow, from membership and signals to the report."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from mia_audit.attacks.design import recognise
from mia_audit.attacks.io.checks import check_coins
from mia_audit.attacks.io.matrices import MatrixFiles, parse_given
from mia_audit.attacks.io.parquet import GIVEN, SignalsFile, readings_metadata, write_scores
from mia_audit.attacks.io.population import population_files, with_population
from mia_audit.attacks.run import Run, permuted_membership, plan
from mia_audit.errors import UserError
from mia_audit.evaluation.bounds_table import bounds_table
from mia_audit.evaluation.exposure import exposure
from mia_audit.evaluation.files import KEYS, Scored, flat, metrics_table, read_scores
from mia_audit.evaluation.model_counts import MODEL_COUNTS, model_counts
from mia_audit.evaluation.run import score_and_evaluate
from mia_audit.evaluation.summary import summarise
from mia_audit.regular_files import private_folder
from mia_audit.report.data.handed_on import by_base_name
from mia_audit.report.terminal import answer_text
from mia_audit.sanitise import csv
from mia_audit.sections import NAME
from mia_audit.storage import read_frame, sha256, write_table, write_text
from mia_audit.storage.manifest import write_manifest

WRITTEN = (
    *("scores.parquet", "metrics.parquet", "metrics.csv", "summary.csv", "exposure.csv", "epsilon.csv"),
    *("tables", "figures", "report.html", "provenance.json"),
)
"""What an audit of matrices writes into its folder, which may hold other things."""

if TYPE_CHECKING:
    from mia_audit.report.data.results import Results


@dataclass(frozen=True)
class Request:
    """The arguments of `mia-audit audit`; `config` is what the provenance says of them."""

    table: Path | None
    """A signals.parquet, instead of a membership and signals in matrix files."""
    membership: str | None
    signals: Sequence[str]
    out: Path
    attacks: Sequence[str]
    likelihoods: Sequence[str]
    fprs: Sequence[float]
    confidence: float
    delta: float
    design: str
    seed: int
    name: str
    exposed: int
    threads: int
    report: bool
    config: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    """The keys that attacks declare."""
    stated: bool = False
    """Whether the attacks were asked for by name: those that find nothing to read are then reported."""


def audit(request: Request) -> str:
    """Write scores.parquet, metrics.parquet and .csv, summary.csv, exposure.csv, epsilon.csv, tables/, figures/ and report.html.

    Return the answer for a terminal: the report's, or the strongest attack where none was asked for, and what was written.
    """
    if not 0 < request.delta < 1:
        raise UserError(f"--delta {request.delta:g}: expected a number between 0 and 1")
    if not NAME.fullmatch(request.name):
        raise UserError(
            f"--name '{request.name}': files are named after it: use letters, digits, '.', '_' and '-' and begin with a letter or digit"
        )
    source = SignalsFile(request.table) if request.table else _matrices(request)
    if request.design == "bernoulli":
        check_coins(source.member, "--design bernoulli")
    runs = plan(request.attacks, source.signals, request.likelihoods)
    if not runs:
        raise UserError(f"none of the attacks ({', '.join(request.attacks)}) reads any of the signals")
    created = [folder for folder in (request.out, *request.out.parents) if not os.path.lexists(folder)]
    try:
        _write(request, source, runs)
    except BaseException:
        for folder in created:
            with suppress(OSError):  # not there, or not empty
                folder.rmdir()
        raise
    return answer_text(request.out) if request.report else _strongest_text(request.out)


def _strongest_text(out: Path) -> str:
    """Say what the strongest attack reaches, and which files there are."""
    metrics = read_frame(out / "metrics.parquet", "metrics")
    attack, signal, likelihood = strongest(metrics)
    chosen = metrics.filter(attack=attack, signal=signal, likelihood=likelihood, null_control=False)
    with_likelihood = "" if likelihood == "none" else f" ({likelihood})"
    written = ", ".join(name for name in WRITTEN if (out / name).exists())
    return (
        f"Strongest attack: {attack} on {signal}{with_likelihood}, AUC {chosen['auc'].mean():.3f} over {len(chosen)} models as targets;"
        f" guessing has 0.5.\nWritten to {out}: {written}"
    )


def _matrices(request: Request) -> MatrixFiles:
    return MatrixFiles(str(request.membership), [parse_given(text) for text in request.signals])


def strongest(metrics: pl.DataFrame) -> tuple[str, str, str]:
    """Return attack, signal and likelihood of the largest mean AUC over targets."""
    real = metrics.filter(~pl.col("null_control"))
    means = real.group_by("attack", "signal", "likelihood", maintain_order=True).agg(pl.col("auc").mean())
    attack, signal, likelihood, _ = means.row(int(means["auc"].arg_max() or 0))
    return attack, signal, likelihood


def exposure_table(scored: Scored, columns: dict[str, np.ndarray]) -> pl.DataFrame:
    """Return the exposures of records under one attack, the most exposed first."""
    named = [pl.lit(value).alias(name) for name, value in zip(KEYS, scored.key[:3], strict=False)]
    return pl.DataFrame({"record": scored.record, **columns}).with_columns(named).sort("rank")


def _write(request: Request, source: SignalsFile | MatrixFiles, runs: list[Run]) -> None:
    out: Path = request.out
    private_folder(out)
    null = permuted_membership(source.member, request.seed, request.name)
    rows: list[dict[str, Any]] = []
    options = with_population(request.options, source.models)

    def scored() -> Iterator[Any]:
        for evaluated in score_and_evaluate(
            runs, source, null, request.fprs, request.confidence, max(1, request.threads), options
        ):
            rows.extend(evaluated.rows)
            yield evaluated.run, evaluated.member, evaluated.scores

    metadata = {"seed": request.seed, "dataset": request.name, **recognise(source.member).metadata}
    files = [request.table] if request.table else source.files  # type: ignore[union-attr]
    metadata |= readings_metadata(request.attacks if request.stated else (), source.signals, source.derived)
    metadata[GIVEN] = by_base_name({str(file): sha256(file) for file in files if file.is_file()})
    metadata[GIVEN] |= population_files(request.options)
    write_scores(out / "scores.parquet", scored(), runs, source.record, range(source.models), metadata)
    metrics = metrics_table(rows)
    write_table(
        out / "metrics.parquet",
        metrics.to_arrow(),
        "metrics",
        len(metrics),
        metadata
        | {
            "confidence": request.confidence,
            MODEL_COUNTS: model_counts(metrics, source, request.fprs),
        },
    )
    write_text(out / "metrics.csv", csv(flat(metrics)))
    write_text(out / "summary.csv", csv(summarise(metrics, request.confidence)))
    best = next(read_scores(out / "scores.parquet", *strongest(metrics)))
    exposures = exposure(best.score, best.member)
    write_text(out / "exposure.csv", csv(exposure_table(best, exposures)))
    bounds = bounds_table(metrics, request.delta, request.confidence, request.design == "bernoulli")
    write_text(out / "epsilon.csv", csv(bounds))
    if request.report:
        _report(request, {best.key[:3]: exposures})
    write_manifest(out, WRITTEN)


def results_of(request: Request, exposures: Mapping[tuple[str, str, str], dict[str, np.ndarray]]) -> Results:
    """Open what an audit of matrices wrote, as tables, figures and page read it; `exposures` are those known of attacks."""
    from mia_audit.report.data.results import Results
    from mia_audit.report.data.spec import Setting, Spec

    setting = Setting(request.name, "signals", "given", "inf", trained=False, design=request.design, folder=".")
    spec = Spec(
        request.name,
        (setting,),
        exposed=request.exposed,
        likelihood=request.likelihoods[0],
        confidence=request.confidence,
        delta=request.delta,
        config=request.config,
    )
    results = Results(request.out, spec)
    results.exposures.update({(setting, attack): columns for attack, columns in exposures.items()})
    return results


def _report(request: Request, exposures: dict[tuple[str, str, str], dict[str, np.ndarray]]) -> None:
    from mia_audit.report.data.find import find
    from mia_audit.report.data.provenance import provenance, write_page
    from mia_audit.report.figures.catalogue import draw
    from mia_audit.report.page.render import render
    from mia_audit.report.tables.catalogue import write

    results = results_of(request, exposures)
    findings = find(results)
    write(results, findings, request.out / "tables")
    draw(results, findings, request.out / "figures")
    sources = provenance(results, findings.settings)
    write_page(request.out / "report.html", render(results, findings, sources), sources, request.config)
