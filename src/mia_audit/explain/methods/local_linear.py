"""Local linear explanations fitted to the model's training records: `local_linear`, similar to LIME, and `private_local`.

`local_linear` is the least-squares fit over the unit ball; `private_local:EPS` computes it by noisy steps. For a fixed
model, each single private explanation is (EPS, `local_delta`)-differentially private with respect to one training
record, or to one person if the unit is the person (Patel, Shokri, Zick 2020, algorithm 1).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import PositiveInt

from mia_audit.errors import UserError
from mia_audit.explain.catalogue import Explainer, explainer, explainers
from mia_audit.explain.private_local.terms import KernelName
from mia_audit.sections import Probability, Section

if TYPE_CHECKING:
    from torch import Tensor

    from mia_audit.explain.batch import Batch
    from mia_audit.explain.private_local.solver import Problem
    from mia_audit.explain.private_local.terms import ExplanationTerms

FAMILY = "local_linear"


class Kernel(Section):
    """The key of all local linear explanations."""

    local_kernel: KernelName = "stable"
    """Weights of the records around the explained one: a registered kernel, or `file.py:function`."""


class PrivateLocalKeys(Section):
    """The keys of private local explanations."""

    local_steps: PositiveInt = 50
    """Noisy steps of an explanation."""
    local_delta: Probability = 1e-5
    """δ of every explanation."""


@explainer(
    FAMILY,
    options=(Kernel,),
    family=FAMILY,
    quantities=("probability",),
    needs_training_records=True,
    label="the local linear fit",
)
def local_linear(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return φ, the slope of the linear fit of 2p − 1 around each record."""
    from mia_audit.explain.private_local.solver import minimum

    problems = _problems(batch, _terms(options, 1.0))
    return _shaped(batch, np.stack([minimum(problem) for problem in problems]))


def private_local(epsilon: float) -> Explainer:
    """Return the explainer with (ε, `local_delta`)-DP explanations."""

    def attribute(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
        from mia_audit.explain.private_local.solver import private_minima

        terms, shadow = _terms(options, epsilon), batch.members.shadow if batch.members else 0
        problems = _problems(batch, terms)
        inside = ""
        if batch.members:
            inside = hashlib.sha256(batch.members.member.tobytes() + batch.members.explained.whose).hexdigest()
        keys = [(batch.seed, "private_local", repr(terms), inside, shadow, record) for record in batch.records]
        return _shaped(batch, private_minima(problems, terms, keys))

    return Explainer(
        attribute,
        (Kernel, PrivateLocalKeys),
        FAMILY,
        quantities=("probability",),
        needs_training_records=True,
        label=f"the private local fit, ε = {epsilon:g} each",
        epsilon=epsilon,
    )


def _by_name(match: re.Match[str]) -> Explainer | None:
    epsilon = float(match["epsilon"])
    return private_local(epsilon) if epsilon > 0 else None


explainers.register_pattern(r"private_local:(?P<epsilon>\d+(?:\.\d+)?)", _by_name, example="private_local:1")


def _terms(options: Mapping[str, Any], epsilon: float) -> ExplanationTerms:
    from mia_audit.explain.private_local.terms import ExplanationTerms

    steps, delta = options.get("local_steps", 1), options.get("local_delta", 0.5)  # δ is not used without noise
    return ExplanationTerms(epsilon, delta, budget=epsilon, steps=steps, kernel=options["local_kernel"])


def _problems(batch: Batch, terms: ExplanationTerms) -> list[Problem]:
    if batch.members is None:
        raise UserError(
            "explainers 'local_linear' and 'private_local' need the training records of a model, and none are given"
        )
    probabilities = batch.logits.softmax(dim=1)
    values = 2 * probabilities.gather(1, batch.classes[:, None])[:, 0] - 1
    return batch.members.problems(batch.inputs, batch.records, values.cpu().numpy(), batch.classes.cpu().numpy(), terms)


def _shaped(batch: Batch, explanations: Any) -> dict[str, Tensor]:
    import torch

    return {"probability": torch.from_numpy(explanations).to(batch.inputs.device).reshape(batch.inputs.shape)}
