"""The charges of a release: which they are, and the ledger that they go to.

The results of an audit remember the ledger and how far it was (`.ledger-DATASET`), so that no release is charged to
another ledger, to an older copy, or to none.
Cards of earlier releases, beside the new one, show an older copy too, even if results and ledger were restored together.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mia_audit.errors import UserError
from mia_audit.foreign_json import read_object
from mia_audit.privacy import accounting, ledger
from mia_audit.privacy.ledger import KEPT, RESTART, UNCHARGED, Entry, Receipt, remembered
from mia_audit.regular_files import locked, open_regular
from mia_audit.releasing.recipe import PROTECTED, UNPROTECTED, ReleaseRecipe, Unfinished, read_uncharged
from mia_audit.storage import write_json
from mia_audit.storage.digests import CARD
from mia_audit.training.checkpoints import Checkpoint
from mia_audit.training.shadow import KeptEpochs

MODEL, AGAIN = "release", "re-training"
"""Names of ledger entries."""
LOCK = ".charging"
"""The file that is locked while a release is charged, in the folder of the results of all audits."""
CHARGED = {"id": str, "entries": int, "head": str}
"""What a card states of the ledger that its release was charged to."""


def next_charges(
    recipe: ReleaseRecipe, work: Unfinished, checkpoint: Checkpoint
) -> list[tuple[str, accounting.Charge]]:
    """Return the charges before work begins: the whole training for a new release, or what a killed one repeats.

    Of training by the built-in loop, every epoch that was ever begun counts, and all that are still to come: so the
    interrupted epoch is charged again, and all epochs after a state that was put back. If the ledger was charged for more
    than the state knows, or a state or a number of begun epochs is missing, all that was charged counts as begun, from
    then on; if it is missing, or if a card beside the new release says that the release was finished, the whole training
    is charged too. Other training is charged whole.
    """
    recalled = _recall(recipe, work)
    model = recipe.charge
    new = MODEL not in work.begun
    if not isinstance(model, accounting.PoissonGaussian) or not isinstance(checkpoint, KeptEpochs):
        return [(MODEL, model)] if new else [] if recipe.promise == UNPROTECTED else [(RESTART, model)]
    done, counts = checkpoint.epochs, checkpoint.counts
    epochs = recipe.spec.training.epochs
    each = model.steps // epochs
    charged = sum(int(terms["steps"]) for terms in work.charged) // each
    begun = max(counts, default=0)
    lost = done is None or len(counts) < len(checkpoint.counters) or _is_finished(work)
    if (recalled or lost) and charged > begun:
        begun = charged  # no epoch is begun before it is charged
        checkpoint.count(begun)
    to_come = epochs if done is None or lost else epochs - done
    # what a new release has begun all the same was run before an older state was put back
    missing = begun - charged + (0 if new else to_come)
    again: list[tuple[str, accounting.Charge]] = (
        [(RESTART, replace(model, steps=missing * each))] if missing > 0 else []
    )
    return [(MODEL, model), *again] if new else again


def _recall(recipe: ReleaseRecipe, work: Unfinished) -> bool:
    """Take over all charges for this release if an older state, which lacks some, was put back; return whether."""
    known = [dict(one.terms) for one in [*_now(recipe)[1], *recipe.earlier()] if one.released.get("id") == work.id]
    if recalled := len(known) > len(work.charged):
        work.charged = known
    return recalled


def _is_finished(work: Unfinished) -> bool:
    return any(str(values.get("id")) == work.id for _, values in _cards(work.folder.parent))


def _cards(folder: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the cards, or what may be cards, of the releases in a folder."""
    for path in sorted(folder.glob(f"*/{CARD}")):
        if path.is_file():
            with suppress(UserError):
                yield path, read_object(path, "")


def charge_for(
    recipe: ReleaseRecipe, work: Unfinished, charges: Sequence[tuple[str, accounting.Charge]], to: str
) -> Receipt | None:
    """Record charges in the ledger first, if there is one, and then in the release's own state.

    Without a ledger the results keep them, and the first ledger that a config names is charged for them too. One process
    at a time charges for releases from any results in a folder; others wait.
    """
    with ExitStack() as held:
        for folder in recipe.beside:
            held.enter_context(locked(_lock(folder / LOCK)))
        return _charge(recipe, work, charges, to)


def _lock(path: Path) -> int:
    try:
        return open_regular(path, os.O_RDWR | os.O_CREAT, 0o666, own=False)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(
            f"{path}: {reason}; all who release from results in this folder must be able to write it"
        ) from None


