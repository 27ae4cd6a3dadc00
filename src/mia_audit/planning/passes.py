"""What a step and a record cost, derived from a rate that was measured elsewhere by counting passes through the model."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from mia_audit.config.expand import needs_training_records
from mia_audit.explain.private_section import PrivateExplanations
from mia_audit.learners import ExplanationRequest
from mia_audit.models import construct
from mia_audit.planning.explanations import MadeUp
from mia_audit.planning.linear import Linear
from mia_audit.planning.sizes import Size
from mia_audit.planning.timing import Measured, compute_signals, measure_explanations
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.training.section import Training

PLAIN_STEP, PRIVATE_STEP, FORWARD = 1.4, 1.8, 0.35
"""Cost of a record in a plain step, in a private step and in a forward pass, in units of the gradient family's pass.

A ViT-S/16 at 224 pixels took 1.35 and 1.69 (benchmarks/paper_scale.py).
"""


BATCH = 256
"""Records at once where the plan is given none."""

PER_MAP = 3e-3
"""Seconds to measure one explanation by itself and beside other models'."""

Explaining = Callable[[nn.Module, Tensor, np.ndarray], object]
"""Explains records, given a model, the records and their labels."""


class Costs(Protocol):
    """Seconds of one process, per architecture as architecture.json has it."""

    def step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training) -> Linear:
        """Return what a training step costs by the records in it."""

    def calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        """Return what calibrating a mechanism to a budget costs a job, once."""

    def forward(self, architecture: Mapping[str, Any]) -> float:
        """Return what a record costs in a forward pass."""

    def signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any], members: int) -> float:
        """Return what a record costs in one family of signals, of a model with so many training records."""

    def measures(self, architecture: Mapping[str, Any], spec: Mapping[str, Any], records: int) -> float:
        """Return what explaining and measuring so many records costs a model; `spec` is that of `mia-audit explanation-metrics`."""

    def study(self, study: PrivateExplanations, size: Size) -> MadeUp | None:
        """Return what times a study of private explanations, or nothing where it costs nothing."""


class Given:
    """Costs derived from one rate: records per second in the gradient family's pass, one forward and one backward."""

    def __init__(self, records_per_second: float) -> None:
        self.each = 1 / records_per_second
        self._counted: dict[str, int] = {}

    def step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training) -> Linear:
        passes = PRIVATE_STEP if mechanism.kind.per_record else PLAIN_STEP
        return Linear(0.0, passes * self.each)

    def calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        return 0.0

    def forward(self, architecture: Mapping[str, Any]) -> float:
        return FORWARD * self.each

    def signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any], members: int) -> float:
        if needs_training_records(options["explainers"]):  # the time goes to NumPy, not to the model
            return Measured(BATCH, "cpu").signals(architecture, family, options, members)
        request = ExplanationRequest(options["explainers"], options, 0, model=0)
        run = partial(compute_signals, family=family, request=request, batch=1)
        return max(self._passes([family, dict(options)], architecture, run), 1) * self.each

    def measures(self, architecture: Mapping[str, Any], spec: Mapping[str, Any], records: int) -> float:
        asked = [spec[name] for name in ("explainers", "explaining", "measures", "measuring")]
        through = self._passes(
            asked,
            architecture,
            lambda model, inputs, labels: measure_explanations(model, inputs, torch.from_numpy(labels), spec, 1),
        )
        return records * (through * self.each + len(spec["explainers"]) * len(spec["explaining"]["explain"]) * PER_MAP)

    def study(self, study: PrivateExplanations, size: Size) -> MadeUp | None:
        return MadeUp(study, size)

    def _passes(self, what: list[Any], architecture: Mapping[str, Any], run: Explaining) -> int:
        """Count once for all settings: how often an explainer asks a model does not depend on which model it is."""
        key = json.dumps([what, len(architecture["input_shape"])], sort_keys=True)
        if key not in self._counted:
            self._counted[key] = passes(architecture, run)
        return self._counted[key]


class Free:
    """No costs: for the parts of a plan that are not time."""

    def step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training) -> Linear:
        return Linear(0.0, 0.0)

    def calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        return 0.0

    def forward(self, architecture: Mapping[str, Any]) -> float:
        return 0.0

    def signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any], members: int) -> float:
        return 0.0

    def measures(self, architecture: Mapping[str, Any], spec: Mapping[str, Any], records: int) -> float:
        return 0.0

    def study(self, study: PrivateExplanations, size: Size) -> MadeUp | None:
        return None


def passes(architecture: Mapping[str, Any], run: Explaining) -> int:
    """Count how many records go through a model when `run` is given it and one record, with its label."""
    seen = 0

    def count(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        nonlocal seen
        seen += len(arguments[0])

    model = construct(architecture, seed=0).eval().requires_grad_(False)
    model.register_forward_hook(count)
    run(model, torch.zeros(1, *architecture["input_shape"]), np.zeros(1, dtype=np.int64))
    return seen
