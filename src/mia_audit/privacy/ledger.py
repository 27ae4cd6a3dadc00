"""Privacy ledgers: append-only files of the privacy spent and its terms. After any error nothing more can be spent.

A ledger has one unit, one adjacency and one set of terms; an entry has the same unit and adjacency, and terms of its
own. The file is text, one line per entry:

LENGTH CHECK SHA256 JSON

LENGTH is the length of JSON in bytes (8 hexadecimal digits), CHECK the start of the SHA-256 of LENGTH (8 digits).
SHA256 is the SHA-256 of the previous line's digest followed by JSON. The first line is the header, with a random id: so
every line depends on all earlier ones, and no line fits another ledger. docs/reference/reliability.md describes the attacks that
this prevents.

The ledger of a data set has every release from its records, charged before it is computed. Its first line fixes one
unit, one adjacency, one budget and one kind of composition. An entry's terms are those of a charge
(`mia_audit.privacy.accounting`), and every entry counts for every record: disjoint data sets have ledgers of their own.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from mia_audit.errors import UserError
from mia_audit.foreign_json import read_object
from mia_audit.privacy import accounting
from mia_audit.privacy.accounting import Charge, charge_of
from mia_audit.regular_files import OWNER_ONLY, open_regular
from mia_audit.storage.atomic import create_once, sync

KIND, FORMAT = "mia-audit ledger", 1
LONGEST = 1 << 26
"""Largest length of a line in bytes, enough for an explanation of a million features."""
BETWEEN_ATTEMPTS = 0.05
"""Seconds between two attempts to lock a ledger that is in use."""
_LINE = re.compile(rb"([0-9a-f]{8}) ([0-9a-f]{8}) ([0-9a-f]{64}) ")
_PREFIX = 8 + 1 + 8 + 1 + 64 + 1

ADD_REMOVE = "add-remove"
"""The adjacency of training: data sets differ by one added or removed record (person); the number of records is public."""

ZERO_OUT = "zero-out"
"""One record's term is removed from a sum, and the number of records is public. The output distributions are those of `ADD_REMOVE`."""

SAME = {ZERO_OUT: ADD_REMOVE}

PATIENCE = 60.0
"""Seconds for which a process waits while another one holds the ledger."""

RESTART = "restart"
"""Name of an entry that charges again for the interrupted part of a killed training run."""

KEPT = ".ledger-"
"""The beginning of the name of the file in which an audit's results remember the ledger of a data set."""

UNCHARGED = ".uncharged-"
"""The beginning of the name of the file with the entries of releases that no ledger was charged for."""

COMPOSITIONS = {
    "pld": "the privacy loss distribution of all entries, whose terms were fixed before the first",
    "rdp": "a filter of Rényi DP at order {order:g} (Feldman and Zrnic 2021)",
    "gdp": "a filter of Gaussian DP (Smith and Thakurta 2022)",
}
"""Descriptions of totals, by the ledger's `composition`."""


@dataclass(frozen=True)
class LedgerHeader:
    """The first line of a ledger: its unit, its adjacency, and the terms of all entries."""

    unit: str
    adjacency: str
    terms: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True)
class Entry:
    """One charge: its purpose, unit and adjacency, its terms for an accountant, and the release."""

    what: str
    unit: str
    adjacency: str
    terms: Mapping[str, Any]
    released: Mapping[str, Any] = field(default_factory=dict)


Check = Callable[[Entry], None]
"""A ledger's own check of an entry, in addition to the format; raises ValueError."""


def _anything(_: Entry) -> None:
    """Accept every entry."""


