"""The terms of explanations: the cost of a query, its computation, the required noise, and the section of a config for a study.

The weight of a record for a query is a kernel of their distance, capped so that no record changes the gradient by more
than c/m. A record's share of ∇L is (2/m) α(d) (φᵀ(x−z) − y)(x−z), whose norm is at most (2/m) α d (d + Y) for ‖φ‖ ≤ 1
and |y| ≤ Y. This is at most c/m if α ≤ c/(2d(d+Y)) (Patel et al. 2020, lemma 3.1, there for Y = 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field, PositiveInt, field_validator

from mia_audit.errors import UserError, suggest
from mia_audit.explain.black_boxes import black_boxes
from mia_audit.privacy import gaussian as gdp
from mia_audit.privacy.gaussian import check_privacy, multiplier_for
from mia_audit.registry import Registry
from mia_audit.sections import Epsilon, Probability, Section, known, known_all

if TYPE_CHECKING:
    from jaxtyping import Float

    Distance = Float[np.ndarray, "*any"]
    Kernel = Callable[[Distance], Distance]


kernels: Registry[Kernel] = Registry("kernel")
"""Kernels by name: elementwise functions from distances to weights between 0 and 1, before the cap."""

KernelName = Annotated[str, AfterValidator(lambda name: known(kernels, name))]
"""The name of a registered kernel, in a section of a config."""


def capped(kernel: Kernel, distance: Distance, c: float, span: float) -> Distance:
    """Return min(kernel(d), 1, c/(2d(d+Y))) for labels of absolute value at most Y = `span`; a negative weight is 0, and NaN 1."""
    bound = distance * (distance + span)
    bound *= 2 / c
    with np.errstate(divide="ignore"):
        np.divide(1.0, bound, out=bound)
    return np.maximum(np.fmin(kernel(distance), np.minimum(bound, 1.0, out=bound)), 0.0)


def radius(c: float, span: float) -> float:
    """Return the distance at which the cap falls below 1: (√(1 + 2c) − 1)/2 for Y = 1."""
    return (float(np.sqrt(span**2 + 2 * c)) - span) / 2


def published_excess(c: float, span: float) -> float:
    """Return the largest effect of a record on the gradient, in units of c/m, if exp(−d²) is not capped: 1.53 for c = Y = 1.

    This is the largest value of 2 exp(−d²) d (d + Y)/c, reached at 2d³ + 2Yd² − 2d − Y = 0.
    """
    distance = float(np.roots([2.0, 2 * span, -2.0, -span]).real.max())
    return max(1.0, 2 * float(np.exp(-(distance**2))) * distance * (distance + span) / c)


PUBLISHED = ("sigma", "weight", "uncentred", "beta")
"""Values of `as_published`, which restore the paper's σ, uncapped weight exp(−d²), fit without centring, and β without noise."""

ADJACENCIES = {"zero-out": 1.0, "replacement": 2.0}
"""The sensitivity of ∇L in units of c/m, by adjacency: one record's term is removed and m is public, or one record is replaced."""


@dataclass(frozen=True)
class ExplanationTerms:
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
        for names, allowed, what in (
            ((self.adjacency,), list(ADJACENCIES), "adjacency"),
            (self.as_published, list(PUBLISHED), "as_published"),
        ):
            for name in names:
                if name not in allowed:
                    raise UserError(f"unknown {what} '{name}': {suggest(name, allowed)}")

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


WIDTH = 0.75
"""LIME's default kernel width, ¾√n, in our unit of distance √n."""


@kernels.register("gaussian")
def gaussian(distance: Distance) -> Distance:
    """Return exp(−d²), the very local weight of Patel et al. 2020, section 3.1."""
    return np.asarray(np.exp(-np.square(distance)))


@kernels.register("lime")
def lime(distance: Distance) -> Distance:
    """Return √exp(−d²/w²), LIME's kernel for tables (Ribeiro et al. 2016)."""
    return np.asarray(np.exp(-np.square(distance / WIDTH) / 2))


@kernels.register("stable")
def stable(distance: Distance) -> Distance:
    """Return 1 everywhere, so that neighbouring queries get similar explanations (Patel et al. 2020, equation 5).

    Beyond the radius (`weights.radius`) only the cap determines the weight.
    """
    return np.ones_like(distance)


BlackBoxes = Annotated[tuple[str, ...], known_all(black_boxes)]


class PrivateExplanations(Section):
    """A study of private explanations of black boxes on one data set, and of their quality (Patel et al. 2020)."""

    black_boxes: BlackBoxes = ("forest-labels",)
    """Registered black boxes, or `file.py:function`, built from the pool's records and labels."""
    architectures: tuple[str, ...] = ()
    """Architectures of this audit; the first shadow model of each of their settings is also explained."""
    queries: PositiveInt = 300
    """Number of explained records, drawn by the seed.

    Half as many additional queries, of classes explained before, are answered only from the history.
    """
    repetitions: PositiveInt = 1
    """Number of repetitions of every experiment with other queries and noise, on the same black box.

    From two on, results are means with Student's t intervals over repetitions.

    The paper has 10.
    """
    parts: PositiveInt = 1
    """Number of disjoint parts of the data set, each of which answers some of the queries with the full ε (section 6.2 has 3); 1: no division."""
    traced: int = Field(0, ge=0)
    """Number of queries whose loss is recorded at every iteration: queries of the adaptive protocol that start closer
    to the minimum than the norm of a step's noise (Figure 4 has 15).
    """
    nearest: int = Field(0, ge=0)
    """Number of records nearest to a query on which the black box's misclassifications are measured (Figure 8 has 50); 0: not measured."""
    epsilons: tuple[float, ...] = (0.1, 1.0, 10.0)
    """Values of ε of one explanation, for the comparison of losses over ε."""
    epsilon: float = Field(1.0, gt=0)
    """ε of an explanation computed from scratch, for the comparison of protocols."""
    delta: Probability = 1e-6
    """δ of every ε."""
    steps: PositiveInt = 100
    """Noisy steps T of an explanation computed from scratch."""
    c: float = Field(1.0, gt=0)
    """Weight constant: no record moves the gradient by more than c/m."""
    kernel: KernelName = "stable"
    """Registered kernel of the weights."""
    adjacency: Literal["zero-out", "replacement"] = "zero-out"
    """What is protected: whether a record's term is in the loss (the number of records is public), or a record's content."""
    attacked: tuple[Epsilon, ...] = ()
    """ε of one explanation (inf: no noise) for attacks on membership in the explanation set.

    Sets follow the audit's membership design; all have the same black box.
    """
    scale: float | None = Field(None, gt=0)
    """Unit of distance, set without looking at the records; √n for n features (255√n for pixels) when left out."""
    pictures: int = Field(0, ge=0)
    """Number of images shown with their explanations at every ε."""

    @field_validator("epsilons")
    @classmethod
    def _positive(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        for epsilon in value:
            if not 0 < epsilon < math.inf:
                raise ValueError(f"an ε is a positive number, got {epsilon:g}")
        return value
