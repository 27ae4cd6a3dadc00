"""`mia-audit release`: charge the ledger, train on the whole pool, and write only the weights and the card."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.errors import UserError
from mia_audit.learners import Compute, Records, TrainingTask, open_learner
from mia_audit.pools.store import read_records
from mia_audit.privacy import accounting, ledger
from mia_audit.privacy.ledger import RESTART, Receipt
from mia_audit.releasing.card import CARD, PAGE, card, page
from mia_audit.releasing.recipe import PROTECTED, UNPROTECTED, Recipe, Unfinished, unfinished
from mia_audit.storage import atomic_folder, write_json, write_text
from mia_audit.storage.atomic import create_once
from mia_audit.storage.digests import audit_id, write_manifest
from mia_audit.training.checkpoints import Checkpoint

if TYPE_CHECKING:
    from mia_audit.learners import TrainedModel
    from mia_audit.privacy.ledger import Entry

MODEL, AGAIN = "release", "re-training"
"""Names of ledger entries."""


def release(recipe: Recipe, config_digest: str, out: Path, compute: Compute, to: str = "anybody") -> dict[str, Any]:
    """Write the released model of a setting, its card and their SHA256SUMS to a new folder; return the card.

    Raises UserError, and charges nothing, if the folder exists, the setting cannot be released, or the ledger refuses
    the charge.
    """
    if out.exists():
        raise UserError(f"{out}: exists already; name a new folder for the release")
    recipe.check_gradients()
    with unfinished(out, recipe.identity()) as work:
        checkpoint = _checkpoint(recipe, work)
        receipt = charge_for(recipe, work, _next_charges(recipe, work, checkpoint), to)
        records = Records.of(recipe.stored)
        _, learner = open_learner(recipe.architecture_file, compute)
        task = TrainingTask(
            records,
            np.ones(len(records), dtype=bool),
            recipe.spec.training,
            recipe.spec.mechanism,
            float(recipe.spec.epsilon),
            None,
            0,
            Records.of(read_records(recipe.pool, "public")) if _reads_public(recipe) else None,
            recipe.start,
            checkpoint,
        )
        model = learner.train(task)
        return write_release(recipe, work, model, out, config_digest, receipt, to)


def write_release(
    recipe: Recipe,
    work: Unfinished,
    model: TrainedModel,
    out: Path,
    config_digest: str,
    receipt: Receipt | None,
    to: str,
) -> dict[str, Any]:
    """Write a model, its card and SHA256SUMS to a new folder; return the card."""
    _check_terms(recipe, model)
    with atomic_folder(out) as folder:
        model.save(folder)
        _without_notice(folder)
        files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        values = card(
            recipe,
            work.id,
            audit_id(recipe.results),
            config_digest,
            work.charged,
            recipe.architecture,
            recipe.stored.metadata,
            files,
            receipt,
            to,
        )
        write_json(folder / CARD, values)
        write_text(folder / PAGE, page(values))
        write_manifest(folder)
    return values


def _checkpoint(recipe: Recipe, work: Unfinished) -> Checkpoint:
    """Return the checkpoint of the built-in loop. Training by other learners starts again from the beginning."""
    if recipe.terms[0] is None:
        return Checkpoint()
    from mia_audit.training.shadow import KeptEpochs

    return KeptEpochs(work.folder, work.key)


def _next_charges(recipe: Recipe, work: Unfinished, checkpoint: Checkpoint) -> list[tuple[str, accounting.Charge]]:
    """Return the charges before work begins: all of them for a new release, or the repeated part for one that was killed.

    The repeated part is the interrupted epoch if the state after the last epoch was kept, and otherwise the whole
    training run.
    """
    model = recipe.charge
    if MODEL not in work.begun:
        return [(MODEL, model)]
    if recipe.promise == UNPROTECTED:
        return []
    if not isinstance(model, accounting.PoissonGaussian) or (done := getattr(checkpoint, "epochs", None)) is None:
        return [(RESTART, model)]
    epochs = recipe.spec.training.epochs
    return [(RESTART, replace(model, steps=model.steps // epochs))] if done < epochs else []


def charge_for(
    recipe: Recipe, work: Unfinished, charges: Sequence[tuple[str, accounting.Charge]], to: str
) -> Receipt | None:
    """Record charges in the ledger first, if there is one, and then in the release's own state."""
    dataset, privacy = recipe.setting.dataset, recipe.audit.privacy
    path = privacy.ledger_of(dataset)
    receipt = None
    entries = [_entry(recipe, work, what, charge, to) for what, charge in charges]
    if path:
        charged_to = recipe.results / f".ledger-{dataset}"
        _check_same_ledger(Path(path), charged_to)
        receipt = ledger.charge(Path(path), ledger_terms(recipe), _named(Path(path), entries))
        with create_once(charged_to) as partial:
            partial.write_text(f"{receipt.ledger}\n", encoding="ascii")
    if charges:
        work.begin([what for what, _ in charges if what != RESTART], [entry.terms for entry in entries])
        for what, charge in charges:
            print(f"charged: {what}, {accounting.terms_of(charge)}", file=sys.stderr)
    _warn_of_delta(recipe)
    return receipt


