"""The charges of a release: which they are, and the ledger that they go to.

The results of an audit remember the ledger, how far it was, and the part of the data set that was stated
(`.ledger-DATASET`), so that no release is charged to another ledger, to an older copy, to none, or as another part.
Cards of earlier releases, beside the new one, show an older copy too, even if results and ledger were restored together.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mia_audit.errors import UserError
from mia_audit.foreign_json import read_object
from mia_audit.privacy import accounting, ledger
from mia_audit.privacy.ledger import KEPT, RESTART, Entry, Receipt, remembered
from mia_audit.releasing.card import CARD
from mia_audit.releasing.recipe import PROTECTED, UNPROTECTED, Recipe, Unfinished
from mia_audit.seeds import folder_of_seed, folders_of_seeds
from mia_audit.storage import open_table, read_table, write_json
from mia_audit.storage.digests import audit_id
from mia_audit.training.checkpoints import Checkpoint
from mia_audit.training.shadow import KeptEpochs

MODEL, AGAIN = "release", "re-training"
"""Names of ledger entries."""
CHARGED = {"id": str, "entries": int, "head": str}
"""What a card states of the ledger that its release was charged to."""


def next_charges(recipe: Recipe, work: Unfinished, checkpoint: Checkpoint) -> list[tuple[str, accounting.Charge]]:
    """Return the charges before work begins: the whole training for a new release, or what a killed one repeats.

    Of training by the built-in loop, every epoch that was ever begun counts, and all that are still to come: so the
    interrupted epoch is charged again, and all epochs after a state that was put back. Other training, and training of
    which no state or no number of begun epochs was kept, is charged whole.
    """
    model = recipe.charge
    new = MODEL not in work.begun
    if not isinstance(model, accounting.PoissonGaussian) or not isinstance(checkpoint, KeptEpochs):
        return [(MODEL, model)] if new else [] if recipe.promise == UNPROTECTED else [(RESTART, model)]
    done, begun = checkpoint.epochs, checkpoint.begun
    epochs = recipe.spec.training.epochs
    each = model.steps // epochs
    if new:  # epochs that were begun all the same were run before an older state was put back
        return [(MODEL, model), *([(RESTART, replace(model, steps=begun * each))] if begun else [])]
    if done is None or begun is None:
        return [(RESTART, model)]
    charged = sum(int(terms["steps"]) for terms in work.charged) // each
    missing = begun + epochs - done - charged
    return [(RESTART, replace(model, steps=missing * each))] if missing > 0 else []


def charge_for(
    recipe: Recipe, work: Unfinished, charges: Sequence[tuple[str, accounting.Charge]], to: str
) -> Receipt | None:
    """Record charges in the ledger first, if there is one, and then in the release's own state.

    Without a ledger the results keep them, and the first ledger that a config names is charged for them too.
    """
    dataset, privacy = recipe.setting.dataset, recipe.audit.privacy
    path = privacy.ledger_of(dataset)
    receipt = None
    entries = [_entry(recipe, work, what, charge, to) for what, charge in charges]
    kept = recipe.results / f"{KEPT}{dataset}"
    known = remembered(kept)
    _check_ledger(recipe, known)
    _check_names(recipe)
    _check_cards(recipe, work.folder.parent)
    if path:

        def remember(one: Receipt) -> None:
            values = {"ledger": one.ledger, "head": one.head, "entries": one.entries, "part": privacy.part}
            write_json(kept, values)

        named = [*recipe.earlier(), *_named(Path(path), entries)]
        receipt = ledger.charge(Path(path), ledger_terms(recipe), named, remember)
        recipe.uncharged.unlink(missing_ok=True)
    elif entries:
        write_json(recipe.uncharged, {"entries": [asdict(one) for one in [*recipe.earlier(), *entries]]})
    if charges:
        work.begin([what for what, _ in charges if what != RESTART], [entry.terms for entry in entries])
        for what, charge in charges:
            print(f"charged: {what}, {accounting.terms_of(charge)}", file=sys.stderr)
    _warn_of_delta(recipe)
    return receipt


def _check_ledger(recipe: Recipe, known: Mapping[str, Any]) -> None:
    """Raise UserError if the config's ledger is not the one that the results remember, or an older copy of it."""
    dataset, privacy = recipe.setting.dataset, recipe.audit.privacy
    name = privacy.ledger_of(dataset)
    if known and not name:
        raise UserError(
            f"privacy.ledger: missing, but releases from {dataset} were charged to the ledger {known['ledger']}; name its file, so that this"
            " release is charged too"
        )
    if known and known["part"] != privacy.part:
        raise UserError(
            f"privacy.part: '{privacy.part}', but the same records were charged as the part '{known['part']}' before; expected that one"
        )
    path = Path(name)
    if not name:
        return
    if not path.exists():
        if known:
            raise UserError(
                f"privacy.ledger: {path}: no such file here, but releases of this audit were charged to the ledger {known['ledger']}, and a"
                " new one would forget them; run this in the folder where that ledger is, or give its whole path"
            )
        print(f"{path}: a new ledger, without any earlier release", file=sys.stderr)
    elif known:
        header = ledger.read_ledger(path)[0]
        if header.id != known["ledger"]:
            raise UserError(
                f"privacy.ledger: {path}: the ledger {header.id}, but earlier releases of this audit were charged to {known['ledger']};"
                " expected that one"
            )
        _check_newest(path, known, "an earlier release of this audit saw")


