"""An explainer that records the exact loss at every iteration of queries that start near the minimum, which only the auditor may see."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.explain.private_local.records import ExplanationSet
from mia_audit.explain.private_local.service import PrivateExplainer
from mia_audit.explain.private_local.solver import Problem, iterates
from mia_audit.explain.private_local.terms import Terms

if TYPE_CHECKING:
    from jaxtyping import Float


class TracedExplainer(PrivateExplainer):
    """Explains like `PrivateExplainer`; `paths` has one entry per query that took steps, in order: the losses at the start and after every step.

    An entry is None if the gradient at the start is longer than √n σ, the norm of a step's noise. The paper's Figure 4
    shows only the other queries. The losses are computed without noise.
    """

    def __init__(self, explained: ExplanationSet, terms: Terms, protocol: str, seed: int | None = None) -> None:
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
