"""The terms on which explanations are given: what a query may cost, how it is computed, and what noise that takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from mia_audit.errors import UserError, suggest
from mia_audit.explain.weights import kernels, published_excess
from mia_audit.privacy import gdp
from mia_audit.privacy.gaussian import check_privacy, multiplier_for

PUBLISHED = ("sigma", "weight", "uncentred", "beta")
"""What `as_published` may bring back: the paper's σ, its uncapped exp(−d²), its fit without centring, its β without noise."""

ADJACENCIES = {"zero-out": 1.0, "replacement": 2.0}
"""How far ∇L moves, in units of c/m: one record's term taken out, m being public, or one record replaced."""


@dataclass(frozen=True)
class Terms:
    """ε of a query computed from scratch, ε of all queries together, both at δ, and how explanations are computed.

    A query from scratch takes `steps` noisy steps, each of the weight constant `c`, `kernel` and `adjacency` given.
    `as_published` brings back choices of the paper, for comparison; with `beta` no guarantee is left.
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
        """Raise UserError for terms that make no sense."""
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
        """Whether f(x) − f(z) is fitted, so that the explanation of z says something at z."""
        return "uncentred" not in self.as_published

    @property
    def span(self) -> float:
        """The largest absolute value that the fitted quantity can take: 2 for a difference of two values in [−1, 1], else 1."""
        return 2.0 if self.centred else 1.0

    @property
    def excess(self) -> float:
        """How many times c/m a record may really move the gradient: 1 with capped weights."""
        return published_excess(self.c, self.span) if "weight" in self.as_published else 1.0

    @property
    def guaranteed(self) -> bool:
        """Whether what is charged is what is spent: not where β is used without noise."""
        return "beta" not in self.as_published

    @property
    def sensitivity(self) -> float:
        """How far one record may move the gradient, times m, as the noise is scaled to it."""
        return self.c * ADJACENCIES[self.adjacency]

    @cached_property
    def multiplier(self) -> float:
        """The noise of one step in units of the sensitivity."""
        calibrate = gdp.published_multiplier if "sigma" in self.as_published else multiplier_for
        return calibrate(self.epsilon, self.steps, self.delta)

    @cached_property
    def step_cost(self) -> float:
        """μ² of one step, what one record really moves being `excess` times what the noise is scaled to."""
        return gdp.step_cost(self.multiplier / self.excess)

    @cached_property
    def selection_epsilon(self) -> float:
        """ε of the choice of a start, such that it costs what one step costs."""
        return gdp.selection_epsilon(gdp.step_cost(self.multiplier))

    @cached_property
    def mu_squared(self) -> float:
        """The whole budget as μ² of Gaussian DP, the unit of the filter."""
        return gdp.limit_for(self.budget, self.delta)
