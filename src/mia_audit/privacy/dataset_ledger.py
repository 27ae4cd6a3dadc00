"""The ledger of a data set: every release from its records, charged before it is computed.

It is a ledger file (`mia_audit.privacy.ledger`). Its first line fixes one unit, one adjacency, one budget and one kind
of composition. An entry's terms are those of a charge (`mia_audit.privacy.accounting`). An entry that used only one of
several disjoint parts of the records names this part as `part`, PARTITION/PART. Among the parts of one partition only
the largest cost counts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from mia_audit.errors import UserError
from mia_audit.privacy import accounting
from mia_audit.privacy.accounting import Charge, charge_of
from mia_audit.privacy.ledger import Entry, Header, Ledger, read

ADD_REMOVE = "add-remove"
"""The adjacency of training: data sets differ by one added or removed record (person); the number of records is public."""

ZERO_OUT = "zero-out"
"""One record's term is removed from a sum, and the number of records is public. The output distributions are those of `ADD_REMOVE`."""

SAME = {ZERO_OUT: ADD_REMOVE}

PATIENCE = 60.0
"""Seconds for which a process waits while another one holds the ledger."""

RESTART = "restart"
"""Name of an entry that charges again for the interrupted part of a killed training run."""

COMPOSITIONS = {
    "pld": "the privacy loss distribution of all entries, whose terms were fixed before the first",
    "rdp": "a filter of Rényi DP at order {order:g} (Feldman and Zrnic 2021)",
    "gdp": "a filter of Gaussian DP (Smith and Thakurta 2022)",
}
"""Descriptions of totals, by the ledger's `composition`."""

PART = re.compile(r"[\w.-]+/[\w.-]+")

MOST_COMBINATIONS = 1000
"""Largest number of combinations of parts of several partitions that are enumerated."""


@dataclass(frozen=True)
class Terms:
    """The terms of a new ledger of a data set: the budget, and how entries are composed.

    `planned` has the terms of all permitted entries, which are then composed by their privacy loss distributions.
    Without it entries are composed by the named `filter`. The filter's Rényi order is the one that allows the largest
    number of charges like the first one. It is fixed before any release.
    """

    dataset: str
    unit: str
    epsilon: float
    delta: float
    planned: tuple[Mapping[str, Any], ...] = ()
    filter: str = "rdp"

    def header(self, entries: Sequence[Entry] = (), order: float | None = None) -> Header:
        """Return the first line of a ledger created for these entries, or with the given Rényi order."""
        composition = "pld" if self.planned else self.filter
        limited = math.isfinite(self.epsilon)
        values = {
            "kind": "data set",
            "dataset": self.dataset,
            "epsilon": self.epsilon if limited else "inf",
            "delta": self.delta,
            "composition": composition,
            "planned": [dict(terms) for terms in self.planned],
        }
        if composition == "rdp" and limited:
            first = [_charge_of(one) for one in entries]
            values["order"] = order or accounting.order_for(self.epsilon, self.delta, first)
        return Header(self.unit, ADD_REMOVE, values)


@dataclass(frozen=True)
class Total:
    """The largest privacy loss of a unit: ε at δ, the budget, the kind of composition, and ε of every part that entries name."""

    epsilon: float
    delta: float
    budget: float
    unit: str
    adjacency: str
    composed_by: str
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Receipt:
    """The receipt of a charge: the ledger's random id, the digest of its last line, its number of entries, and its total."""

    ledger: str
    head: str
    entries: int
    total: Total


def charge(path: Path, terms: Terms, entries: Sequence[Entry], patience: float = PATIENCE) -> Receipt:
    """Charge for entries in the ledger of a data set, which is created if missing. Work may begin only afterwards.

    Raises UserError, and charges nothing, if an entry does not belong in the ledger, or the budget would be overdrawn.
    """
    if not path.exists():
        header = terms.header(entries)
        _allow(path, header, [], entries)  # no ledger is created if it would refuse its first entry
        with suppress(UserError):  # another process may create it first, for other entries
            Ledger(path, header, _check, patience).close()
    return _charge(path, terms.header(order=read_ledger(path)[0].terms.get("order")), entries, patience)


def add(path: Path, entries: Sequence[Entry], patience: float = PATIENCE) -> Receipt:
    """Charge for entries in an existing ledger, on its terms."""
    return _charge(path, read_ledger(path)[0], entries, patience)


def read_ledger(path: Path) -> tuple[Header, list[Entry], str]:
    """Return header, entries and head of a data set's ledger; UserError if the file is of another kind, damaged or missing."""
    header, entries, head = read(path, _check)
    if header.terms.get("kind") != "data set":
        raise UserError(f"{path}: a ledger of another kind; expected the ledger of a data set (privacy.ledger)")
    return header, entries, head


def entry(
    what: str, unit: str, charged: Charge, released: Mapping[str, Any], part: str = "", adjacency: str = ADD_REMOVE
) -> Entry:
    """Return the entry of a charge: its terms, its purpose, and the release (random id, setting, recipient)."""
    terms = accounting.terms_of(charged) | ({"part": part} if part else {})
    return Entry(what, unit, SAME.get(adjacency, adjacency), json.loads(json.dumps(terms)), dict(released))


