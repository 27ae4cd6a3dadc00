"""An audit of score matrices without a workflow, from membership and signals to the report."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from mia_audit.attacks.catalogue import AUTHORS, AttackRun, asked, permuted_membership, plan
from mia_audit.attacks.design import RECORDS, recognise, unit_of
from mia_audit.attacks.io.matrices import MatrixFiles, parse_signal_file, read_column
from mia_audit.attacks.io.outliers import without_left_out
from mia_audit.attacks.io.parquet import (
    GIVEN,
    TARGET,
    SignalsFile,
    check_coins,
    readings_metadata,
    warn_of_persons,
    write_scores,
)
from mia_audit.errors import UserError
from mia_audit.evaluation.epsilon_bounds import bounds_table
from mia_audit.evaluation.exposure import HALVES, Halves, estimated, exposure_columns
from mia_audit.evaluation.files import FILE_KEYS, flat, headline_unit, metrics_table, read_scores, summarise
from mia_audit.evaluation.intervals import OverTargets
from mia_audit.evaluation.run import MODEL_COUNTS, in_halves, model_counts, ranked, score_and_evaluate
from mia_audit.evaluation.selection import after_selection
from mia_audit.privacy.catalogue import Terms
from mia_audit.regular_files import private_folder
from mia_audit.report.answer import ANSWER, answer_text
from mia_audit.report.findings import ALONE, Estimate, silence
from mia_audit.report.formatting import fixed, interval
from mia_audit.report.provenance import by_base_name
from mia_audit.report.spec import GivenSetting
from mia_audit.sanitise import announce, csv
from mia_audit.sections import NAME
from mia_audit.storage import check_out, open_table, read_frame, sha256, table_metadata, write_table, write_text
from mia_audit.storage.digests import write_manifest
from mia_audit.storage.tables import diverged_metadata
from mia_audit.training.report import Epoch, TrainingReport, training_table

if TYPE_CHECKING:
    from mia_audit.report.results import Results
    from mia_audit.report.spec import AuditedSetting

REPORTED = ("tables", "figures", "report.html", ANSWER, "provenance.json")
"""The outputs of an audit's report."""
WRITTEN = (
    *("scores.parquet", "metrics.parquet", "metrics.csv", "summary.csv", "exposure.csv", "epsilon.csv"),
    *REPORTED,
)
"""The outputs of an audit of matrices in its folder, which may contain other files."""


@dataclass(frozen=True)
class Request:
    """The arguments of `mia-audit audit`; the provenance records them as `config`."""

    table: Path | None
    """A signals.parquet, instead of a membership and signals in matrix files."""
    membership: str | None
    person: str | None
    """The file of every record's person, for membership and signals in matrix files."""
    signals: Sequence[str]
    out: Path
    attacks: Sequence[str]
    likelihoods: Sequence[str]
    leave_out: Sequence[int]
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
    stated: bool = False
    """Whether the attacks were asked for by name; if so, attacks without a signal to read are reported."""
    settings: Mapping[str, GivenSetting] = field(default_factory=dict)
    """Several settings by name, each with its own folder, instead of `table` or `membership` and `signals` for a single one."""


@dataclass(frozen=True)
class Part:
    """One setting of an audit of matrices, with what was given for it and its folder; if it is the only one, its name is empty."""

    name: str
    given: GivenSetting
    source: SignalsFile | MatrixFiles
    runs: list[AttackRun]
    out: Path
    accuracy: np.ndarray | None = None
    """Test accuracies of the models, or one for all of them."""

    @property
    def files(self) -> list[Path]:
        """The files that membership, persons and signals are read from."""
        return [Path(self.given.table)] if isinstance(self.source, SignalsFile) else self.source.files


