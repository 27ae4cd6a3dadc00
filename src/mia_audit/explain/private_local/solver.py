"""The minimum of a quadratic loss over the unit ball, exactly and by noisy steps.

The loss is L(φ) = (1/m)(φᵀGφ − 2bᵀφ + s). So ∇L = (2/m)(Gφ − b), and a step costs O(n²) for any m.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.seeds import generator

if TYPE_CHECKING:
    from jaxtyping import Float

    from mia_audit.explain.private_local.terms import ExplanationTerms


@dataclass(frozen=True)
class Problem:
    """One query's loss: G [n, n] = Σ α(x−z)(x−z)ᵀ, b [n] = Σ α(x−z)y and s = Σ αy² over m records."""

    gram: Float[np.ndarray, "n n"]
    moment: Float[np.ndarray, " n"]
    square: float
    records: int

    def loss(self, explanation: Float[np.ndarray, " n"]) -> float:
        """Return L(φ)."""
        return float(explanation @ (self.gram @ explanation - 2 * self.moment) + self.square) / self.records

    def gradient(self, explanation: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return ∇L(φ)."""
        return np.asarray((2 / self.records) * (self.gram @ explanation - self.moment))


def minimum(
    problem: Problem, near: Float[np.ndarray, " n"] | None = None, tolerance: float = 1e-12
) -> Float[np.ndarray, " n"]:
    """Return the minimiser of L over the unit ball; if there are several, the one closest to `near` (0 when left out).

    The eigenvectors of G reduce this to a problem in one unknown, the multiplier of the constraint (the secular
    equation of trust-region methods; Moré and Sorensen 1983).
    """
    values, vectors = np.linalg.eigh(problem.gram)
    scale = max(float(values[-1]), 0.0)
    known = values > tolerance * scale
    slopes = vectors.T @ problem.moment
    start = np.zeros_like(slopes) if near is None else vectors.T @ near
    free = np.where(known, np.divide(slopes, values, out=np.zeros_like(slopes), where=known), start)
    if np.linalg.norm(free) <= 1:
        return np.asarray(vectors @ free)
    inside = np.where(known, free, 0.0)
    if (
        rest := 1 - float(inside @ inside)
    ) >= 0:  # components that L determines lie in the ball; the others move towards `near`, up to the boundary
        outside = free - inside
        return np.asarray(vectors @ (inside + outside * (math.sqrt(rest) / np.linalg.norm(outside))))
    slopes, values = np.where(known, slopes, 0.0), np.where(known, values, 0.0)

    def excess(multiplier: float) -> float:
        return float(np.linalg.norm(slopes / (values + multiplier))) - 1

    from scipy.optimize import brentq

    high = float(np.linalg.norm(slopes))
    multiplier = brentq(excess, high * 1e-300, high, xtol=1e-300, rtol=1e-15) if excess(high) < 0 else high
    solution = vectors @ (slopes / (values + multiplier))
    return np.asarray(solution / max(1.0, float(np.linalg.norm(solution))))


def learning_rate(c: float, deviation: float, features: int) -> float:
    """Return the first step's length 2/√(c² + nσ²): the ball's diameter divided by the norm of a noisy gradient (theorem 3.2)."""
    return 2 / math.sqrt(c**2 + features * deviation**2)


def iterates(
    problems: Sequence[Problem],
    starts: Float[np.ndarray, "q n"],
    noise: Float[np.ndarray, "q T n"],
    rate: float,
) -> Iterator[Float[np.ndarray, "q n"]]:
    """Yield the iterates of T noisy projected gradient steps of length rate/√t for every problem (algorithm 1).

    All steps share one array, which the next step overwrites.
    """
    matrices = np.stack([problem.gram * (2 / problem.records) for problem in problems])
    moments = np.stack([problem.moment * (2 / problem.records) for problem in problems])
    current = starts.copy()
    for step in range(noise.shape[1]):
        slopes = np.matmul(matrices, current[:, :, None])[:, :, 0] - moments + noise[:, step]
        current -= (rate / math.sqrt(step + 1)) * slopes
        current /= np.maximum(1.0, np.sqrt(np.einsum("qn,qn->q", current, current)))[:, None]
        yield current


def descend(
    problems: Sequence[Problem],
    starts: Float[np.ndarray, "q n"],
    noise: Float[np.ndarray, "q T n"],
    rate: float,
) -> Float[np.ndarray, "q n"]:
    """Return the last iterates of noisy projected gradient steps, or the starts if there are no steps."""
    (last,) = deque(iterates(problems, starts, noise, rate), maxlen=1) or (starts,)
    return last


def private_minima(
    problems: Sequence[Problem], terms: ExplanationTerms, keys: Sequence[tuple[int | str, ...]]
) -> Float[np.ndarray, "q n"]:
    """Return explanations from scratch, with noise that each query's key determines (algorithm 1).

    Equal keys have equal noise, which could be subtracted: only the audit has both.
    """
    features = len(problems[0].moment)
    deviation = terms.multiplier * terms.sensitivity / problems[0].records
    noise = np.stack([generator(*key).standard_normal((terms.steps, features)) for key in keys])
    starts, rate = np.zeros((len(problems), features)), learning_rate(terms.c, deviation, features)
    return descend(problems, starts, deviation * noise, rate)