class Ledger:
    """The entries so far, in memory and, given a path, on disk.

    Opening an existing ledger continues it; unit, adjacency and terms must be those of its first line. Only one process
    at a time may hold it; others wait for `patience` seconds. Raises UserError if the ledger has another header, is
    damaged or in use, or if the path is not a regular file of this user.
    """

    def __init__(
        self, path: Path | None, header: LedgerHeader, check: Check = _anything, patience: float = 0.0
    ) -> None:
        self.path, self.header = path, header
        self._patience = patience
        self.entries: list[Entry] = []
        self.head = ""
        """The digest of the last line; a copy of it that is kept elsewhere reveals when an older state of the file was restored."""
        self._check, self._file, self._process = check, -1, os.getpid()
        self._closed = False
        self._size = -1
        """Length of the file as it was opened or written, in bytes; −1 before."""
        if path is not None:
            self._open(path)

    def append(self, entries: list[Entry]) -> None:
        """Charge for entries. Their results may be released only after this call has returned.

        Raises UserError, and charges nothing, if an entry does not belong in this ledger, or the file is not the one
        that was opened. If the disk fails, the entries stay charged, and the ledger accepts no further ones until it is
        opened again.
        """
        if os.getpid() != self._process:
            raise UserError(
                "ledger: a forked process may not spend the budget of the process that opened it; nothing was released"
            )
        for entry in entries:
            try:
                _belongs(entry, self.header)
                self._check(entry)
            except ValueError as error:
                raise UserError(f"{self.path or 'ledger'}: {error}; nothing was charged or released") from None
        self.refuse_closed()
        if self.path is None:
            self.entries += entries
            return
        self._refuse_replaced()
        if not entries:
            return
        lines, head = b"", self.head
        for number, entry in enumerate(entries, start=len(self.entries)):
            line, head = _line({"number": number} | asdict(entry), head)
            lines += line
        try:
            self.entries += entries
            _write_all(self._file, lines)
            os.fsync(self._file)
            self._size += len(lines)
        except BaseException as error:  # an interrupt too: whether the lines are on disk is not known
            self.close()
            if not isinstance(error, OSError):
                raise
            raise UserError(
                f"{self.path}: {error.strerror or error}; the answer was not released and stays charged. Free disk space and start again"
            ) from None
        self.head = head

    def refuse_closed(self) -> None:
        """Raise UserError if the ledger is closed, as after a disk failure, when its file may lack the last entries."""
        if self._closed:
            raise UserError(f"{self.path or 'ledger'}: closed; nothing was released")

    def close(self) -> None:
        """Close the ledger, and its file, which another process may then open."""
        self._closed = True
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, path: Path) -> None:
        if not path.exists() and not path.is_symlink():
            with create_once(path, OWNER_ONLY) as partial:
                begun = asdict(self.header) | {"id": secrets.token_hex(16)}
                partial.write_bytes(_line({"kind": KIND, "format": FORMAT} | begun, "")[0])
                sync(partial)
            sync(path.parent)
        self._file = _opened(path, os.O_RDWR | os.O_APPEND)
        try:
            self._lock(path)
            self._refuse_replaced()
            header, self.entries, self.head, end = _parsed(path, self._file, self._check)
            self._compare(path, header)
            self.header = header
            if os.fstat(self._file).st_size < end:
                _write_all(self._file, b"\n")
            else:
                os.ftruncate(self._file, end)
            self._size = os.fstat(self._file).st_size
        except BaseException:
            self.close()
            raise

    def _lock(self, path: Path) -> None:
        until = time.monotonic() + self._patience
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if time.monotonic() >= until:
                    raise UserError(
                        f"{path}: another process uses this ledger; two processes would spend the budget twice"
                    ) from None
                time.sleep(BETWEEN_ATTEMPTS)
            else:
                return

    def _compare(self, path: Path, header: LedgerHeader) -> None:
        """Raise UserError for a ledger with another unit, adjacency or terms."""
        expected = json.loads(json.dumps(asdict(self.header)))
        given = asdict(header)
        other = [name for name in ("unit", "adjacency") if given[name] != expected[name]]
        names = sorted(given["terms"].keys() | expected["terms"].keys())
        other += [name for name in names if given["terms"].get(name) != expected["terms"].get(name)]
        if other:
            raise UserError(
                f"{path}: created with other {', '.join(other)}; answers on other terms need a separate ledger"
            )

    def _refuse_replaced(self) -> None:
        """Raise UserError if the opened file is no longer at its path, or not as it was left: another one may have been put there."""
        assert self.path is not None
        mine = os.fstat(self._file)
        try:
            there = self.path.lstat()
        except OSError:
            there = None
        same = there is not None and (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)
        if not same or self._size not in (-1, mine.st_size):
            raise UserError(
                f"{self.path}: moved or replaced while it was in use; nothing was released. Put it back and start again"
            )