def _check_same_ledger(path: Path, charged_to: Path) -> None:
    """Raise UserError if earlier releases of the audit were charged to another ledger, whose id is in a file of the results."""
    known = charged_to.read_text(encoding="ascii").strip() if charged_to.exists() else ""
    if not path.exists():
        if known:
            raise UserError(
                f"privacy.ledger: {path}: no such file here, but releases of this audit were charged to the ledger {known}, and a new one would"
                " forget them; run this in the folder where that ledger is, or give its whole path"
            )
        print(f"{path}: a new ledger, without any earlier release", file=sys.stderr)
    elif known and (header := ledger.read_ledger(path)[0]).id != known:
        raise UserError(
            f"privacy.ledger: {path}: the ledger {header.id}, but earlier releases of this audit were charged to {known}; expected that one"
        )


def _entry(recipe: Recipe, work: Unfinished, what: str, charge: accounting.Charge, to: str) -> Entry:
    released = {"id": work.id, "setting": recipe.setting.path, "to": to, "audit": recipe.audit.audit}
    return ledger.entry(what, recipe.unit, charge, released, recipe.audit.privacy.part)


def _named(path: Path, entries: Sequence[Entry]) -> list[Entry]:
    """Return entries whose purpose states repetitions: a restart of this release, or a re-training of a setting that was released before."""
    before = ledger.read_ledger(path)[1] if path.exists() else []
    settings = {one.released.get("setting") for one in before if one.what in (MODEL, AGAIN)}
    charged = [(one.released.get("id"), one.terms) for one in before]

    def name(one: Entry) -> str:
        if (one.released["id"], one.terms) in charged:  # the process was killed between the charge and its work
            return RESTART
        return AGAIN if one.what == MODEL and one.released["setting"] in settings else one.what

    return [replace(one, what=name(one)) for one in entries]


def ledger_terms(recipe: Recipe) -> ledger.Terms:
    """Return the terms for a new ledger of a recipe's data set: the config's budget, and the terms of all planned releases."""
    audit, dataset = recipe.audit, recipe.setting.dataset
    planned: list[Mapping[str, Any]] = []
    for name in audit.privacy.planned:
        if name.startswith(f"{dataset}/"):
            other = Recipe.of(audit, name, recipe.results)
            planned.append(ledger.entry(MODEL, other.unit, other.charge, {}, audit.privacy.part).terms)
    privacy = audit.privacy
    return ledger.Terms(
        dataset, recipe.unit_of_dataset, float(privacy.epsilon), privacy.delta, tuple(planned), privacy.filter
    )


def _warn_of_delta(recipe: Recipe) -> None:
    if recipe.promise == PROTECTED and recipe.spec.mechanism.delta * recipe.units >= 1:
        print(
            f"warning: mechanisms.{recipe.setting.mechanism}.delta is not below 1/({recipe.unit}s of the pool)",
            file=sys.stderr,
        )


def _reads_public(recipe: Recipe) -> bool:
    mechanism = recipe.spec.mechanism
    return bool(recipe.architecture.get("reads_public")) or mechanism.kind.reads_public_records(mechanism)


def _check_terms(recipe: Recipe, model: TrainedModel) -> None:
    """Raise RuntimeError, before anything is written, if a model was trained on other terms than those charged."""
    expected = recipe.terms[0]
    taken = getattr(model, "terms", None)
    if expected is not None and taken != expected:
        raise RuntimeError(f"trained on {taken}, but charged for {expected}")


def _without_notice(folder: Path) -> None:
    """Write the weights again, without the notice that they are for the audit only."""
    from mia_audit.models.weights import WEIGHTS, read_weights, write_weights

    if (path := folder / WEIGHTS).exists():
        tensors = read_weights(path)
        write_weights(tensors, path)
        if not all(bool(value.isfinite().all()) for value in tensors.values() if value.is_floating_point()):
            print(f"warning: {WEIGHTS}: some weights are not finite: the training diverged", file=sys.stderr)


def summary(values: dict[str, Any]) -> str:
    """Return the command's output for a finished release."""
    privacy, name = values["privacy"], values["setting"]["name"]
    if values["guarantee"] == UNPROTECTED:
        return f"{name}: trained without differential privacy; its card explains what that means"
    epsilon = math.inf if privacy["epsilon"] is None else privacy["epsilon"]
    whole = f"{name}: ε = {epsilon:.4g} at δ = {privacy['delta']:g} per {privacy['unit']}"
    if ledger := values["ledger"]:
        total = math.inf if ledger["epsilon"] is None else ledger["epsilon"]
        whole += f"; together with all earlier releases ε = {total:.4g} at δ = {ledger['delta']:g}, by {ledger['composed_by']}"
    return whole
