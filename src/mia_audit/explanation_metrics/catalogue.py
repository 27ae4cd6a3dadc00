"""The registry of measures of explanations, and the section of a config for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PositiveInt

from mia_audit.explain.catalogue import explainers
from mia_audit.registry import Registry
from mia_audit.sections import Probability, Section, known_all

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from jaxtyping import Float

    Values = Callable[..., Float[np.ndarray, "n ..."]]


REFERENCE, OTHER, FULL_MAP = "reference", "other model", "full map"
"""The explanations with which a model's explanations are compared: `REFERENCE` is the reference setting's model with the same training set.

`OTHER`, a baseline, is another model of the same setting, which was trained on other records. `FULL_MAP` is the same
explanation of the same model before it is released in another form.
"""


@dataclass(frozen=True)
class Measure:
    """A measure of the explanations of n records by one model, or by two: `function` returns [n] numbers, NaN where undefined.

    If the measure is a `curve`, the function returns heights at equal steps, [n, steps + 1], and the measure is the
    area below the curve (`below`). `reads` has the names of the function's parameters, which determine its arguments:
    `maps` and `other`, the maps of the model and of the one with which it is compared ([n, H, W] for images, [n, d] for
    tables, float64); `labels` [n]; `probe`, the model itself; and the keys of the config's `explanation_metrics`
    section on which the measure depends. `images` marks measures that are not defined for tables.
    """

    function: Values
    label: str
    reads: tuple[str, ...]
    images: bool
    curve: bool = False

    @property
    def compares(self) -> bool:
        """Whether the measure compares the explanations of two models."""
        return "other" in self.reads

    @property
    def probes(self) -> bool:
        """Whether the measure evaluates the model at other points."""
        return "probe" in self.reads

    def options(self) -> tuple[str, ...]:
        """List the keys of the config that the measure depends on."""
        return tuple(name for name in self.reads if name not in GIVEN)

    def of(self, given: dict[str, Any]) -> Float[np.ndarray, "n ..."]:
        """Return the measure's values, or the heights of its curve. The given arguments must include those that the measure reads."""
        return self.function(**{name: given[name] for name in self.reads})


DRAWS = "interpretability"
"""Prefix of the keys of random draws in this package; another prefix would draw other records, and change all numbers."""

GIVEN = ("maps", "other", "labels", "probe")

measures: Registry[Measure] = Registry("measure", "mia_audit.explanation_metrics.methods")
"""Measures by name. All files are imported, because that is cheap and one file may register several measures."""


def measure(name: str, label: str, images: bool = False, curve: bool = False) -> Callable[[Values], Values]:
    """Register the decorated function as a measure, with its label in figures and tables."""

    def decorate(function: Values) -> Values:
        reads = tuple(inspect.signature(function).parameters)
        measures.register(name, function)(Measure(function, label, reads, images, curve))
        return function

    return decorate


KEY = ("mechanism", "epsilon", "explainer", "quantity", "measure", "against", "shadow")


def per_model(measured: pl.DataFrame) -> pl.DataFrame:
    """Average explanation_metrics.parquet over the records of every model, with keys in the order of their first appearance.

    `value` is null if no record has a value, `records` is the number of records that have one, and `same_class` the
    share of records for which both models explain the same class.
    """
    import polars as pl

    return measured.group_by(*KEY, maintain_order=True).agg(
        pl.col("value").mean(), pl.col("value").count().cast(pl.Int32).alias("records"), pl.col("same_class").mean()
    )


Explainers = Annotated[tuple[str, ...], known_all(explainers)]
Measures = Annotated[tuple[str, ...], known_all(measures)]


class ExplanationMetrics(Section):
    """Measures of explanations: the similarity of private and other models' explanations, and the quality of each model's."""

    records: int = Field(32, ge=0)
    """Number of records whose explanations are measured, drawn by the seed; 0 measures nothing."""
    models: PositiveInt | None = None
    """Number of first shadow models of every setting whose explanations are measured; all when left out."""
    explainers: Explainers = ()
    """Explainers to measure; those of `explainers.methods` when left out."""
    measures: Measures = (
        "ssim", "rank-correlation", "cosine", "top-overlap", "gini", "class-variability",
    )  # fmt: skip
    """Names of measures; `infidelity`, `sensitivity`, `deletion` and `insertion` query the model again and take longer."""
    shown: int = Field(4, ge=0)
    """Number of these records whose explanations figures show, in every setting."""
    top_share: Probability = 0.1
    """Share of a map's pixels or columns that form its top."""
    perturbations: PositiveInt = 10
    """Number of random changes of a record for infidelity and sensitivity."""
    removed_share: Probability = 0.1
    """Infidelity: the probability that a change removes a pixel or column."""
    radius: float = Field(0.02, gt=0)
    """Sensitivity: the largest change of a coordinate of the model's input."""
    curve_steps: PositiveInt = 10
    """Deletion and insertion: number of steps from the full to the empty record."""
