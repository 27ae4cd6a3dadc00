"""The section of a config for measures of explanations."""

from typing import Annotated

from pydantic import Field, PositiveInt

from mia_audit.explain.catalogue import explainers
from mia_audit.explanation_metrics.catalogue import measures
from mia_audit.sections import Probability, Section, known_all

Explainers = Annotated[tuple[str, ...], known_all(explainers)]
Measures = Annotated[tuple[str, ...], known_all(measures)]


class ExplanationMetrics(Section):
    """What is measured on explanations: how alike those of private and other models are, and how good they are."""

    records: int = Field(32, ge=0)
    """Records whose explanations are measured, drawn by the seed; 0 measures nothing."""
    models: PositiveInt | None = None
    """Shadow models of every setting that explain them, the first ones; all when left out."""
    explainers: Explainers = ()
    """Explainers that are measured; those of `explainers.methods` when left out."""
    measures: Measures = (
        "ssim", "rank-correlation", "cosine", "top-overlap", "gini", "class-variability",
    )  # fmt: skip
    """Registered measures; `infidelity`, `sensitivity`, `deletion` and `insertion` ask the model again and take longer."""
    shown: int = Field(4, ge=0)
    """How many of the records are drawn with their explanations in every setting."""
    top_share: Probability = 0.1
    """Share of a map's pixels or columns that are its top."""
    perturbations: PositiveInt = 10
    """Random changes of a record by which infidelity and sensitivity are judged."""
    removed_share: Probability = 0.1
    """Infidelity: the chance of a pixel or column to be removed by a change."""
    radius: float = Field(0.02, gt=0)
    """Sensitivity: the largest change of a number of the model's input."""
    curve_steps: PositiveInt = 10
    """Deletion and insertion: steps from the whole record to nothing."""