def _charge(
    recipe: ReleaseRecipe, work: Unfinished, charges: Sequence[tuple[str, accounting.Charge]], to: str
) -> Receipt | None:
    dataset, privacy = recipe.setting.dataset, recipe.audit.privacy
    path = privacy.ledger_of(dataset)
    receipt = None
    entries = [_entry(recipe, work, what, charge, to) for what, charge in charges]
    known = remembered(recipe.results / f"{KEPT}{dataset}")
    _check_names(recipe)
    _check_ledger(recipe, known)
    earlier, charged = recipe.earlier(), _now(recipe)[1]
    own = [
        _entry(recipe, work, RESTART if number else MODEL, accounting.charge_of(terms), to)
        for number, terms in enumerate(work.charged)
    ]
    forgotten = _beyond([*_check_cards(recipe, work.folder.parent), *own], [*charged, *earlier])
    if entries:
        recipe.remember_records()
    if path:
        uncharged, terms_of_ledger = recipe.uncharged, ledger_terms(recipe)

        def remember(one: Receipt) -> None:
            values = {"ledger": one.ledger, "head": one.head, "entries": one.entries}
            for other in uncharged:  # those of other names have other records too
                write_json(other.with_name(other.name.replace(UNCHARGED, KEPT, 1)), values)

        before = [*_beyond(earlier, charged), *forgotten]
        if before and terms_of_ledger.planned and not Path(path).exists():
            raise UserError(
                f"privacy.planned: {len(before)} entries of releases were made before this plan, which is valid only if it was fixed before the"
                " first: leave it out, and the ledger has a filter"
            )
        named = [*before, *_named(charged, entries)]
        receipt = ledger.charge(Path(path), terms_of_ledger, named, remember)
        for one in uncharged:
            one.unlink(missing_ok=True)
    elif forgotten or entries:
        file = recipe.uncharged[0]
        write_json(file, {"entries": [asdict(one) for one in [*read_uncharged(file), *forgotten, *entries]]})
    if charges:
        work.begin([what for what, _ in charges if what != RESTART], [entry.terms for entry in entries])
        for what, charge in charges:
            terms = accounting.terms_of(charge)
            kind = terms.pop("kind")
            stated = ", ".join(f"{name} {value}" for name, value in terms.items())
            print(f"charged: {what}, {kind} with {stated}", file=sys.stderr)
    _warn_of_delta(recipe)
    return receipt


