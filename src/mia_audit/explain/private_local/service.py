"""An object that explains queries within a budget: from scratch, from a past explanation, or only from the history.

An answer and its charge are written to the ledger in one append, before the answer is released. So a crash loses both,
or leaves a charge for an answer that nobody received. Nothing is released without a charge. Free answers are functions
of charged ones, and are not stored.
"""

from __future__ import annotations

import hmac
import json
import math
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mia_audit.errors import UserError, suggest
from mia_audit.explain.private_local.history import HISTORY, REUSED, SCRATCH, WARM, AnsweredQuery, History
from mia_audit.explain.private_local.records import ExplanationSet, checked_values, largest
from mia_audit.explain.private_local.solver import Problem, descend, iterates, learning_rate
from mia_audit.explain.private_local.terms import ExplanationTerms, radius
from mia_audit.foreign_json import read_object
from mia_audit.privacy import ledger
from mia_audit.privacy.gaussian import allows, epsilon_of_gdp
from mia_audit.regular_files import locked

if TYPE_CHECKING:
    from jaxtyping import Float, Num

    BlackBox = Callable[[Num[np.ndarray, "q ..."]], Float[np.ndarray, "q C"]]

WHAT = "explanation"
KINDS = {"query": list, "value": float, "class": int, "source": str, "steps": int, "explanation": list, "number": int}
"""Fields of an entry's release, with their types."""


class ExplanationLedger:
    """The charged answers so far, in memory and, given a path, in a ledger file (`mia_audit.privacy.ledger`).

    `terms` must equal those in an existing file. A file beside the data set's ledger `beside`, if given, remembers how far
    this one was. Raises UserError for the same reasons as `mia_audit.privacy.ledger.Ledger`, and for an older copy.
    """

    def __init__(
        self,
        path: Path | None,
        features: int,
        delta: float,
        adjacency: str,
        terms: dict[str, Any],
        unit: str = "record",
        beside: Path | None = None,
    ) -> None:
        self.delta, self.features = delta, features
        self.entries: list[AnsweredQuery] = []
        self.history = History()
        self._kept = ledger.Ledger(path, ledger.LedgerHeader(unit, adjacency, terms), self._check)
        self.id = self._kept.header.id or secrets.token_hex(16)
        """The random id of the file or, without a file, of this object."""
        self._mark = beside.with_name(f".{beside.name}.{self.id}") if path and beside else None
        try:
            self._take(self._kept.entries)
            self._seen = self._marked()
            if path and self._seen and ledger.is_behind(ledger.heads(path), self._seen):
                raise UserError(
                    f"{path}: an older copy was restored: {self._mark} knows later answers; put the latest one back"
                )
        except BaseException:
            self.close()  # an interrupt too would leave it locked
            raise

    @property
    def mu_squared(self) -> float:
        """Total μ² of all charges so far."""
        return self.history.mu_squared

    @property
    def epsilon(self) -> float:
        """Total ε at δ of all charges so far."""
        return epsilon_of_gdp(math.sqrt(self.mu_squared), self.delta)

    def append(self, entries: list[AnsweredQuery]) -> None:
        """Charge for entries and store them. Their explanations may be released only after this call has returned."""
        # all copies of this ledger, which have the same mark, wait for one another
        with locked(os.open(self._mark.parent, os.O_RDONLY)) if self._mark else nullcontext():
            self._append(entries)

    def _append(self, entries: list[AnsweredQuery]) -> None:
        from mia_audit.storage import write_json  # configs are read without it
        from mia_audit.storage.atomic import sync

        before = len(self._kept.entries)
        if self._marked() != self._seen:
            raise UserError(
                f"{self._kept.path}: another copy of this ledger has answered since; nothing was charged or released"
            )
        try:
            try:
                self._kept.append([self._kept_entry(entry) for entry in entries])
            finally:
                self._take(self._kept.entries[before:])
            if self._mark and (entries or not self._seen):
                self._seen = {"entries": len(self._kept.entries), "head": self._kept.head}
                write_json(self._mark, self._seen)
                sync(self._mark, self._mark.parent)
        except UserError:
            raise
        except BaseException:
            self.close()  # what an interrupt has left out here is in the file, from which the next explainer begins
            raise

    def _marked(self) -> dict[str, Any]:
        """Return what is remembered of this ledger elsewhere: its number of entries and the digest of its last line."""
        if self._mark is None or not self._mark.exists():
            return {}
        values = read_object(self._mark, "entries and head of a ledger of explanations")
        if (type(values.get("entries")), type(values.get("head"))) != (int, str):
            raise UserError(f"{self._mark}: damaged; expected entries and head of a ledger of explanations")
        return values

    def refuse_forgotten(self) -> None:
        """Raise UserError if nothing remembers how far this ledger was."""
        if self._mark and not self._seen:
            raise UserError(
                f"{self._mark}: missing, but the budget of {self._kept.path} was charged before, and this hidden file knows how far it"
                " was: move it along with the ledger of the data set. If it is lost, begin a new ledger of explanations, whose budget"
                " is charged anew"
            )

    def close(self) -> None:
        """Close the file; another process may then open it."""
        self._kept.close()

    def _kept_entry(self, entry: AnsweredQuery) -> ledger.Entry:
        released = {
            "query": entry.query.tolist(),
            "value": entry.value,
            "class": entry.explained_class,
            "source": entry.source,
            "steps": entry.steps,
            "explanation": entry.explanation.tolist(),
            "number": entry.number,
        }
        return ledger.Entry(
            WHAT, self._kept.header.unit, self._kept.header.adjacency, {"mu_squared": entry.mu_squared}, released
        )

    def _check(self, entry: ledger.Entry) -> None:
        """Raise ValueError unless an entry is an explanation in this feature space."""
        released = entry.released
        if (
            entry.what != WHAT
            or entry.terms.keys() != {"mu_squared"}
            or type(entry.terms["mu_squared"]) is not float
            or released.keys() != KINDS.keys()
            or any(type(released[name]) is not kind for name, kind in KINDS.items())
        ):
            raise ValueError("an entry is not a private explanation")
        for name in ("query", "explanation"):
            if len(released[name]) != self.features or any(type(number) is not float for number in released[name]):
                raise ValueError(f"an entry whose {name} is not {self.features} numbers")

    def _take(self, kept: list[ledger.Entry]) -> None:
        for entry in kept:
            said, cost = entry.released, entry.terms["mu_squared"]
            query, explanation = np.array(said["query"]), np.array(said["explanation"])
            rest = (said["value"], said["class"], said["source"], said["steps"], cost, explanation, said["number"])
            self.entries.append(AnsweredQuery(query, *rest))
            self.history = self.history.after(self.entries[-1])