def read(path: Path, check: Check = _anything) -> tuple[LedgerHeader, list[Entry], str]:
    """Return header, entries and head of a ledger, even if it is in use. Raises UserError if it is damaged or missing."""
    descriptor = _opened(path, os.O_RDONLY)
    try:
        return _parsed(path, descriptor, check)[:3]
    finally:
        os.close(descriptor)


def heads(path: Path) -> list[str]:
    """Return the digest of every line of a ledger: of its header, and after each entry."""
    descriptor = _opened(path, os.O_RDONLY)
    try:
        return [digest for _, digest, _ in _lines(path, descriptor)]
    finally:
        os.close(descriptor)


def is_behind(heads: list[str], known: Mapping[str, Any]) -> bool:
    """Return whether a ledger with these lines is older than what is known of it: a number of `entries`, and the `head` after them."""
    return heads[known["entries"] :][:1] != [known["head"]]


def behind(path: Path, known: Mapping[str, Any], named: str, who: str) -> str:
    """Say that the ledger at a path, which may be missing, is older than the one that somebody knows; empty if it is not."""
    lines = heads(path) if path.is_file() else []
    if not is_behind(lines, known):
        return ""
    return (
        f"{named}: {max(0, len(lines) - 1)} entries, and not the {known['entries']} that {who}: an older copy was restored; put the"
        " latest one back"
    )


def remembered(path: Path) -> dict[str, Any]:
    """Return what results remember of a data set's ledger: its id, its number of entries, and its head; empty before a charge."""
    if not path.exists():
        return {}
    kinds = {"ledger": str, "head": str, "entries": int}
    expected = f"{', '.join(kinds)} of the ledger that releases were charged to"
    values = read_object(path, expected)
    if any(type(values.get(name)) is not kind for name, kind in kinds.items()):
        raise UserError(f"{path}: damaged; expected {expected}")
    return values


def _opened(path: Path, flags: int) -> int:
    try:
        return open_regular(path, flags)
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}; expected a ledger") from None


def _parsed(path: Path, descriptor: int, check: Check) -> tuple[LedgerHeader, list[Entry], str, int]:
    """Return header, entries, head, and the offset of their end; only an incomplete last line is left out."""
    header: LedgerHeader | None = None
    entries: list[Entry] = []
    head, end = "", 0
    for number, (content, digest, after) in enumerate(_lines(path, descriptor)):
        try:
            if digest != _digest(head, content):
                raise ValueError("its digest does not follow from the earlier lines")
            value = json.loads(content, parse_constant=_refuse_constant)
            if not isinstance(value, dict):
                raise ValueError("not an object")
            if header is None:
                header = _header(value)
            else:
                entry = _entry(value, len(entries))
                _belongs(entry, header)
                check(entry)
                entries.append(entry)
        except (ValueError, RecursionError) as error:
            raise _damaged(path, f"line {number + 1}: {error}") from None
        head, end = digest, after
    if header is None:
        raise _damaged(path, "no complete line")
    return header, entries, head, end


def _lines(path: Path, descriptor: int) -> Iterator[tuple[bytes, str, int]]:
    """Yield the JSON of every whole line, its digest, and the offset after it. A last line that a crash cut short is left out."""
    end = 0
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        while start := file.read(_PREFIX):
            if len(start) < _PREFIX:
                return
            match = _LINE.fullmatch(start)
            length = int(match[1], 16) if match else 0
            if match is None or match[2] != _length(length)[9:] or length > LONGEST:
                raise _damaged(path, f"no length and digest at byte {end}")
            content = file.read(length + 1)
            if len(content) < length:
                return
            if content[length:] not in (b"\n", b""):  # an editor may have removed the end of the last line
                raise _damaged(path, f"no end of the line at byte {end + _PREFIX + length}")
            end += _PREFIX + length + 1
            yield content[:length], match[3].decode(), end


