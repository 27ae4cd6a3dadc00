"""The section of a config for the evaluation of scores."""

from __future__ import annotations

from pydantic import field_validator

from mia_audit.sections import Probability, Section


class Evaluation(Section):
    """The metrics that are computed from the scores."""

    fprs: tuple[float, ...] = (0.001, 0.01, 0.1)
    """False-positive rates, as fractions, at which TPR is reported. Tables mark the rates for which the pool is too small."""
    confidence: Probability = 0.95
    """Level of all intervals."""

    @field_validator("fprs")
    @classmethod
    def _fprs(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        for fpr in value:
            if not 0 < fpr < 1:
                raise ValueError(f"{fpr:g} is not between 0 and 1: FPRs are fractions, so 1 % is written 0.01")
        return value
