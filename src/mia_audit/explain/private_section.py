"""The section of a config for a study of private explanations."""

import math
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, field_validator

from mia_audit.explain.black_boxes.catalogue import black_boxes
from mia_audit.explain.weights import KernelName
from mia_audit.sections import Epsilon, Probability, Section, known_all

BlackBoxes = Annotated[tuple[str, ...], known_all(black_boxes)]


class PrivateExplanations(Section):
    """How records are explained privately, and how well: a study of black boxes on one data set (Patel et al. 2020)."""

    black_boxes: BlackBoxes = ("forest",)
    """Registered black boxes, or `file.py:function`, built from the pool's records and labels."""
    architectures: tuple[str, ...] = ()
    """Architectures of this audit whose first shadow model is explained too, in every setting."""
    queries: PositiveInt = 300
    """Records that are explained, drawn by the seed; half as many more, of classes explained before, are answered from the history alone."""
    repetitions: PositiveInt = 1
    """How often every experiment is repeated with other queries and other noise, on the same black box; from two, numbers are means
    with Student's t intervals over repetitions. The paper has 10."""
    parts: PositiveInt = 1
    """Disjoint parts of the data set that answer the same queries side by side, each a part of them at the whole ε (section 6.2
    has 3); 1: none."""
    traced: int = Field(0, ge=0)
    """Queries whose loss is recorded at every iteration: of the adaptive protocol, started closer to the minimum than the norm of
    a step's noise (Figure 4 has 15)."""
    nearest: int = Field(0, ge=0)
    """Records nearest to a query over which the black box's misclassification is measured (Figure 8 has 50); 0: not measured."""
    epsilons: tuple[float, ...] = (0.1, 1.0, 10.0)
    """ε of one explanation, where losses are compared over ε."""
    epsilon: float = Field(1.0, gt=0)
    """ε of an explanation computed from scratch, where protocols are compared."""
    delta: Probability = 1e-6
    """δ of every ε."""
    steps: PositiveInt = 100
    """Noisy steps T of an explanation computed from scratch."""
    c: float = Field(1.0, gt=0)
    """Weight constant: no record moves the gradient by more than c/m."""
    kernel: KernelName = "stable"
    """Registered kernel of the weights."""
    adjacency: Literal["zero-out", "replacement"] = "zero-out"
    """What is kept private: that a record is there, the number of records being public, or which one it is."""
    attacked: tuple[Epsilon, ...] = ()
    """ε of one explanation (inf: no noise) at which membership of the explanation set is attacked, the black box being the
    same for all sets: the sets are those of the audit's membership design."""
    scale: float | None = Field(None, gt=0)
    """Unit of distance, set without looking at the records; √n for n features (255√n for pixels) when left out."""
    pictures: int = Field(0, ge=0)
    """Images whose explanations are shown at every ε."""

    @field_validator("epsilons")
    @classmethod
    def _positive(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        for epsilon in value:
            if not 0 < epsilon < math.inf:
                raise ValueError(f"an ε is a positive number, got {epsilon:g}")
        return value