def _damaged(path: Path, what: str) -> UserError:
    return UserError(
        f"{path}: damaged ({what}); expected an unchanged ledger. Nothing is charged to a damaged one: restore a complete copy of"
        " the same or a later state"
    )


def _line(value: Mapping[str, Any], head: str) -> tuple[bytes, str]:
    content = json.dumps(value, allow_nan=False, sort_keys=True).encode()
    digest = _digest(head, content)
    return b"%s %s %s\n" % (_length(len(content)), digest.encode(), content), digest


def _length(length: int) -> bytes:
    """Return LENGTH CHECK, so that a damaged length does not make its line look incomplete."""
    digits = b"%08x" % length
    return digits + b" " + hashlib.sha256(digits).hexdigest()[:8].encode()


def _digest(head: str, content: bytes) -> str:
    return hashlib.sha256(head.encode() + content).hexdigest()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _header(value: dict[str, Any]) -> LedgerHeader:
    if value.get("kind") != KIND or value.get("format") != FORMAT:
        raise ValueError(f"not the header of a ledger of format {FORMAT}")
    texts = [value.get(name) for name in ("unit", "adjacency", "id")]
    terms = value.get("terms")
    if not all(isinstance(text, str) and text for text in texts) or not isinstance(terms, dict):
        raise ValueError("expected unit, adjacency, id and terms")
    return LedgerHeader(str(texts[0]), str(texts[1]), terms, str(texts[2]))


def _entry(value: dict[str, Any], number: int) -> Entry:
    kinds = {"number": int, "what": str, "unit": str, "adjacency": str, "terms": dict, "released": dict}
    if value.keys() != kinds.keys() or any(type(value[name]) is not kind for name, kind in kinds.items()):
        raise ValueError(f"expected {', '.join(kinds)}")
    if value.pop("number") != number:
        raise ValueError(f"expected entry {number}")
    return Entry(**value)


def _belongs(entry: Entry, header: LedgerHeader) -> None:
    """Raise ValueError for an entry of another unit or adjacency, and for terms that are not finite or negative."""
    for name in ("unit", "adjacency"):
        if (given := getattr(entry, name)) != getattr(header, name):
            raise ValueError(
                f"an entry has the {name} '{given}'; expected that of the ledger, '{getattr(header, name)}'"
            )
    for number in _numbers(entry.terms):
        if not (math.isfinite(number) and number >= 0):
            raise ValueError(f"an entry has {number:g} among its terms; expected finite numbers from 0")
    if not all(math.isfinite(number) for number in _numbers(entry.released)):
        raise ValueError("an entry releases a number that is not finite")


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, int | float):
        yield float(value) if abs(value) < 1e300 else math.inf


def _write_all(file: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]


@dataclass(frozen=True)
class LedgerTerms:
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

    def header(self, entries: Sequence[Entry] = (), order: float | None = None) -> LedgerHeader:
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
            first = [charge_of(one.terms) for one in entries]
            values["order"] = order or accounting.order_for(self.epsilon, self.delta, first)
        return LedgerHeader(self.unit, ADD_REMOVE, values)


@dataclass(frozen=True)
class Total:
    """The largest privacy loss of a unit: ε at δ, the budget, and the kind of composition."""

    epsilon: float
    delta: float
    budget: float
    unit: str
    adjacency: str
    composed_by: str


@dataclass(frozen=True)
class Receipt:
    """The receipt of a charge: the ledger's random id, the digest of its last line, its number of entries, and its total."""

    ledger: str
    head: str
    entries: int
    total: Total


