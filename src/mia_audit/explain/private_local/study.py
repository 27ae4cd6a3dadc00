"""A study of private explanations of one black box: its losses by ε, and the ε that protocols spend on different kinds of queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from mia_audit.errors import UserError
from mia_audit.explain.private_local.history import WARM
from mia_audit.explain.private_local.records import ExplanationSet, largest, nearest_records
from mia_audit.explain.private_local.service import ExplanationLedger, PrivateExplainer, TracedExplainer
from mia_audit.explain.private_local.solver import Problem, minimum
from mia_audit.explain.private_local.terms import ExplanationTerms
from mia_audit.seeds import generator, seed_for
from mia_audit.storage import read_table

if TYPE_CHECKING:
    from jaxtyping import Int

    from mia_audit.explain.private_local.terms import PrivateExplanations


UNLIMITED = 1e6
"""A budget that no study reaches, because protocols are compared by what they spend."""
ADAPTING = ("non-adaptive", "adaptive", "enhanced")
CANDIDATES = 4000
"""Number of records among which dense and sparse queries are chosen."""
CLUSTERS = 15
"""Number of clusters of these records; the paper found more than 15 in its census table (section 6.4)."""
KEPT = 1 << 30
"""Largest size in bytes of the cached problems; further problems are computed again when needed."""


@dataclass(frozen=True)
class Remembering(ExplanationSet):
    """An explanation set that caches its problems, which do not depend on ε and protocol."""

    kept: dict[bytes, Problem] = field(default_factory=dict)

    def problems(
        self,
        queries: Float[np.ndarray, "q n"],
        values: Float[np.ndarray, " q"],
        classes: Int[np.ndarray, " q"],
        terms: ExplanationTerms,
    ) -> Iterator[Problem]:
        keys = [query.tobytes() + bytes([kind % 256]) for query, kind in zip(queries, classes, strict=True)]
        fresh = list({key: row for row, key in enumerate(keys) if key not in self.kept}.values())
        made = dict(
            zip(
                (keys[row] for row in fresh),
                super().problems(queries[fresh], values[fresh], classes[fresh], terms),
                strict=True,
            )
        )
        if (len(self.kept) + len(made)) * 8 * self.features**2 <= KEPT:
            self.kept.update(made)
        return iter([made[key] if key in made else self.kept[key] for key in keys])


@dataclass(frozen=True)
class Study:
    """The subject of a study: a black box's values on the pool, the explained records, and a non-private black box for comparison.

    `labels` are the classes of the records, with which the black box's misclassification is measured. `other` has the values
    of a black box that is fitted more, or less, closely to the records.
    """

    explained: ExplanationSet
    section: PrivateExplanations
    key: tuple[int | str, ...]
    reference: Float[np.ndarray, "m C"] | None = None
    labels: Int[np.ndarray, " m"] | None = None
    other: Float[np.ndarray, "m C"] | None = None

    @property
    def terms(self) -> ExplanationTerms:
        """The terms for the comparison of protocols."""
        section = self.section
        return ExplanationTerms(
            epsilon=section.epsilon,
            delta=section.delta,
            budget=UNLIMITED,
            steps=section.steps,
            c=section.c,
            kernel=section.kernel,
            adjacency=section.adjacency,
        )

    def rows(self) -> list[dict[str, Any]]:
        """Run every experiment and return a row per answer, with the number of the repetition if there are several."""
        if self.section.repetitions == 1:
            return self._rows(traced=True)
        answers = []
        for number in range(self.section.repetitions):
            one = replace(self, key=(*self.key, "repetition", number)) if number else self
            answers += [{"repetition": number} | row for row in one._rows(traced=number == 0)]
        return answers

    def _rows(self, traced: bool) -> list[dict[str, Any]]:
        """Run every experiment once; with `traced`, record iterations."""
        remembering = Remembering(
            self.explained.records, self.explained.values, self.explained.scale, self.explained.persons
        )
        random = generator(*self.key, "queries")
        order = random.permutation(len(self.explained.records))
        asked, later = np.split(
            order[: self.section.queries * 3 // 2], [min(self.section.queries, len(order) * 2 // 3)]
        )
        answers: list[dict[str, Any]] = []
        for epsilon in self.section.epsilons:
            for published in ((), ("sigma",)):
                terms = replace(self.terms, epsilon=epsilon, as_published=published)
                answers += self._run(remembering, terms, "epsilon", "non-adaptive", asked)[0]
        for protocol in ADAPTING:
            trace = traced and protocol == "adaptive" and self.section.traced > 0
            rows, ledger = self._run(remembering, self.terms, "protocols", protocol, asked, trace=trace)
            if protocol == "non-adaptive":
                self._add_misclassified(rows, asked)
            answers += rows
            known = later[np.isin(self._classes(later), self._classes(asked))]
            if protocol == "adaptive" and len(known):  # the history has only these classes
                answers += self._run(
                    remembering, self.terms, "protocols", protocol="non-interactive", queries=known, history=ledger
                )[0]
        for name, queries in self._regions(asked, random).items():
            answers += self._run(remembering, self.terms, name, "adaptive", queries)[0]
        if self.section.parts > 1:
            answers += self._in_parts(remembering, asked)
        columns = dict.fromkeys(name for row in answers for name in row)
        return [{name: row.get(name) for name in columns} for row in answers]

    def _add_paths(self, rows: list[dict[str, Any]], paths: list[list[float] | None], least: list[float]) -> None:
        """Add the excess loss at every iteration to the rows of some queries that started near the minimum."""
        stepped = [number for number, row in enumerate(rows) if row["steps"]]
        near = [
            (number, path)
            for number, path in zip(stepped, paths, strict=True)
            if path is not None and rows[number]["source"] == WARM
        ]
        for row in rows:
            row["path"] = None
        for place in generator(*self.key, "traced").permutation(len(near))[: self.section.traced]:
            number, path = near[place]
            rows[number]["path"] = [loss - least[number] for loss in path]

    def _add_misclassified(self, rows: list[dict[str, Any]], asked: Int[np.ndarray, " q"]) -> None:
        """Add the share of the nearest records that the black box misclassifies."""
        if not self.section.nearest or self.labels is None:
            return
        wrong = self._wrong(self.explained.values, np.arange(len(self.labels)))
        for row, near in zip(rows, nearest_records(self.explained, asked, self.section.nearest), strict=True):
            row["misclassified"] = float(wrong[near].mean())

    def _in_parts(self, whole: ExplanationSet, asked: Int[np.ndarray, " q"]) -> list[dict[str, Any]]:
        """Answer each part of the queries from a disjoint part of the data set; losses are measured on the whole set."""
        count, answers = self.section.parts, list[dict[str, Any]]()
        part = np.arange(self.explained.units) % count
        generator(*self.key, "parts").shuffle(part)
        of_record = part if self.explained.persons is None else self.explained.persons.spread(part)
        for number, queries in enumerate(np.array_split(asked, min(count, len(asked)))):
            own = self.explained.among(of_record == number)
            for protocol in ADAPTING:
                answers += self._run(whole, self.terms, f"part {number + 1}", protocol, queries, answering=own)[0]
        return answers

    def _classes(self, records: Int[np.ndarray, " q"]) -> Int[np.ndarray, " q"]:
        return largest(self.explained.values[records])

    def _run(
        self,
        explained: ExplanationSet,
        terms: ExplanationTerms,
        experiment: str,
        protocol: str,
        queries: Int[np.ndarray, " q"],
        history: ExplanationLedger | None = None,
        answering: ExplanationSet | None = None,
        trace: bool = False,
    ) -> tuple[list[dict[str, Any]], ExplanationLedger]:
        """Answer queries in their order, and compare each answer with the exact minimum over the explanation set.

        `answering`, if given, is the explanation set from which queries are answered.
        """
        name = (experiment, protocol, f"{terms.epsilon:g}", *terms.as_published)
        kind = TracedExplainer if trace else PrivateExplainer
        service = kind(answering or explained, terms, protocol, seed=seed_for(*self.key, *name))
        before = history.entries if history is not None else []
        service.ledger.append(before)
        answers = service.answer(explained.records[queries], explained.values[queries])
        points, classes = explained.points(explained.records[queries]), self._classes(queries)
        values = np.clip(explained.values[queries, classes], -1, 1)
        problems = explained.problems(points, values, classes, terms)
        exact = self._exact(points, classes, queries, terms)
        spent = np.cumsum([sum(entry.mu_squared for entry in before), *answers.spent])[1:]
        rows, losses = list[dict[str, Any]](), list[float]()
        for number, (problem, phi) in enumerate(zip(problems, answers.explanations, strict=True)):
            best = minimum(problem)
            least = problem.loss(best)
            losses.append(least)
            rows.append(
                {
                    "experiment": experiment,
                    "protocol": protocol,
                    "as_published": "+".join(terms.as_published),
                    "epsilon": terms.epsilon,
                    "number": number,
                    "record": int(queries[number]),
                    "class": int(classes[number]),
                    "source": answers.source[number],
                    "steps": answers.steps[number],
                    "mu_squared": answers.spent[number],
                    "mu_squared_spent": float(spent[number]),
                    "excess_loss": problem.loss(phi) - least,
                    "excess_loss_of_zero": problem.loss(np.zeros_like(phi)) - least,
                    "distance": float(np.linalg.norm(phi - exact[number])) if exact is not None else None,
                    "explanation": phi,
                }
            )
        if isinstance(service, TracedExplainer):
            self._add_paths(rows, service.paths, losses)
        return rows, service.ledger

    def _exact(
        self, points: np.ndarray, classes: np.ndarray, queries: np.ndarray, terms: ExplanationTerms
    ) -> list[np.ndarray] | None:
        """Return the reference black box's non-private explanations of the same classes (for Dist in section 6.3)."""
        if self.reference is None or terms.as_published:
            return None
        other = replace(self.explained, values=self.reference)
        at_queries = self.reference[queries, classes]
        return [minimum(problem) for problem in other.problems(points, at_queries, classes, terms)]

    def _wrong(self, values: Float[np.ndarray, "m C"], records: Int[np.ndarray, " q"]) -> Bool[np.ndarray, " q"]:
        """Return whether these values of a black box misclassify each of some records."""
        assert self.labels is not None
        own = values[records]
        predicted = own.argmax(axis=1) if own.shape[1] > 1 else (own[:, 0] > 0).astype(np.int64)
        return np.asarray(predicted != self.labels[records])

    def _regions(self, asked: np.ndarray, random: np.random.Generator) -> dict[str, np.ndarray]:
        """Return sets of queries: random ones, some of the densest cluster, some of every cluster in turn (section 6.4).

        With the values of another black box there are also some of the cluster where the training accuracies of the two
        differ most (section 6.5).
        """
        from sklearn.cluster import AgglomerativeClustering

        count = max(2, len(asked) // 3)
        candidates = random.permutation(len(self.explained.records))[:CANDIDATES]
        order = np.argsort(candidates)
        points = np.empty((len(order), self.explained.features))
        points[order] = self.explained.points(self.explained.records[candidates[order]])
        cluster = AgglomerativeClustering(min(CLUSTERS, len(candidates))).fit_predict(points)
        members = [np.flatnonzero(cluster == label) for label in range(cluster.max() + 1)]
        spread = [
            np.median(np.linalg.norm(points[own] - points[own].mean(axis=0), axis=1))
            if len(own) >= min(count, len(candidates) // CLUSTERS)
            else np.inf
            for own in members
        ]
        turn = np.empty(len(candidates), dtype=np.int64)
        for own in members:
            turn[own] = np.arange(len(own))
        sparse = np.argsort(turn, kind="stable")[:count]
        dense = members[int(np.argmin(spread))][:count]
        regions = {
            "random": asked[:count],
            "dense": candidates[dense],
            "sparse": random.permutation(candidates[sparse]),
        }
        if self.other is not None and self.labels is not None:
            wrong, otherwise = (
                self._wrong(values, candidates).astype(float) for values in (self.explained.values, self.other)
            )
            large = [own for own, far in zip(members, spread, strict=True) if far < np.inf]
            apart = [abs(float((wrong - otherwise)[own].mean())) for own in large]
            regions["overfitted"] = candidates[large[int(np.argmax(apart))][:count]]
        return regions


def read_values(path: Path, records: int) -> Float[np.ndarray, "m C"]:
    """Read values.parquet. Raises UserError for a wrong number of records."""
    table = read_table(path, "values")
    if len(table) != records:
        raise UserError(f"{path}: values of {len(table)} records, but the pool has {records}. Delete it and run again")
    return np.stack([table[name].to_numpy() for name in table.column_names if name.startswith("value_")], axis=1)
