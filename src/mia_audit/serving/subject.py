"""Open a service: the pool, the black box, the explainer with its ledger, and a released model's metadata."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.optimize  # noqa: F401  (the solver imports it when it first needs it, which the first caller would wait for)

from mia_audit.errors import UserError
from mia_audit.explain.black_boxes.values import of_logits
from mia_audit.explain.private_local import ExplanationSet, PrivateExplainer
from mia_audit.learners import Compute, Records, open_learner
from mia_audit.learners.user_code import user_code
from mia_audit.pools.store import StoredRecords, read_records
from mia_audit.registry import code_files, file_digest, load_file
from mia_audit.releasing.card import CARD
from mia_audit.releasing.release import read_card
from mia_audit.storage.digests import sha256
from mia_audit.training.stored import file_digests

if TYPE_CHECKING:
    from jaxtyping import Float, Num

    from mia_audit.serving.section import Served

    BlackBox = Callable[[Num[np.ndarray, "q ..."]], Float[np.ndarray, "q C"]]

CONSTANTS = ("mean", "std", "centre", "scale")
"""Keys of a pool's metadata, and of the preprocessing on a card, by which records were scaled."""

FACTS = ("epsilon", "delta", "unit", "adjacency", "accountant")
"""Keys of a released model's card that the service publishes."""


@dataclass(frozen=True)
class Subject:
    """An explainer, the metadata of the pool's records and, for a released model with a card, the guarantee of its training."""

    explainer: PrivateExplainer
    black_box: BlackBox
    pool: Mapping[str, Any]
    dtype: np.dtype[Any]
    card: Mapping[str, Any] | None = None


def open_subject(served: Served, threads: int = 1) -> Subject:
    """Open the pool, black box and explainer of a service, whose answers are not seeded. Raises UserError for invalid files."""
    stored = read_records(Path(served.pool))
    if stored.metadata.get("standardise") == "private":
        raise UserError(
            f"{served.pool}: standardise: private: one record moves the constants, and with them all rows, more than the answers' ε allows;"
            " expected a pool with public, stated or no constants (a release's are on its card)"
        )
    card = _card(Path(served.model), stored.metadata) if served.model else None
    function, identity = _function(served) if served.black_box else _model(served, stored, threads)
    values = function(stored.data)
    explained = ExplanationSet.of(stored.data, values, served.scale, stored.units)
    explainer = PrivateExplainer(
        explained,
        served.terms,
        served.protocol,
        ledger=Path(served.ledger),
        data_ledger=Path(served.data_ledger) if served.data_ledger else None,
        about={"black_box": identity},
    )
    return Subject(explainer, function, stored.metadata, stored.data.dtype, card)


def _function(served: Served) -> tuple[BlackBox, str]:
    """Return the user's own function, and the digests of its file and of the neighbouring files that it imports."""
    file, _, name = served.black_box.rpartition(":")
    function = getattr(load_file(Path(file), "black_box"), name, None)
    if not callable(function):
        raise UserError(f"black_box: {file} has no function '{name}'")

    def values(records: Num[np.ndarray, "q ..."]) -> Float[np.ndarray, "q C"]:
        with user_code(f"black_box '{served.black_box}'", Path(file)):
            return np.asarray(function(records))

    return values, json.dumps(sorted(file_digest(path) for path in code_files(served.black_box)))


def _model(served: Served, stored: StoredRecords, threads: int) -> tuple[BlackBox, str]:
    """Return a finished model as a black box, and the digest of its files."""
    folder = Path(served.model)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; expected a finished model")
    _, learner = open_learner(Path(served.architecture), Compute("cpu", threads))
    model = learner.load(folder)

    def values(records: Num[np.ndarray, "q ..."]) -> Float[np.ndarray, "q C"]:
        # learners require labels and record numbers, although no output depends on them
        numbers = np.arange(len(records))
        return of_logits(
            model.logits(Records(records, np.zeros(len(records), dtype=np.int64), stored.metadata, numbers)),
            served.quantity,
        )

    digests = {"files": file_digests(folder), "architecture": sha256(Path(served.architecture)), "of": served.quantity}
    return values, json.dumps(digests, sort_keys=True)


def _card(folder: Path, pool: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the guarantee of a released model's training from its card; None for a model without a card.

    Raises UserError if the model was trained on records that were scaled by other constants than the pool's.
    """
    path = folder / CARD
    if not path.exists():
        return None
    card = read_card(path)
    try:
        scaled = card["data"]["preprocessing"]
        guarantee = {"id": card["id"], "guarantee": card["guarantee"]} | {name: card["privacy"][name] for name in FACTS}
    except (KeyError, TypeError) as error:
        raise UserError(f"{path}: {error} is missing; expected the card.json of a release") from None
    for name in CONSTANTS:
        if scaled.get(name) != pool.get(name):
            raise UserError(
                f"{path}: data.preprocessing.{name} is not the pool's {name}: the model would read records that are scaled otherwise than those"
                " it was trained on; build the pool with the card's constants (standardise: stated)"
            )
    return guarantee