def charge(
    path: Path,
    terms: LedgerTerms,
    entries: Sequence[Entry],
    remember: Callable[[Receipt], None] = lambda _: None,
    patience: float = PATIENCE,
) -> Receipt:
    """Charge for entries in the ledger of a data set, which is created if missing. Work may begin only afterwards.

    The receipt is remembered before another process can charge, so that the last one to be remembered is the newest.

    Raises UserError, and charges nothing, if an entry does not belong in the ledger, or the budget would be overdrawn.
    """
    if not path.exists():
        header = terms.header(entries)
        _allow(path, header, [], entries)  # no ledger is created if it would refuse its first entry
        try:
            Ledger(path, header, _check, patience).close()
        except UserError:
            if not path.exists():  # else another process has created it first, for other entries
                raise
    known = read_ledger(path)[0].terms  # the same records may have another name now
    header = replace(terms, dataset=str(known.get("dataset"))).header(order=known.get("order"))
    return _charge(path, header, entries, patience, remember)


def add(path: Path, entries: Sequence[Entry], patience: float = PATIENCE) -> Receipt:
    """Charge for entries in an existing ledger, on its terms."""
    return _charge(path, read_ledger(path)[0], entries, patience)


def read_ledger(path: Path) -> tuple[LedgerHeader, list[Entry], str]:
    """Return header, entries and head of a data set's ledger; UserError if the file is of another kind, damaged or missing."""
    header, entries, head = read(path, _check)
    if header.terms.get("kind") != "data set":
        raise UserError(f"{path}: a ledger of another kind; expected the ledger of a data set (privacy.ledger)")
    return header, entries, head


def entry(what: str, unit: str, charged: Charge, released: Mapping[str, Any], adjacency: str = ADD_REMOVE) -> Entry:
    """Return the entry of a charge: its terms, its purpose, and the release (random id, setting, recipient)."""
    terms = json.loads(json.dumps(accounting.terms_of(charged)))
    return Entry(what, unit, SAME.get(adjacency, adjacency), terms, dict(released))


def total_of(header: LedgerHeader, entries: Sequence[Entry]) -> Total:
    """Return the total of entries; ValueError if the ledger's composition does not support one of them."""
    terms = header.terms
    composition, delta = str(terms["composition"]), float(terms["delta"])
    order = terms.get("order")
    if composition != "pld" and math.isinf(float(terms["epsilon"])):  # without a budget a filter refuses nothing
        kind = "Gaussian DP" if composition == "gdp" else "Rényi DP at the best order"
        composed_by = f"{kind}, as if all terms had been fixed before the first entry"
    else:
        composed_by = COMPOSITIONS[composition].format(order=order)
    return Total(
        epsilon=_epsilon(composition, order, delta, entries),
        delta=delta,
        budget=float(terms["epsilon"]),
        unit=header.unit,
        adjacency=header.adjacency,
        composed_by=composed_by,
    )


def _epsilon(composition: str, order: float | None, delta: float, entries: Sequence[Entry]) -> float:
    charges = [charge_of(one.terms) for one in entries]
    if composition == "pld":
        return accounting.epsilon_by_losses(charges, delta)
    if composition == "gdp":
        return accounting.epsilon_of_filter([(one.mu_squared(), one.delta) for one in charges], None, delta)
    if order is not None:
        return accounting.epsilon_of_filter([(one.rdp(order), one.delta) for one in charges], order, delta)
    return accounting.epsilon_by_orders(charges, delta)


def _charge(
    path: Path,
    header: LedgerHeader,
    entries: Sequence[Entry],
    patience: float,
    remember: Callable[[Receipt], None] = lambda _: None,
) -> Receipt:
    with Ledger(path, header, _check, patience) as kept:
        total = _allow(path, kept.header, kept.entries, entries)
        kept.append(list(entries))
        receipt = Receipt(kept.header.id, kept.head, len(kept.entries), total)
        remember(receipt)
        return receipt