CHARGED = "explanations"
"""Name of explanations in the ledger of a data set."""


@dataclass(frozen=True)
class Protocol:
    """How a protocol uses past explanations.

    With `reuse`, the answer is the past explanation of a nearby query, if there is one. Otherwise steps start from the
    best past explanation (algorithms 2 and 3). With `floor`, the number of steps is at least the number for a gradient
    whose norm equals that of the noise. A protocol that is not `interactive` never reads the records.
    """

    reuse: bool = False
    floor: bool = False
    interactive: bool = True


PROTOCOLS = {
    "non-adaptive": Protocol(),
    "adaptive": Protocol(reuse=True, floor=True),
    "enhanced": Protocol(reuse=True),
    "non-interactive": Protocol(interactive=False),
}


class Answers(NamedTuple):
    """Explanations [q, n] in units of 1/scale, and each explanation's cost (μ²), source, noisy steps and class."""

    explanations: Float[np.ndarray, "q n"]
    spent: list[float]
    source: list[str]
    steps: list[int]
    classes: list[int]


class PrivateExplainer:
    """Explains queries. For a fixed f, all answers together are (budget, δ)-DP with respect to the explanation set.

    The guarantee is for one record of the set, or for one person with all of their records if the set has persons.

    `black_box` maps records to values [q, C] in [−1, 1], and the class with the largest value is explained; without a
    black box the values at the queries are passed to `answer`. A filter of Gaussian DP (Smith and Thakurta 2022)
    decides before every answer whether the budget allows it; if not, the answer is computed from earlier answers
    (algorithm 4) and costs nothing. Threads may share an explainer; processes may not: the explainer refuses to work in
    a forked process, or with a ledger that is in use. If a model was trained on the explanation set, or on records that
    include it, `data_ledger` is the ledger of that data set: the whole budget is charged there once, before the first
    answer (`mia_audit.privacy.ledger`). If the records are NumPy's map of a pool's array, or a NumPy view of it, and
    models were released from the pool, another ledger or none is refused before every answer, unless there is a seed.
    Copies are not recognised, nor what other libraries make of a map, such as tensors and memoryviews. `about`, such as
    the name of the black box, is kept in the ledger, and a ledger with another `about` is refused.

    Without a `seed`, the noise of every answer is drawn with 128 fresh bits from the operating system, as a service
    requires. With a seed, the noise is a function of seed, records, terms, protocol and the answer's number: a study
    can be repeated, but nobody is protected.
    """

    def __init__(
        self,
        explained: ExplanationSet,
        terms: ExplanationTerms,
        protocol: str = "adaptive",
        black_box: BlackBox | None = None,
        ledger: Path | None = None,
        seed: int | None = None,
        data_ledger: Path | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        if protocol not in PROTOCOLS:
            raise UserError(f"unknown protocol '{protocol}': {suggest(protocol, PROTOCOLS)}")
        self._pools = _pools_of(explained.records) if seed is None else []
        self._charged_to = _id_of(data_ledger) if data_ledger and seed is None else ""
        _refuse_uncharged(self._pools, self._charged_to)
        if data_ledger and self._pools:
            _refuse_older(self._pools, data_ledger)
        self.explained, self.terms, self.black_box = explained, terms, black_box
        self.protocol = PROTOCOLS[protocol]
        self._process = os.getpid()
        self._lock = threading.Lock()
        features, units = explained.features, explained.units
        rest = {"features": features, "scale": explained.scale, "terms": _plain(terms)} | dict(about or {})
        metadata = {f"{explained.unit}s": units} | rest | ({} if seed is None else {"noise": "of a seed"})
        counted = {"persons" if explained.whose else "records": units}  # the same noise if every person has one record
        self._secret = None if seed is None else _secret(seed, protocol, counted | rest, explained)
        self.ledger = ExplanationLedger(
            path=ledger,
            features=features,
            delta=terms.delta,
            adjacency=terms.adjacency,
            terms=metadata,
            unit=explained.unit,
            beside=data_ledger,
        )
        if data_ledger is not None:
            self._charge_data(data_ledger)
        self._answered = 0
        self.deviation = terms.multiplier * terms.sensitivity / units
        self._rate = learning_rate(terms.c, self.deviation, features)
        # theorem 4.2 holds only within the radius in which weights are equal; the published distance log T/√T may be larger
        self._near = min(math.log(terms.steps) / math.sqrt(terms.steps), radius(terms.c, terms.span))

    def _charge_data(self, path: Path) -> None:
        """Charge the budget in the ledger of a data set, unless it was charged there before for this explainer's ledger."""
        from mia_audit.privacy import ledger
        from mia_audit.privacy.accounting import Gaussian

        try:
            if not self.terms.guaranteed or self._secret is not None:
                raise UserError(
                    f"{path}: explanations with a seed, or with the published β without noise, have no guarantee to charge; leave"
                    " out the data set's ledger, or the seed and β"
                )
            known = [one.released.get("id") for one in ledger.read_ledger(path)[1]]
            if self.ledger.id in known:
                self.ledger.refuse_forgotten()
            else:
                # it is remembered before the charge, so that a kill between the two locks nobody out
                self.ledger.append([])
                charge = Gaussian(1 / math.sqrt(self.terms.mu_squared))
                released = {"id": self.ledger.id, "to": "whoever asks"}
                entry = ledger.entry(
                    CHARGED, self.explained.unit, charge, released=released, adjacency=self.terms.adjacency
                )
                ledger.add(path, [entry])
        except BaseException:
            self.ledger.close()
            raise

    @property
    def epsilon(self) -> float:
        """ε at δ of the charges so far, which depend on the answers: the guarantee is the budget."""
        return self.ledger.epsilon

    def answer(self, queries: Num[np.ndarray, "q ..."], values: Float[np.ndarray, "q C"] | None = None) -> Answers:
        """Explain records of the same form as the explanation set's. Without a black box, `values` are those at the records.

        Raises UserError for queries in another feature space, for values outside [−1, 1], and if models were released
        from the records meanwhile whose ledger is not charged, without spending anything; and if the budget is too
        small for a query and the history has nothing for its class. Earlier queries of the call stay charged.
        """
        self._refuse_fork()
        asked = self._asked(queries, values)
        problems: Iterable[Problem | None] = repeat(None, len(asked))
        if self.protocol.interactive:
            points = np.array([one.query for one in asked]).reshape(len(asked), self.explained.features)
            at_queries, classes = (
                np.array([getattr(one, name) for one in asked]) for name in ("value", "explained_class")
            )
            problems = self.explained.problems(points, at_queries, classes.astype(np.int64), self.terms)
        with self._lock, np.errstate(all="ignore"):  # a warning would reveal a record
            self._refuse_fork()
            _refuse_uncharged(self._pools, self._charged_to)
            entries: list[AnsweredQuery] = []
            charged: list[AnsweredQuery] = []
            past = self.ledger.history
            first = max([self._answered, *(entry.number + 1 for entry in self.ledger.entries[-1:])])
            try:
                for number, (one, problem) in enumerate(zip(asked, problems, strict=True), start=first):
                    entries.append(self._one(one._replace(number=number), problem, past))
                    if entries[-1].mu_squared > 0:
                        charged.append(entries[-1])
                        past = past.after(entries[-1])
            finally:
                # charge even if a later query is refused, because the refusal depends on the cost of these queries, and so on noisy numbers
                self.ledger.append(charged)
                self._answered = first + len(entries)
        return _answers(entries, self.explained.features)

    def _asked(self, queries: Num[np.ndarray, "q ..."], values: Float[np.ndarray, "q C"] | None) -> list[AnsweredQuery]:
        """Return the fields of the answers that do not depend on their computation."""
        points = self.explained.points(queries)
        outputs = self._values(queries, values)
        return [
            AnsweredQuery(
                query=point,
                value=float(output[kind]),
                explained_class=int(kind),
                source=HISTORY,
                steps=0,
                mu_squared=0.0,
                explanation=point,
            )
            for point, output, kind in zip(points, outputs, largest(outputs), strict=True)
        ]

    def _values(self, queries: np.ndarray, values: np.ndarray | None) -> Float[np.ndarray, "q C"]:
        if values is None and self.black_box is not None:
            values = self.black_box(queries)
        kinds = self.explained.values.shape[1]
        if values is None:
            if self.terms.centred or kinds > 1:
                raise UserError(
                    "queries: the black box is a column of labels of the explanation set, which has no values for other records."
                    " Pass the values at the queries; nothing was spent"
                )
            values = np.zeros((len(queries), 1))
        checked = checked_values(values, len(queries), "the black box at the queries")
        if checked.shape[1] != kinds:
            raise UserError(
                f"queries: {checked.shape[1]} values each; expected {kinds}, as in the explanation set; nothing was spent"
            )
        return checked

    def _free(self, asked: AnsweredQuery, past: History) -> AnsweredQuery | None:
        """Answer from charged answers, or return None if the protocol would read the records.

        Free answers are functions of charged ones. Only charged answers are kept, so the budget bounds the size of
        memory and file.
        """
        least = self.terms.steps * self.terms.step_cost
        queries, explanations = past.computed(asked.explained_class)
        if self.protocol.interactive and self.protocol.reuse and len(queries):
            distances = np.linalg.norm(queries - asked.query, axis=1)
            if distances.min() <= self._near:
                return asked._replace(source=REUSED, explanation=explanations[int(np.argmin(distances))])
            least = self._selection_cost + self.terms.step_cost
        if self.protocol.interactive and allows(self.terms.mu_squared, past.mu_squared, least):
            return None
        if asked.explained_class not in past.classes:
            raise UserError(
                f"the budget (ε = {self.terms.budget:g} at δ = {self.terms.delta:g}) is too small to answer this query, and there"
                " is no earlier explanation of its class to reuse; nothing was spent on this query (earlier queries of the same"
                " call stay"
                " charged, and are in the ledger). Raise the budget"
            )
        return asked._replace(explanation=past.fit(asked.query, asked.explained_class, self.terms))

    def _one(self, asked: AnsweredQuery, problem: Problem | None, past: History) -> AnsweredQuery:
        """Answer one query, with a charge that the budget allows."""
        if (free := self._free(asked, past)) is not None:
            return free
        assert problem is not None
        random = self._random(asked.number)
        start, steps, choice, source = np.zeros_like(asked.query), self.terms.steps, 0.0, SCRATCH
        _, computed = past.computed(asked.explained_class)
        if self.protocol.reuse and len(computed):
            start, steps = self._start(problem, computed, random)
            choice, source = self._selection_cost, WARM
        cost = choice + steps * self.terms.step_cost
        if not allows(self.terms.mu_squared, past.mu_squared, cost):
            # the budget allows only the choice of a start, so the start is the answer
            return asked._replace(source=REUSED, mu_squared=choice, explanation=start)
        noise = random.standard_normal((1, steps, len(start))) * self.deviation
        explanation = _rounded(self._descend(problem, start, noise))
        return asked._replace(source=source, steps=steps, mu_squared=cost, explanation=explanation)

    def _descend(
        self, problem: Problem, start: Float[np.ndarray, " n"], noise: Float[np.ndarray, "1 T n"]
    ) -> Float[np.ndarray, " n"]:
        """Return the last iterate of one query's noisy steps."""
        (last,) = descend([problem], start[None], noise, self._rate)
        return np.asarray(last)

    def _refuse_fork(self) -> None:
        if os.getpid() != self._process:
            raise UserError(
                "private explanations: this process was forked from the one that created the explainer, and would spend the budget"
                " again; nothing was spent. Create the explainer after the fork, in one process"
            )

    def _random(self, number: int) -> np.random.Generator:
        """Return the generator of answer `number`: Philox with a 128-bit key, which is fresh for every answer without a seed."""
        key = secrets.token_bytes(16) if self._secret is None else hmac.digest(self._secret, b"%d" % number, "sha256")
        return np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16], "big")))

    @property
    def _selection_cost(self) -> float:
        """μ² of choosing a start and, unless β is as published, of measuring its gradient's norm; either costs as much as a step."""
        return self.terms.step_cost * (2 if self.terms.guaranteed else 1)

    def _start(
        self, problem: Problem, computed: Float[np.ndarray, "c n"], random: np.random.Generator
    ) -> tuple[Float[np.ndarray, " n"], int]:
        """Choose a start among past explanations by the exponential mechanism, and the number of steps from it (algorithm 2).

        The gradient's norm changes by no more than the gradient, so its sensitivity is that of a step. Norms are in
        units of c.
        """
        sensitivity = self.terms.sensitivity / problem.records
        norms = np.array([np.linalg.norm(problem.gradient(explanation)) for explanation in computed])
        scores = -norms * self.terms.selection_epsilon / (2 * sensitivity)
        best = int(np.argmax(scores + random.gumbel(size=len(scores))))
        beta = float(norms[best])
        if self.terms.guaranteed:
            beta += random.standard_normal() * self.deviation
        beta = max(beta, math.sqrt(len(computed[best])) * self.deviation if self.protocol.floor else 0.0) / self.terms.c
        growth = math.sqrt(math.log(self.terms.steps)) if self.terms.steps > 1 else 1.0
        steps = math.ceil(self.terms.steps * beta * growth) if beta < 1 / growth else self.terms.steps
        return computed[best], min(self.terms.steps, max(2, steps))


