"""The Python interface (docs/reference/commands.md): audit matrices and configs, compute a model's signals, observe canaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.arrays import check_same_order, column_names, real_array, row_ids
from mia_audit.commands.matrices import FPRS, LIKELIHOODS, METHODS
from mia_audit.errors import UserError, suggest
from mia_audit.signals.compute import signals

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from mia_audit.canaries.observe import Observer
    from mia_audit.report.findings import Findings
    from mia_audit.report.matrix_audit import Request
    from mia_audit.report.results import Results

__all__ = ["Audit", "audit", "observe_canaries", "run", "signals"]


class Audit:
    """A finished audit of score matrices."""

    def __init__(self, request: Request, folder: TemporaryDirectory[str]) -> None:
        """Open the results of an audit. Their folder is deleted together with this object."""
        self._request = request
        self._folder = folder

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """One row per attack, signal, likelihood and target: AUC, TPR at the FPRs, intervals (docs/reference/data.md)."""
        from mia_audit.evaluation.files import flat
        from mia_audit.storage import read_frame

        return flat(read_frame(self._request.out / "metrics.parquet", "metrics"))

    @cached_property
    def summary(self) -> pl.DataFrame:
        """One row per attack, signal and likelihood: means over targets, with intervals."""
        return self._table("summary")

    @cached_property
    def exposure(self) -> pl.DataFrame:
        """One row per record, sorted from most to least exposed under the strongest attack."""
        return self._table("exposure")

    @cached_property
    def epsilon(self) -> pl.DataFrame:
        """One row per attack, signal, likelihood and method: the lower bound on ε."""
        return self._table("epsilon")

    @cached_property
    def scores(self) -> pl.DataFrame:
        """One row per attack, target and record: the membership score, higher for members."""
        from mia_audit.storage import read_frame

        return read_frame(self._request.out / "scores.parquet", "scores")

    def figure(self, name: str = "roc") -> Figure:
        """Return a figure of the report, such as `roc`. Raises UserError for an unknown name, or a figure without data."""
        from mia_audit.report.figures.catalogue import figures, paper_style

        results, findings = self._found
        drawable = {kind: subjects for kind in figures if (subjects := figures[kind].subjects(results.spec))}
        if name not in drawable:
            raise UserError(f"figure '{name}': {suggest(name, drawable)}")
        with paper_style():
            drawn = figures[name](results, findings, next(iter(drawable[name].values())))
        if isinstance(drawn, str):
            raise UserError(f"figure '{name}': {drawn}")
        return drawn

    def report(self, path: str | Path) -> Path:
        """Write the self-contained HTML report to a file, and return its path."""
        from mia_audit.report.page import render
        from mia_audit.report.provenance import provenance
        from mia_audit.storage import write_text

        results, findings = self._found
        path = Path(path)
        write_text(path, render(results, findings, provenance(results, findings.settings)))
        return path

    @cached_property
    def _found(self) -> tuple[Results, Findings]:
        from mia_audit.report.matrix_audit import results_of
        from mia_audit.report.opened import find

        results = results_of(self._request)
        return results, find(results)

    def _table(self, name: str) -> pl.DataFrame:
        import polars as pl

        return pl.read_csv(self._request.out / f"{name}.csv", infer_schema_length=None)

    def __repr__(self) -> str:
        """Name the audit with its strongest attack."""
        from mia_audit.report.matrix_audit import strongest
        from mia_audit.storage import read_frame

        metrics = read_frame(self._request.out / "metrics.parquet", "metrics")
        (attack, signal, _), auc = strongest(metrics, self._request.confidence)
        return f"<Audit {self._request.name}: {attack} on {signal}, AUC {auc.mean:.3f}>"


def audit(
    membership: Any,
    signals: Mapping[str, Any],
    *,
    person: Any = None,
    attacks: Sequence[str] = METHODS,
    likelihoods: Sequence[str] = LIKELIHOODS,
    leave_out: Sequence[int] = (),
    fprs: Sequence[float] = FPRS,
    confidence: float = 0.95,
    delta: float = 1e-5,
    design: str = "half",
    seed: int = 0,
    name: str = "audit",
    exposed: int = 8,
    threads: int = 1,
) -> Audit:
    """Audit score matrices: attack every model, with the other models as shadow models.

    `membership` is boolean [records, models]. `signals` are matrices [records, models], or [records, models, queries], by name:
    `loss`, `confidence`, `probability`, summaries of attributions such as `ixg_l1`, or `NAME:positive|real:low|high` for any
    other signal. Frames of pandas must have the same index. `person` has the person of every row, if membership was drawn by
    person. The other arguments are those of `mia-audit audit`. Raises UserError for matrices that do not match.
    """
    from mia_audit.attacks.catalogue import Attacks
    from mia_audit.config.load import parse
    from mia_audit.evaluation.section import Evaluation
    from mia_audit.report.matrix_audit import Request
    from mia_audit.report.matrix_audit import audit as audit_files

    if design not in ("half", "bernoulli"):
        raise UserError(f"audit: design '{design}': expected half or bernoulli")
    if not signals:
        raise UserError("audit: no signals; expected matrices by name, such as {'loss': losses}")
    section = parse(
        Attacks, {"methods": list(attacks), "likelihoods": list(likelihoods), "leave_out": list(leave_out)}, "audit"
    )
    evaluation = parse(Evaluation, {"fprs": list(fprs), "confidence": confidence}, "audit")
    folder: TemporaryDirectory[str] = TemporaryDirectory(prefix="mia-audit-")
    root = Path(folder.name)
    given, arguments = _saved(root, membership, signals, person)
    config = {
        "signals": list(signals),
        "design": design,
        "delta": delta,
        "seed": seed,
        "attacks": section.model_dump(mode="json"),
        "evaluation": evaluation.model_dump(mode="json"),
    }
    request = Request(
        table=None,
        membership=str(root / "membership.npy"),
        person=str(root / "person.npy") if person is not None else None,
        signals=given,
        out=root / "audit",
        attacks=tuple(attacks),
        likelihoods=tuple(likelihoods),
        leave_out=section.leave_out,
        fprs=tuple(fprs),
        confidence=confidence,
        delta=delta,
        design=design,
        seed=seed,
        name=name,
        exposed=exposed,
        threads=threads,
        report=False,
        config=config,
    )
    try:
        audit_files(request)
    except UserError as error:
        text = str(error)
        for path, argument in arguments.items():
            text = text.replace(path, argument)
        raise UserError(text) from None
    return Audit(request, folder)


def _saved(root: Path, membership: Any, signals: Mapping[str, Any], person: Any) -> tuple[list[str], dict[str, str]]:
    """Write matrices of the same order to files; return NAME=FILE of the signals, and the argument's name for every file."""
    from mia_audit.attacks.io.matrices import RecordIds

    np.save(root / "membership.npy", real_array(membership, "membership"))
    ids, given, arguments = RecordIds("index"), [], {str(root / "membership.npy"): "membership"}
    ids.add("membership", row_ids(membership))
    for number, (key, values) in enumerate(signals.items()):
        argument, path = f"signals['{key}']", str(root / f"signal-{number}.npy")
        np.save(path, real_array(values, argument).astype(np.float64))
        ids.add(argument, row_ids(values))
        check_same_order(column_names(values), argument, column_names(membership), "membership")
        given.append(f"{key}={path}")
        arguments |= {f"--signal {key}={path}": argument, path: argument}
    if person is not None:
        path = str(root / "person.npy")
        np.save(path, np.array(np.asarray(person).tolist()))
        if (index := row_ids(person)) is not None:
            ids.add("person", index)
        arguments |= {f"--person {path}": "person", path: "person"}
    return given, arguments


def run(config: str | Path, cores: int | None = None, *options: str) -> Path:
    """Run the workflow on a config and return the folder of its results; `options` are further options of snakemake.

    Without `cores`, all are used. The results are in results/NAME beside the config (config/README.md). Raises UserError
    for an invalid config, or if the workflow fails.
    """
    from mia_audit.commands.before import start
    from mia_audit.config.load import folder_of, read_plain

    path = Path(config)
    code = start(path, cores, list(options))
    if code:
        raise UserError(f"{config}: the workflow failed; the output above names the failed job and its log")
    return folder_of(path) / "results" / str(read_plain(path)["audit"])


def observe_canaries(
    folder: str | Path, model: Any, loss: Any, inputs: Any = None, every_step: bool = True
) -> Observer:
    """Observe the canaries in a folder at every step of a torch training run, and return the observer (docs/how-to/canaries.md).

    `loss` maps logits and labels to the mean loss; `inputs` converts stored records to the model's inputs. Call
    `observer.attach(optimizer)` before training and `observer.write(path)` after it. With `every_step` off, only the
    first and the last model are compared.
    """
    from mia_audit.canaries.observe import observe_canaries as observe

    return observe(folder, model, loss, inputs, every_step)
