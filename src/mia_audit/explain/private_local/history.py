"""The charged answers so far, from which all free answers are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mia_audit.explain.private_local.solver import Problem, minimum
from mia_audit.explain.private_local.terms import capped, kernels

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from mia_audit.explain.private_local.terms import ExplanationTerms

SCRATCH, WARM, REUSED, HISTORY = "scratch", "warm-start", "reused", "history"
"""Sources of an answer: T steps from 0, fewer steps from a past explanation, an unchanged past explanation, or only the history."""


class AnsweredQuery(NamedTuple):
    """One answer: the query and its explanation [n], the explained value of f and its class, the source, cost and number."""

    query: Float[np.ndarray, " n"]
    value: float
    explained_class: int
    source: str
    steps: int
    mu_squared: float
    explanation: Float[np.ndarray, " n"]
    number: int = 0


class Past(NamedTuple):
    """Past answers for one class: k queries and explanations, and a mask of those computed from the records."""

    queries: Float[np.ndarray, "k n"]
    explanations: Float[np.ndarray, "k n"]
    computed: Bool[np.ndarray, " k"]


@dataclass(frozen=True)
class History:
    """The charged answers by class, and their cost in total.

    A history is immutable: adding an answer returns a new history, so other threads may still read the old one.
    """

    classes: Mapping[int, Past] = field(default_factory=dict)
    mu_squared: float = 0.0

    def after(self, entry: AnsweredQuery) -> History:
        """Return the history with one more answer."""
        computed = np.array([entry.source in (SCRATCH, WARM)])
        past = Past(entry.query[None], entry.explanation[None], computed)
        if entry.explained_class in self.classes:
            before = self.classes[entry.explained_class]
            past = Past(*(np.concatenate(parts) for parts in zip(before, past, strict=True)))
        return History({**self.classes, entry.explained_class: past}, self.mu_squared + entry.mu_squared)

    def computed(self, kind: int) -> tuple[Float[np.ndarray, "c n"], Float[np.ndarray, "c n"]]:
        """Return queries and explanations of a class that were computed from the records, in order."""
        if kind not in self.classes:
            return np.zeros((0, 0)), np.zeros((0, 0))
        queries, explanations, computed = self.classes[kind]
        return queries[computed], explanations[computed]

    def fit(self, point: Float[np.ndarray, " n"], kind: int, terms: ExplanationTerms) -> Float[np.ndarray, " n"]:
        """Return the explanation fitted to past queries of a class, with values predicted by their explanations (algorithm 4).

        No records are read. According to the explanation of z_j, f changes by φ_jᵀ(z_j − z) from z to z_j (as
        published: f(z_j) is φ_jᵀz_j). Of equally good fits, the one nearest to the weighted mean of past explanations
        is returned. Raises KeyError for a class without past queries.
        """
        queries, explanations, _ = self.classes[kind]
        away = queries - point
        distance = np.linalg.norm(away, axis=1)
        weights = capped(kernels[terms.kernel], distance, terms.c, terms.span)
        said = np.einsum("jn,jn->j", explanations, away if terms.centred else queries)
        weighted = away * weights[:, None]
        proxy = Problem(weighted.T @ away, weighted.T @ said, float(weights @ said**2), len(queries))
        return minimum(proxy, near=weights @ explanations / weights.sum(), tolerance=1e-9)