def _answers(entries: list[AnsweredQuery], features: int) -> Answers:
    return Answers(
        np.array([entry.explanation for entry in entries]).reshape(len(entries), features),
        [entry.mu_squared for entry in entries],
        [entry.source for entry in entries],
        [entry.steps for entry in entries],
        [entry.explained_class for entry in entries],
    )


def _rounded(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return values rounded towards 0 to single precision, which hides the gaps between float64 values (Mironov 2012).

    Rounding never lengthens an explanation beyond 1; from a longer start, the gradient could exceed what the noise
    covers.
    """
    single = values.astype(np.float32)
    return np.where(np.abs(single) > np.abs(values), np.nextafter(single, np.float32(0)), single).astype(np.float64)


def _plain(terms: ExplanationTerms) -> dict[str, object]:
    """Return the terms in the form that they have after a round trip through JSON."""
    return asdict(terms) | {"as_published": list(terms.as_published)}


def _secret(seed: int, protocol: str, metadata: dict[str, Any], explained: ExplanationSet) -> bytes:
    """Return the key of seeded noise: the seed, the protocol, the terms, and the records with their values."""
    terms = json.dumps([seed, protocol, metadata], sort_keys=True)
    return hmac.digest(terms.encode(), explained.digest, "sha256")


def _id_of(path: Path) -> str:
    """Return the id of the ledger of a data set."""
    return ledger.read_ledger(path)[0].id


def _pools_of(records: Num[np.ndarray, "m ..."]) -> list[Path]:
    """Return the folder of the pool's array that records are mapped from, as it was named and behind symbolic links.

    None for other arrays. Only NumPy maps and NumPy views of them are recognised.
    """
    mapped: Any = records
    while mapped is not None and not isinstance(mapped, np.memmap):
        mapped = getattr(mapped, "base", None)  # of views, and of what stands between strided ones and their array
    if mapped is None or mapped.filename is None:
        return []
    file = Path(mapped.filename)
    return sorted({path.parent for path in (file.absolute(), file.resolve()) if path.name == "records.npy"})


def _refuse_uncharged(pools: Iterable[Path], charged: str) -> None:
    """Raise UserError if releases from a pool are charged to another ledger than that with the id `charged`, or to none."""
    for pool in pools:
        if not pool.exists():
            raise UserError(
                f"{pool}: moved or removed since its records were mapped, so releases from them are not known: map them again"
            )
        if (pool.parent.parent / f"{ledger.UNCHARGED}{pool.name}").exists():
            raise UserError(
                f"{pool}: models were released from these records without a ledger: name one in the config (privacy.ledger), which the"
                " next release creates and charges for the earlier ones, and charge explanations there too (data_ledger)"
            )
        known = ledger.remembered(pool.parent.parent / f"{ledger.KEPT}{pool.name}")
        if known and charged != known["ledger"]:
            raise UserError(
                f"{pool}: models were released from these records and charged to the ledger {known['ledger']}: explanations of them must"
                " be charged there too (data_ledger)"
            )


def _refuse_older(pools: Iterable[Path], path: Path) -> None:
    """Raise UserError if a data set's ledger is older than the one to which releases from a pool were charged."""
    for pool in pools:
        known = ledger.remembered(pool.parent.parent / f"{ledger.KEPT}{pool.name}")
        if known and (missing := ledger.behind(path, known, str(path), f"a release from {pool} saw")):
            raise UserError(missing)


class TracedExplainer(PrivateExplainer):
    """Explains like `PrivateExplainer`; `paths` has one entry per query that took steps, in order: the losses at the start and after every step.

    An entry is None if the gradient at the start is longer than √n σ, the norm of a step's noise. The paper's Figure 4
    shows only the other queries. The losses are computed without noise.
    """

    def __init__(
        self, explained: ExplanationSet, terms: ExplanationTerms, protocol: str, seed: int | None = None
    ) -> None:
        super().__init__(explained, terms, protocol, seed=seed)
        self.paths: list[list[float] | None] = []

    def _descend(
        self, problem: Problem, start: Float[np.ndarray, " n"], noise: Float[np.ndarray, "1 T n"]
    ) -> Float[np.ndarray, " n"]:
        near = np.linalg.norm(problem.gradient(start)) < math.sqrt(len(start)) * self.deviation
        path, last = [problem.loss(start)], start
        for current in iterates([problem], start[None], noise, self._rate):
            last = current[0]
            if near:
                path.append(problem.loss(last))
        self.paths.append(path if near else None)
        return last