def _check_ledger(recipe: ReleaseRecipe, known: Mapping[str, Any]) -> None:
    """Raise UserError if the config's ledger is not the one that the results remember, or an older copy of it."""
    dataset, privacy = recipe.setting.dataset, recipe.audit.privacy
    name = privacy.ledger_of(dataset)
    if known and not name:
        raise UserError(
            f"privacy.ledger: missing, but releases from {dataset} were charged to the ledger {known['ledger']}; name its file, so that this"
            " release is charged too"
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
        print(f"{path}: a new ledger{'' if recipe.earlier() else ', without any earlier release'}", file=sys.stderr)
    elif known:
        header = ledger.read_ledger(path)[0]
        if header.id != known["ledger"]:
            raise UserError(
                f"privacy.ledger: {path}: the ledger {header.id}, but earlier releases of this audit were charged to {known['ledger']};"
                " expected that one"
            )
        _check_newest(path, known, "an earlier release of this audit saw")


def _check_cards(recipe: ReleaseRecipe, released: Path) -> list[Entry]:
    """Raise UserError if a card beside the release states a later ledger: results and ledger may both be older copies.

    Return the entries of releases without a ledger as their cards state them.
    """
    path = Path(recipe.audit.privacy.ledger_of(recipe.setting.dataset))
    now = _now(recipe)[0]
    without: dict[str, list[Entry]] = {}
    for card, values in _cards(released):
        try:
            stated = values["ledger"] or {}
            same = values["setting"]["dataset"] == recipe.setting.dataset
            known = {key: kind(stated[key]) for key, kind in CHARGED.items()} if stated else {}
            mine_too = _of_card(values) if same and not stated else []
        except (UserError, AttributeError, KeyError, TypeError, ValueError, OverflowError):
            continue  # not a card that a release wrote
        if known and (same or known["id"] == now):
            _check_newest(path, known, f"{card} states")
        if mine_too:  # once, though its folder was copied; of two cards of a release one may state more
            known_of_it = without.setdefault(str(values["id"]), [])
            known_of_it += _beyond(mine_too, known_of_it)
    return [one for entries in without.values() for one in entries]


def _now(recipe: ReleaseRecipe) -> tuple[str, list[Entry]]:
    """Return the id and the entries of the config's ledger; empty if there is no such file."""
    path = Path(recipe.audit.privacy.ledger_of(recipe.setting.dataset))
    if not path.is_file():
        return "", []
    header, entries, _ = ledger.read_ledger(path)
    return header.id, entries


def _beyond(entries: Sequence[Entry], known: Sequence[Entry]) -> list[Entry]:
    """Return the entries that are not among the known ones: those of the same release with the same terms, each once."""
    left = [(one.released.get("id"), one.terms) for one in known]
    beyond = []
    for one in entries:
        if (which := (one.released.get("id"), one.terms)) in left:
            left.remove(which)
        else:
            beyond.append(one)
    return beyond


def _of_card(values: Mapping[str, Any]) -> list[Entry]:
    """Return the entries of a release as its card states them."""
    released = {name: str(values[name]) for name in ("id", "to")}
    released |= {"setting": str(values["setting"]["name"]), "audit": str(values["audit"]["name"])}
    terms = values["privacy"].get("charged", [accounting.terms_of(accounting.Unprotected())])
    unit = str(values["privacy"]["unit"])
    return [ledger.entry(MODEL, unit, accounting.charge_of(one), released) for one in terms]


def _check_newest(path: Path, known: Mapping[str, Any], who: str) -> None:
    """Raise UserError unless a ledger's line number `entries` has the digest `head`."""
    named = f"privacy.ledger: {path if path.name else 'none'}"
    if missing := ledger.behind(path, known, named, who):
        raise UserError(f"{missing} (another project's cards: give it another --out folder)")


def _check_names(recipe: ReleaseRecipe) -> None:
    """Raise UserError if some records were charged under another name: as another data set or audit beside these results."""
    now, own = _now(recipe)[0], Path(recipe.audit.privacy.ledger_of(recipe.setting.dataset))
    for path, pool in recipe.others(KEPT):
        other = remembered(path)
        if other["ledger"] != now:
            raise UserError(
                f"datasets.{recipe.setting.dataset}: some of its records are or were in {pool} too, from which releases were charged to the ledger"
                f" {other['ledger']}; charge this one there as well (privacy.ledger)"
            )
        _check_newest(own, other, f"{path} remembers")


def _entry(recipe: ReleaseRecipe, work: Unfinished, what: str, charge: accounting.Charge, to: str) -> Entry:
    released = {"id": work.id, "setting": recipe.setting.path, "to": to, "audit": recipe.audit.audit}
    return ledger.entry(what, recipe.unit, charge, released)


def _named(before: Sequence[Entry], entries: Sequence[Entry]) -> list[Entry]:
    """Return entries whose purpose states repetitions: a restart of this release, or a re-training of a setting that was released before."""
    settings = {one.released.get("setting") for one in before if one.what in (MODEL, AGAIN)}
    charged = [(one.released.get("id"), one.terms) for one in before]

    def name(one: Entry) -> str:
        if (one.released["id"], one.terms) in charged:  # the process was killed between the charge and its work
            return RESTART
        return AGAIN if one.what == MODEL and one.released["setting"] in settings else one.what

    return [replace(one, what=name(one)) for one in entries]


def ledger_terms(recipe: ReleaseRecipe) -> ledger.LedgerTerms:
    """Return the terms for a new ledger of a recipe's data set: the config's budget, and the terms of all planned releases."""
    audit, dataset = recipe.audit, recipe.setting.dataset
    planned: list[Mapping[str, Any]] = []
    for name in audit.privacy.planned:
        if name.startswith(f"{dataset}/"):
            other = ReleaseRecipe.from_audit(audit, name, recipe.results)
            planned.append(ledger.entry(MODEL, other.unit, other.charge, {}).terms)
    privacy = audit.privacy
    return ledger.LedgerTerms(
        dataset=dataset,
        unit=recipe.unit_of_dataset,
        epsilon=float(privacy.epsilon),
        delta=privacy.delta,
        planned=tuple(planned),
        filter=privacy.filter,
    )


def _warn_of_delta(recipe: ReleaseRecipe) -> None:
    if recipe.promise == PROTECTED and recipe.spec.mechanism.delta * recipe.units >= 1:
        print(
            f"warning: mechanisms.{recipe.setting.mechanism}.delta is not below 1/({recipe.unit}s of the pool)",
            file=sys.stderr,
        )