def _allow(path: Path, header: LedgerHeader, before: Sequence[Entry], entries: Sequence[Entry]) -> Total:
    """Return the total after entries. Raises UserError if these do not belong in the ledger or would overdraw the budget."""
    try:
        for one in entries:
            _belongs(one, header)
            _check(one)
        repeated = _unplanned(header, before, entries)
        total = total_of(header, [*before, *entries])
    except ValueError as error:
        raise UserError(f"{path}: {error}; nothing was charged or released") from None
    _check_plan(path, header, repeated)
    if total.epsilon > total.budget:
        own, share = sum(charge_of(one.terms).delta for one in [*before, *entries]), accounting.OWN * total.delta
        if own > share:
            raise UserError(
                f"{path}: the δs of its (ε, δ)-DP entries add up to {own:g}, but a filter has {share:g} for them, half of the ledger's δ;"
                " nothing was charged or released. Only a new ledger can have a larger privacy.delta, or a list of all its entries"
                " (privacy.planned)"
            )
        spent = total_of(header, before).epsilon
        fixed = "The first charge has fixed the budget of these records: train" if path.exists() else "Train"
        larger = "release nothing more of them" if path.exists() else "state a larger budget"
        raise UserError(
            f"{path}: the budget would be overdrawn: the total ε would be {total.epsilon:.6g} at δ = {total.delta:g}, by {total.composed_by};"
            f" the budget is {total.budget:g}, of which {spent:.6g} is spent; nothing was charged or released. {fixed} with a smaller ε, or"
            f" {larger}. Releases listed before the first one from some records (privacy.planned) cost less together"
        )
    return total


def _check_plan(path: Path, header: LedgerHeader, repeated: Sequence[Entry]) -> None:
    """Raise UserError if all planned entries, and work that kills repeated, exceed the budget.

    The guarantee of a choice among planned entries by the results of others is that of all of them.
    """
    terms = header.terms
    delta, budget = float(terms["delta"]), float(terms["epsilon"])
    if terms["composition"] != "pld" or math.isinf(budget):
        return
    planned = [charge_of(one) for one in terms["planned"]]
    whole = accounting.epsilon_by_losses([*planned, *(charge_of(one.terms) for one in repeated)], delta)
    if whole > budget:
        with_it = f" with the work that kills repeated ({len(repeated)} entries)" if repeated else ""
        raise UserError(
            f"{path}: privacy.planned: everything planned{with_it} has ε = {whole:.6g} at δ = {delta:g}, but the budget"
            f" (privacy.epsilon) is {budget:g}; nothing was charged or released. Plan fewer, or state a larger budget, in a new ledger"
        )


def _unplanned(header: LedgerHeader, before: Sequence[Entry], entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries for interrupted work that is repeated on the same terms.

    It has released nothing, so the time of its interruption does not depend on a release. Raises ValueError for any
    other entry that is not among the fixed terms of a ledger.
    """
    repeated: list[Entry] = []
    if header.terms["composition"] != "pld":
        return repeated
    left = [_plain(terms) for terms in header.terms["planned"]]
    known: dict[str, list[str]] = {}
    for number, one in enumerate([*before, *entries]):
        release = str(one.released.get("id", ""))
        if one.what == RESTART and _plain(one.terms, "steps") in known.get(release, []):
            repeated.append(one)
        elif _plain(one.terms) in left:
            left.remove(_plain(one.terms))
            known.setdefault(release, []).append(_plain(one.terms, "steps"))
        elif number >= len(before):
            raise ValueError(
                f"'{one.what}' is not among the remaining entries of this ledger's privacy.planned; to choose entries later, use a"
                " new ledger without privacy.planned"
            )
    return repeated


def _plain(terms: Mapping[str, Any], *without: str) -> str:
    return json.dumps({name: value for name, value in terms.items() if name not in without}, sort_keys=True)


def _check(one: Entry) -> None:
    """Raise ValueError for an entry whose terms describe no charge."""
    charge_of(one.terms)