def audit(request: Request) -> str:
    """Write scores.parquet, metrics.parquet and .csv, summary.csv, exposure.csv, epsilon.csv, tables/, figures/ and report.html.

    Return the answer for a terminal: the report's or, without a report, the strongest attack; then the files written.
    """
    if not 0 < request.delta < 1:
        raise UserError(f"--delta {request.delta:g}: expected a number between 0 and 1")
    if not NAME.fullmatch(request.name):
        raise UserError(
            f"--name '{request.name}': it names files; expected letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    for name in () if request.report else REPORTED:
        if (request.out / name).exists():
            raise UserError(
                f"{request.out / name}: of an earlier audit, and would not belong to the new scores; choose another --out, or leave out"
                " --no-report, which writes it anew"
            )
    parts = [_part(request, name, given) for name, given in settings_of(request).items()]
    read = [file for part in parts for file in part.files]
    for path in (part.out / name for part in parts for name in WRITTEN):
        if path.suffix:
            check_out(path, *read)
    folders = (*(part.out for part in parts if part.name), request.out, *request.out.parents)
    created = [folder for folder in folders if not os.path.lexists(folder)]
    try:
        private_folder(request.out)
        for part in parts:
            _score(request, part)
        if request.report:
            from mia_audit.report.page import publish

            announce("writing tables, figures and report")
            publish(results_of(request))
        write_manifest(request.out, _written(request))
    except BaseException:
        for folder in created:
            with suppress(OSError):  # not there, or not empty
                folder.rmdir()
        raise
    if request.report:
        return answer_text(request.out)
    return "\n".join(
        [
            *(_strongest_text(part, request.confidence) for part in parts),
            f"Written to {request.out}: {', '.join(_written(request))}",
        ]
    )


def _written(request: Request) -> list[str]:
    """List the outputs that are in the folder of an audit."""
    return [name for name in (*WRITTEN, *request.settings) if (request.out / name).exists()]


def settings_of(request: Request) -> dict[str, GivenSetting]:
    """Return the settings by name; if there is only one, its name is empty."""
    if request.settings:
        return dict(request.settings)
    signals: dict[str, str] = {}
    names: set[str] = set()
    for text in request.signals:
        words, _, file = text.partition("=")
        name = parse_signal_file(text).signal.name
        if name in names:
            raise UserError(f"--signal {name}: given twice")
        names.add(name)
        signals[words] = file
    table = str(request.table) if request.table else ""
    return {"": GivenSetting(membership=str(request.membership or ""), signals=signals, table=table)}


def _part(request: Request, name: str, given: GivenSetting) -> Part:
    """Open a setting's files, and plan its attacks; UserError if the files contradict each other."""
    where = f"setting {name}: " if name else ""
    membership = given.membership or str(request.membership or "")
    if given.signals and not membership:
        raise UserError(f"{where}no membership: give --membership, or `membership` in the setting")
    source: SignalsFile | MatrixFiles
    if given.table:
        source = SignalsFile(Path(given.table), request.leave_out)
        if (finished := table_metadata(Path(given.table), "signals").get(TARGET)) is not None:
            print(
                f"mia-audit: {given.table}: model {finished} is a finished model and the only target of its own audit; here every model is one",
                file=sys.stderr,
            )
    else:
        files = [parse_signal_file(f"{signal}={file}") for signal, file in given.signals.items()]
        source = MatrixFiles(membership, files, given.person or request.person or "", request.leave_out)
    if source.persons is None:
        warn_of_persons(source.member, given.table or membership)
    if request.design == "bernoulli":
        persons = source.persons  # where they are known, each was drawn on its own, else each record
        drawn = source.member if persons is None else persons.gathered(source.member, "membership")
        check_coins(drawn, f"{where}--design bernoulli")
    runs = plan(request.attacks, source.signals, request.likelihoods)
    if not runs:
        raise UserError(f"{where}none of the attacks ({', '.join(request.attacks)}) reads any of the signals")
    return Part(
        name=name,
        given=given,
        source=source,
        runs=runs,
        out=request.out / name,
        accuracy=_accuracy(given, source.models, where),
    )


def _accuracy(given: GivenSetting, models: int, where: str) -> np.ndarray | None:
    if given.accuracy is None:
        return None
    if isinstance(given.accuracy, float):
        return np.array([given.accuracy])
    values = read_column(given.accuracy)
    if len(values) != models or not ((values >= 0) & (values <= 1)).all():
        raise UserError(
            f"{where}accuracy: {given.accuracy}: {len(values)} numbers; expected one between 0 and 1 for each of the {models} models"
        )
    return values


def _strongest_text(part: Part, confidence: float) -> str:
    """Return a sentence on the strongest attack on a setting."""
    (attack, signal, likelihood), auc = strongest(read_frame(part.out / "metrics.parquet", "metrics"), confidence)
    with_likelihood = "" if likelihood == "none" else f" ({likelihood})"
    of_setting = f" on {part.name}" if part.name else ""
    why = f", {silence(auc)}" if silence(auc) not in ("", ALONE) else ""
    return (
        f"Strongest attack{of_setting}: {attack} on {signal}{with_likelihood}, AUC {fixed(auc.mean)} ({interval(auc)}) over"
        f" {auc.targets} models as targets{why}; guessing has 0.5."
    )


def strongest(metrics: pl.DataFrame, confidence: float) -> tuple[tuple[str, str, str], Estimate]:
    """Return attack, signal and likelihood of the largest mean AUC over targets, and its estimate after this choice.

    The unit is that for which membership was drawn.
    """
    attack, signal, likelihood, *_ = ranked(metrics).row(0)
    real = headline_unit(metrics)[1].filter(~pl.col("null_control") & pl.col("auc").is_not_null())
    overs = [
        OverTargets.from_metrics(rows, "auc", confidence)
        for _, rows in real.group_by(*FILE_KEYS[:3], maintain_order=True)
    ]
    found = after_selection(overs, confidence)
    estimate = Estimate(found.mean, math.nan, found.low, found.high, real["target"].n_unique())
    return (attack, signal, likelihood), estimate.as_rate()


def _score(request: Request, part: Part) -> None:
    """Write scores, metrics and the tables from them for one setting."""
    source, out = part.source, part.out
    if part.name:
        private_folder(out)
    announce(f"attacking {part.name or request.name}: {source.models} models, {len(source.record)} records")
    null = permuted_membership(source.member, request.seed, request.name, source.persons)
    rows: list[dict[str, Any]] = []

    def scored() -> Iterator[Any]:
        for evaluated in score_and_evaluate(
            part.runs, source, null, fprs=request.fprs, confidence=request.confidence, threads=max(1, request.threads)
        ):
            rows.extend(evaluated.rows)
            yield evaluated.run, evaluated.member, evaluated.scores

    metadata = {"seed": request.seed, "dataset": request.name, **recognise(source.member).metadata}
    metadata |= readings_metadata(request.attacks if request.stated else (), source.signals, source.derived)
    metadata |= diverged_metadata(without_left_out({}, request.leave_out))
    metadata[GIVEN] = by_base_name({str(file): sha256(file) for file in part.files if file.is_file()})
    write_scores(
        out / "scores.parquet",
        scored(),
        part.runs,
        record=source.record,
        target=source.target,
        metadata=metadata,
        persons=source.persons,
    )
    metrics = metrics_table(rows)
    metadata |= {"confidence": request.confidence, MODEL_COUNTS: model_counts(metrics, source, request.fprs)}
    metadata |= in_halves(metrics, source, request.fprs) | source.outliers.metadata
    write_table(out / "metrics.parquet", metrics.to_arrow(), "metrics", len(metrics), metadata)
    write_text(out / "metrics.csv", csv(flat(metrics)))
    write_text(out / "summary.csv", csv(summarise(metrics, request.confidence)))
    write_text(out / "exposure.csv", csv(_exposures(out, metrics, metadata.get(HALVES), request.confidence)))
    bounds = bounds_table(metrics, part.given.delta or request.delta, request.confidence, request.design == "bernoulli")
    write_text(out / "epsilon.csv", csv(bounds))
    if part.accuracy is not None:
        _write_training(part)


def _exposures(out: Path, metrics: pl.DataFrame, packed: Mapping[str, Any] | None, confidence: float) -> pl.DataFrame:
    """Return the exposures of persons, if they are known, then of records, under the strongest attack of which they are estimated."""
    halves = Halves.unpacked(packed) if packed else None
    fpr = min(map(float, halves.hits), default=None) if halves else None
    found = estimated(halves, fpr, confidence) if halves and fpr else None
    headline, _ = headline_unit(metrics)
    key = halves.key if halves else ranked(metrics).row(0)[:3]
    tables = []
    for best in read_scores(out / "scores.parquet", *key):
        if best.aggregate in (headline, RECORDS):
            units: dict[str, Any] = {"record": best.record}
            if best.person is not None:
                record = best.record if best.aggregate == RECORDS else None
                units = {"unit": unit_of(best.aggregate), "record": record, "person": best.person}
            columns = exposure_columns(best.score, best.member, fpr, found if best.aggregate == headline else None)
            named = [pl.lit(value).alias(name) for name, value in zip(FILE_KEYS, key, strict=False)]
            tables.append(pl.DataFrame({**units, **columns}).with_columns(named).fill_nan(None).sort("rank"))
    return pl.concat(reversed(tables), how="vertical_relaxed")


def _write_training(part: Part) -> None:
    """Write training.parquet with the models' test accuracy and the ε that their owner claims."""
    assert part.accuracy is not None
    claimed, unknown_to = ("claimed", "unknown") if part.given.delta else ("none", "none")
    terms = Terms(
        delta=part.given.delta or 0.0,
        noise_multiplier=0.0,
        sampling_rate=1.0,
        accountant=claimed,
        sampling="unknown",
        clipping=unknown_to,
    )

    def report(model: int, accuracy: float) -> TrainingReport:
        return TrainingReport(
            records=int(part.source.member[:, model].sum()),
            epochs=[Epoch(math.nan, 0)],
            terms=terms,
            epsilon=float(part.given.epsilon),
            epsilon_rdp=math.inf,
            train_accuracy=math.nan,
            test_accuracy=accuracy,
            train_loss=math.nan,
            test_loss=math.nan,
        )

    tables = [training_table(model, report(model, float(value))) for model, value in enumerate(part.accuracy)]
    table = pa.concat_tables(tables)
    for name in ("loss", "train_accuracy", "train_loss", "test_loss"):  # unknown is NaN
        table = table.set_column(table.schema.get_field_index(name), name, pa.nulls(len(table), pa.float32()))
    write_table(part.out / "training.parquet", table, "training", len(table))


def reported_settings(request: Request) -> tuple[AuditedSetting, ...]:
    """Return the settings as tables, figures and page need them."""
    from mia_audit.report.spec import AuditedSetting

    def by_person(name: str) -> bool:
        return "person" in open_table(request.out / name / "scores.parquet", "scores").schema_arrow.names

    common: dict[str, Any] = {"trained": False, "design": request.design}
    if not request.settings:
        return (AuditedSetting(request.name, "signals", "given", "inf", folder=".", by_person=by_person(""), **common),)
    return tuple(
        AuditedSetting(
            request.name,
            "given-models",
            given.mechanism or name,
            given.epsilon,
            private=given.delta is not None,
            delta=given.delta,
            accountant="claimed" if given.delta is not None else None,
            folder=name,
            given_name=name,
            architecture_label="given models",
            by_person=by_person(name),
            **common,
        )
        for name, given in request.settings.items()
    )


def results_of(request: Request) -> Results:
    """Open the outputs of an audit of matrices for tables, figures and page."""
    from mia_audit.report.results import Results
    from mia_audit.report.spec import ReportedAudit

    settings = reported_settings(request)
    spec = ReportedAudit(
        audit=request.name,
        settings=settings,
        exposed=request.exposed,
        likelihood=request.likelihoods[0],
        as_published=asked(request.attacks, AUTHORS),
        confidence=request.confidence,
        delta=request.delta,
        config=request.config,
    )
    return Results(request.out, spec)
