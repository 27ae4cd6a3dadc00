"""Signals from explanations of one fixed black box, for attacks on membership in the explanation set.

A record's own explanation does not depend on whether the record is in the set, because its term vanishes at x = z. So
the attacker queries the explanation at the record's nearest neighbour, and measures how well this explanation fits the
record.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.explain.private_local.records import ExplanationSet
from mia_audit.explain.private_local.solver import descend, learning_rate, minimum
from mia_audit.seeds import generator
from mia_audit.signals.name import FIT_ERROR

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from mia_audit.explain.private_local.terms import Terms

ROWS = 1024
"""Number of records whose distances to all others are in memory at once."""
STEM = "local_linear"


def neighbours(points: Float[np.ndarray, "N n"]) -> Int[np.ndarray, " N"]:
    """Return every point's nearest other point."""
    squares = np.square(points).sum(axis=1)
    nearest = []
    for first in range(0, len(points), ROWS):
        distance = squares - 2 * points[first : first + ROWS] @ points.T
        np.fill_diagonal(distance[:, first:], np.inf)
        nearest.append(distance.argmin(axis=1))
    return np.concatenate(nearest)


def membership_signals(
    explained: ExplanationSet,
    member: Bool[np.ndarray, " N"],
    asked: Int[np.ndarray, " N"],
    terms: Terms,
    noisy: bool,
    key: tuple[int | str, ...],
) -> dict[str, Float[np.ndarray, " N"]]:
    """Explain record `asked[i]` only from the members, for every record i, and return the signals of each.

    `fit_error` is |φᵀ(x_i − z) − (f(x_i) − f(z))|, the error at record i of the explanation φ of record z = `asked[i]`.
    The summaries of φ are those of any attribution. Without `noisy` the exact minimum is computed; with `noisy`, each
    explanation has independent noise, keyed by `key` and its record.
    """
    inside = explained.among(member)
    queries, which = np.unique(asked, return_inverse=True)
    points = explained.points(np.asarray(explained.records))
    values = explained.values
    classes = values.argmax(axis=1) if values.shape[1] > 1 else np.zeros(len(values), dtype=np.int64)
    kinds = classes[queries]
    problems = list(inside.problems(points[queries], values[queries, kinds], kinds, terms))
    if noisy:
        deviation, features = terms.multiplier * terms.sensitivity / inside.units, inside.features
        # the noise differs between terms and between explanation sets, because equal noise could be subtracted
        own = (*key, repr(terms), hashlib.sha256(member.tobytes() + inside.whose).hexdigest())
        noise = [generator(*own, int(query)).standard_normal((terms.steps, features)) for query in queries]
        rate = learning_rate(terms.c, deviation, features)
        explanations = descend(problems, np.zeros((len(queries), features)), deviation * np.stack(noise), rate)
    else:
        explanations = np.stack([minimum(problem) for problem in problems])
    phi = explanations[which]
    predicted = np.einsum("in,in->i", phi, points - points[asked])
    true = values[np.arange(len(values)), classes[asked]] - values[asked, classes[asked]]
    return {
        FIT_ERROR: np.abs(predicted - true),
        f"{STEM}_variance": phi.var(axis=1),
        f"{STEM}_l1": np.abs(phi).sum(axis=1),
        f"{STEM}_l2": np.linalg.norm(phi, axis=1),
        f"{STEM}_linf": np.abs(phi).max(axis=1),
    }
