"""`mia-audit release`: charge the ledger, train on the whole pool, and write only the weights and the card."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.errors import UserError
from mia_audit.learners.protocol import Compute, open_learner
from mia_audit.pools.store import read_records
from mia_audit.privacy.ledger import Receipt
from mia_audit.releasing.audited import audited_sha256, judged, training_sha256
from mia_audit.releasing.card import PAGE, card, page
from mia_audit.releasing.charging import charge_for, next_charges
from mia_audit.releasing.recipe import UNPROTECTED, ReleaseRecipe, Unfinished, unfinished
from mia_audit.report.formatting import at_most
from mia_audit.storage import atomic_folder, write_json, write_text
from mia_audit.storage.digests import CARD, audit_id, write_manifest
from mia_audit.training.checkpoints import Checkpoint
from mia_audit.training.task import Records, TrainingTask

if TYPE_CHECKING:
    from mia_audit.learners.protocol import TrainedModel

LONGEST = 200
"""Bytes of the names of a release's folder and its ledger: temporary files beside it have longer names, of which file systems take 255."""


def release(
    recipe: ReleaseRecipe,
    config_digest: str,
    out: Path,
    compute: Compute,
    to: str = "anybody",
    verdicts: Path | None = None,
) -> dict[str, Any]:
    """Write the released model of a setting, its card and their SHA256SUMS to a new folder; return the card.

    Raises UserError, and charges nothing, if the folder exists, the setting cannot be released, or the ledger refuses
    the charge.
    """
    if out.exists():
        raise UserError(f"{out}: exists already; name a new folder for the release")
    for path in (out, Path(recipe.audit.privacy.ledger_of(recipe.setting.dataset))):
        if len(os.fsencode(path.name)) > LONGEST:
            raise UserError(f"{path}: a name of more than {LONGEST} bytes; choose a shorter one")
    recipe.check_training()
    expected = training_sha256(recipe)
    audited = {"training_sha256": audited_sha256(recipe, expected), "gate": judged(recipe, verdicts, expected)}
    with unfinished(out, {**recipe.identity(), "to": to}) as work:
        checkpoint = _checkpoint(recipe, work)
        receipt = charge_for(recipe, work, next_charges(recipe, work, checkpoint), to)
        records = Records.from_stored(recipe.stored)
        _, learner = open_learner(recipe.architecture_file, compute)
        task = TrainingTask(
            records=records,
            members=np.ones(len(records), dtype=bool),
            training=recipe.spec.training,
            mechanism=recipe.spec.mechanism,
            epsilon=float(recipe.spec.epsilon),
            key=None,
            shadow=0,
            public=Records.from_stored(read_records(recipe.pool, "public")) if _reads_public(recipe) else None,
            start=recipe.start,
            checkpoint=checkpoint,
        )
        model = learner.train(task)
        written = write_release(
            recipe, work, model, out=out, config_digest=config_digest, audited=audited, receipt=receipt, to=to
        )
    for counter in _counters(recipe, work):
        counter.unlink(missing_ok=True)
    return written


def write_release(
    recipe: ReleaseRecipe,
    work: Unfinished,
    model: TrainedModel,
    out: Path,
    config_digest: str,
    audited: Mapping[str, Any],
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
            {"name": recipe.audit.audit, "id": audit_id(recipe.results), **audited},
            config_digest=config_digest,
            charged=work.charged,
            architecture=recipe.architecture,
            pool=recipe.stored.metadata,
            files=files,
            receipt=receipt,
            to=to,
        )
        write_json(folder / CARD, values)
        write_text(folder / PAGE, page(values))
        write_manifest(folder)
        if out.exists():
            raise UserError(
                f"{out}: was created while the model was trained; move it away, and run the same command again"
            )
    return values


def _checkpoint(recipe: ReleaseRecipe, work: Unfinished) -> Checkpoint:
    """Return the checkpoint of the built-in loop. Training by other learners starts again from the beginning."""
    if recipe.terms[0] is None:
        return Checkpoint()
    from mia_audit.training.shadow import KeptEpochs

    return KeptEpochs(work.folder, work.key, *_counters(recipe, work))


def _counters(recipe: ReleaseRecipe, work: Unfinished) -> list[Path]:
    """Return the files that count the begun epochs of an unfinished release: in the results and, if there is one, beside the ledger."""
    ledger = recipe.audit.privacy.ledger_of(recipe.setting.dataset)
    beside = [Path(ledger).with_name(f".{Path(ledger).name}.begun-{work.id}")] if ledger else []
    return [recipe.results / f".begun-{work.id}", *beside]


def _reads_public(recipe: ReleaseRecipe) -> bool:
    mechanism = recipe.spec.mechanism
    return bool(recipe.architecture.get("reads_public")) or mechanism.kind.reads_public_records(mechanism)


def _check_terms(recipe: ReleaseRecipe, model: TrainedModel) -> None:
    """Raise RuntimeError, before anything is written, if a model was trained on other terms, or for more steps, than was charged."""
    expected, taken = recipe.terms, getattr(model, "terms", None)
    if expected[0] is not None and taken != expected:
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
    whole = f"{name}: ε = {at_most(epsilon, 4)} at δ = {privacy['delta']} per {privacy['unit']}"
    if ledger := values["ledger"]:
        total = math.inf if ledger["epsilon"] is None else ledger["epsilon"]
        whole += f"; together with all earlier releases ε = {at_most(total, 4)} at δ = {ledger['delta']}, by {ledger['composed_by']}"
    return whole