def total_of(header: Header, entries: Sequence[Entry]) -> Total:
    """Return the total of entries; ValueError if the ledger's composition does not support one of them."""
    terms = header.terms
    composition, delta = str(terms["composition"]), float(terms["delta"])
    order = terms.get("order")
    if composition == "rdp" and order is None:  # without a budget the filter refuses nothing
        composed_by = "Rényi DP at the best order, as if all terms had been fixed before the first entry"
    else:
        composed_by = COMPOSITIONS[composition].format(order=order)
    everywhere = [one for one in entries if "part" not in one.terms]
    partitions: dict[str, dict[str, list[Entry]]] = {}
    for one in entries:
        if part := one.terms.get("part"):
            name = str(part).partition("/")[0]
            partitions.setdefault(name, {}).setdefault(str(part), []).append(one)

    def epsilon(chosen: Sequence[Entry]) -> float:
        return _epsilon(composition, order, delta, chosen)

    parts = {part: epsilon([*everywhere, *own]) for those in partitions.values() for part, own in those.items()}
    if math.prod(map(len, partitions.values())) <= MOST_COMBINATIONS:
        combinations = product(*(those.values() for those in partitions.values()))
        worst = max(epsilon([*everywhere, *(one for part in parts for one in part)]) for parts in combinations)
    else:
        worst = epsilon(entries)  # this is an upper bound on the spent ε
    return Total(worst, delta, float(terms["epsilon"]), header.unit, header.adjacency, composed_by, parts)


def _epsilon(composition: str, order: float | None, delta: float, entries: Sequence[Entry]) -> float:
    charges = [_charge_of(one) for one in entries]
    if composition == "pld":
        return accounting.epsilon_by_losses(charges, delta)
    if composition == "gdp":
        return accounting.epsilon_of_filter([(one.mu_squared(), one.delta) for one in charges], None, delta)
    if order is not None:
        return accounting.epsilon_of_filter([(one.rdp(order), one.delta) for one in charges], order, delta)
    return accounting.epsilon_by_orders(charges, delta)


def _charge(path: Path, header: Header, entries: Sequence[Entry], patience: float) -> Receipt:
    with Ledger(path, header, _check, patience) as kept:
        total = _allow(path, kept.header, kept.entries, entries)
        kept.append(list(entries))
        return Receipt(kept.header.id, kept.head, len(kept.entries), total)


def _allow(path: Path, header: Header, before: Sequence[Entry], entries: Sequence[Entry]) -> Total:
    """Return the total after entries. Raises UserError if these do not belong in the ledger or would overdraw the budget."""
    try:
        for one in entries:
            _check(one)
        _refuse_unplanned(header, before, entries)
        total = total_of(header, [*before, *entries])
    except ValueError as error:
        raise UserError(f"{path}: {error}; nothing was charged or released") from None
    if total.epsilon > total.budget:
        own = sum(_charge_of(one).delta for one in [*before, *entries])
        if own >= total.delta and header.terms["composition"] != "pld":
            raise UserError(
                f"{path}: the δs of its (ε, δ)-DP entries add up to {own:g}, but must stay below the ledger's δ of {total.delta:g};"
                " nothing was charged or released. Only a new ledger can have a larger privacy.delta"
            )
        spent = total_of(header, before).epsilon
        raise UserError(
            f"{path}: the budget would be overdrawn: the total ε would be {total.epsilon:.6g} at δ = {total.delta:g}, by {total.composed_by};"
            f" the budget is {total.budget:g}, of which {spent:.6g} is spent; nothing was charged or released. {_advice(header)}"
        )
    return total


def _advice(header: Header) -> str:
    if header.terms["composition"] == "pld":
        return "Only a new ledger can have a larger privacy.epsilon"
    return "Only a new ledger can have a larger privacy.epsilon, or a list of all its entries (privacy.planned); listed entries cost less together"


def _refuse_unplanned(header: Header, before: Sequence[Entry], entries: Sequence[Entry]) -> None:
    """Raise ValueError for an entry that is not among the fixed terms of a ledger.

    Interrupted work may be repeated on the same terms. It has released nothing, so the time of its interruption does
    not depend on a release.
    """
    if header.terms["composition"] != "pld":
        return
    left = [_plain(terms) for terms in header.terms["planned"]]
    known: dict[str, list[str]] = {}
    for number, one in enumerate([*before, *entries]):
        release = str(one.released.get("id", ""))
        if one.what == RESTART and _plain(one.terms, "steps") in known.get(release, []):
            continue
        if _plain(one.terms) in left:
            left.remove(_plain(one.terms))
            known.setdefault(release, []).append(_plain(one.terms, "steps"))
        elif number >= len(before):
            raise ValueError(
                f"'{one.what}' is not among the remaining entries of this ledger's privacy.planned; to choose entries later, use a"
                " new ledger without privacy.planned"
            )


def _plain(terms: Mapping[str, Any], *without: str) -> str:
    return json.dumps({name: value for name, value in terms.items() if name not in without}, sort_keys=True)


def _check(one: Entry) -> None:
    """Raise ValueError for an entry whose terms describe no charge."""
    _charge_of(one)
    part = one.terms.get("part", "a/b")
    if not isinstance(part, str) or not PART.fullmatch(part):
        raise ValueError(f"an entry names the part '{part}'; expected PARTITION/PART")


def _charge_of(one: Entry) -> Charge:
    return charge_of({name: value for name, value in one.terms.items() if name != "part"})
