"""The terms of explanations: the cost of a query, its computation, and the required noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from mia_audit.errors import UserError, suggest
from mia_audit.explain.weights import kernels, published_excess
from mia_audit.privacy import gdp
from mia_audit.privacy.gaussian import check_privacy, multiplier_for

PUBLISHED = ("sigma", "weight", "uncentred", "beta")
"""Values of `as_published`, which restore the paper's σ, uncapped weight exp(−d²), fit without centring, and β without noise."""

ADJACENCIES = {"zero-out": 1.0, "replacement": 2.0}
"""The sensitivity of ∇L in units of c/m, by adjacency: one record's term is removed and m is public, or one record is replaced."""


@dataclass(frozen=True)
class Terms:
    """The terms of explanations: ε of a query computed from scratch, the `budget` (ε of all queries together), and δ of both.

    A query from scratch takes `steps` noisy steps, with weight constant `c`, `kernel` and `adjacency`. `as_published`
    restores choices of the paper, for comparison; with `beta` there is no guarantee.
    """

    epsilon: float
    delta: float
    budget: float
    steps: int = 100
    c: float = 1.0
    kernel: str = "stable"
    adjacency: str = "zero-out"
    as_published: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise UserError for invalid terms."""
        check_privacy(self.epsilon, self.delta)
        check_privacy(self.budget, self.delta, "budget: ")
        if self.steps < 1:
            raise UserError(f"steps {self.steps}: expected at least 1")
        if not 0 < self.c < math.inf:
            raise UserError(f"c {self.c:g}: the weight constant is a positive number")
        kernels.check(self.kernel)
        for names, known, what in (
            ((self.adjacency,), list(ADJACENCIES), "adjacency"),
            (self.as_published, list(PUBLISHED), "as_published"),
        ):
            for name in names:
                if name not in known:
                    raise UserError(f"unknown {what} '{name}': {suggest(name, known)}")

    @property
    def centred(self) -> bool:
        """Whether f(x) − f(z) is fitted at z instead of f(x), so that an explanation describes how f changes around z."""
        return "uncentred" not in self.as_published

    @property
    def span(self) -> float:
        """The largest absolute value that the fitted quantity can take: 2 for a difference of two values in [−1, 1], else 1."""
        return 2.0 if self.centred else 1.0

    @property
    def excess(self) -> float:
        """The true sensitivity of the gradient in units of c/m: 1 with capped weights."""
        return published_excess(self.c, self.span) if "weight" in self.as_published else 1.0

    @property
    def guaranteed(self) -> bool:
        """Whether the charge covers the true cost; it does not if β is used without noise."""
        return "beta" not in self.as_published

    @property
    def sensitivity(self) -> float:
        """The sensitivity of the gradient, times m, to which the noise is scaled."""
        return self.c * ADJACENCIES[self.adjacency]

    @cached_property
    def multiplier(self) -> float:
        """The standard deviation of one step's noise, in units of the sensitivity."""
        calibrate = gdp.published_multiplier if "sigma" in self.as_published else multiplier_for
        return calibrate(self.epsilon, self.steps, self.delta)

    @cached_property
    def step_cost(self) -> float:
        """μ² of one step. Its true sensitivity is `excess` times the sensitivity to which the noise is scaled."""
        return gdp.step_cost(self.multiplier / self.excess)

    @cached_property
    def selection_epsilon(self) -> float:
        """ε of the choice of a start, set so that the choice costs as much as one step."""
        return gdp.selection_epsilon(gdp.step_cost(self.multiplier))

    @cached_property
    def mu_squared(self) -> float:
        """The whole budget as μ² of Gaussian DP, the unit of the filter."""
        return gdp.limit_for(self.budget, self.delta)
