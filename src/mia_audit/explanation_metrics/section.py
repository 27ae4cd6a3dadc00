"""The section of a config for measures of explanations."""

from typing import Annotated

from pydantic import Field, PositiveInt

from mia_audit.explain.catalogue import explainers
from mia_audit.explanation_metrics.catalogue import measures
from mia_audit.sections import Probability, Section, known_all

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