def _check_cards(recipe: Recipe, released: Path) -> None:
    """Raise UserError if a card beside the release states a later ledger: results and ledger may both be older copies."""
    path, mine = Path(recipe.audit.privacy.ledger_of(recipe.setting.dataset)), audit_id(recipe.results)
    now = ledger.read_ledger(path)[0].id if path.is_file() else ""
    for card in sorted(released.glob(f"*/{CARD}")):
        try:
            values = read_object(card, "")
            stated = values["ledger"] or {}
            audit, dataset = values["audit"], values["setting"]["dataset"]
            same = dataset == recipe.setting.dataset and (audit["id"] == mine or audit["name"] == recipe.audit.audit)
            known = {key: kind(stated[key]) for key, kind in CHARGED.items()} if stated else {}
        except (UserError, KeyError, TypeError, ValueError):
            continue  # not a card that a release wrote
        if known and (same or known["id"] == now):
            _check_newest(path, known, f"{card} states")


def _check_newest(path: Path, known: Mapping[str, Any], who: str) -> None:
    """Raise UserError unless a ledger's line number `entries` has the digest `head`."""
    heads = ledger.heads(path) if path.is_file() else []
    if heads[known["entries"] :][:1] != [known["head"]]:
        raise UserError(
            f"privacy.ledger: {path if path.name else 'none'}: {max(0, len(heads) - 1)} entries, and not the {known['entries']} that {who}:"
            " an older copy was restored; put the latest one back"
        )


def _check_names(recipe: Recipe) -> None:
    """Raise UserError if some records were charged under another name: as another data set or audit beside these results."""
    mine = recipe.results.resolve() / f"{KEPT}{recipe.setting.dataset}"
    of_seed = mine.parent in folders_of_seeds(mine.parent.parent)
    results = mine.parent.parent.parent if of_seed else mine.parent.parent
    own = set(_hashes(recipe.pool))
    name = recipe.audit.privacy.ledger_of(recipe.setting.dataset)
    now = ledger.read_ledger(Path(name))[0].id if name and Path(name).exists() else ""
    for path in sorted([*results.glob(f"*/{KEPT}*"), *results.glob(f"*/{folder_of_seed('*')}/{KEPT}*")]):
        pool = path.parent / "pools" / path.name.removeprefix(KEPT)
        if path == mine or not (pool / "records.parquet").exists():
            continue
        other = remembered(path)
        if (other["ledger"], other["part"]) != (now, recipe.audit.privacy.part) and own & set(_hashes(pool)):
            part = f" as its part '{other['part']}'" if other["part"] else ""
            raise UserError(
                f"datasets.{recipe.setting.dataset}: some of its records are in {pool} too, from which releases were charged to the ledger"
                f" {other['ledger']}{part}; charge this one there as well (privacy.ledger, privacy.part)"
            )


def _hashes(pool: Path) -> Iterator[str]:
    path = pool / "records.parquet"
    if "sha256" in open_table(path, "records").schema_arrow.names:  # pools of other tools may lack it
        yield from read_table(path, "records", ["sha256"])["sha256"].to_pylist()


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
            other = Recipe.from_audit(audit, name, recipe.results)
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
