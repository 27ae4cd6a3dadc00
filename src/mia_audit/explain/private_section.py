"""The section of a config for a study of private explanations."""

import math
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, field_validator

from mia_audit.explain.black_boxes.catalogue import black_boxes
from mia_audit.explain.weights import KernelName
from mia_audit.sections import Epsilon, Probability, Section, known_all

BlackBoxes = Annotated[tuple[str, ...], known_all(black_boxes)]


class PrivateExplanations(Section):
    """A study of private explanations of black boxes on one data set, and of their quality (Patel et al. 2020)."""

    black_boxes: BlackBoxes = ("forest",)
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
