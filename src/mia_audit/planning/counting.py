"""Count the passes through a model that an explanation takes, by means of a cheap stand-in. `timing` measures the time of a pass."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mia_audit.config.expand import needs_training_records
from mia_audit.errors import UserError
from mia_audit.explain.catalogue import GRADIENT
from mia_audit.explain.private_local import ExplanationSet
from mia_audit.explain.training_records import Members
from mia_audit.explanation_metrics.study import Task, alone, beside, defined, explained
from mia_audit.learners import ExplanationRequest, Records
from mia_audit.learners.kinds.torch_module import TorchModel
from mia_audit.learners.torch_signals import module_summaries
from mia_audit.models import construct

Explaining = Callable[[nn.Module, Tensor, np.ndarray], object]
"""Explains records, given a model, the records and their labels."""

CHANNELS, SIDE = 2, 4
"""Channels of the convolution in a stand-in, and the side of its output."""

FEW_MEMBERS = 8
"""Number of training records of a stand-in."""


@dataclass(frozen=True)
class Passes:
    """Passes of a record through a model: forward without a graph, forward with a graph, and backward."""

    forward: float
    graph: float
    backward: float


@dataclass(frozen=True)
class Rates:
    """Seconds per record of a forward pass, with or without a graph, and of a backward pass to the inputs."""

    forward: float
    backward: float

    @property
    def both(self) -> float:
        """Seconds of one forward and one backward pass."""
        return self.forward + self.backward

    def of(self, passes: Passes) -> float:
        """Return the seconds of these passes."""
        return (passes.forward + passes.graph) * self.forward + passes.backward * self.backward


class Counted:
    """The numbers of passes of signals and measures. They are counted once, because they do not depend on the model."""

    def __init__(self) -> None:
        self._known: dict[str, Passes] = {}

    def signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any]) -> Passes:
        """Return the passes of one record in a family of signals."""
        run = explaining(architecture, family, options, FEW_MEMBERS, batch=1)
        return self._of(["signals", family, dict(options)], architecture, run)

    def measures(self, architecture: Mapping[str, Any], asked: Mapping[str, Any]) -> Passes:
        """Return the passes to explain one record and measure the explanations."""
        return self._of(["measures", dict(asked)], architecture, measuring(asked, batch=1))

    def _of(self, what: list[Any], architecture: Mapping[str, Any], run: Explaining) -> Passes:
        key = json.dumps([what, len(architecture["input_shape"])], sort_keys=True)
        if key not in self._known:
            self._known[key] = count(stand_in_for(architecture, run), architecture, run)
        return self._known[key]


def count(model: nn.Module, architecture: Mapping[str, Any], run: Explaining) -> Passes:
    """Count the passes through a model when `run` is called with this model, one record and its label."""
    forward, graph, backward = 0, 0, 0

    def passed(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        nonlocal forward, graph
        records = len(arguments[0])
        if not (isinstance(output, Tensor) and output.requires_grad):
            forward += records
            return
        graph += records

        def returned(_: Tensor) -> None:
            nonlocal backward
            backward += records

        output.register_hook(returned)  # type: ignore[no-untyped-call]

    handle = model.register_forward_hook(passed)
    try:
        run(model, *one_record(architecture))
    finally:
        handle.remove()
    return Passes(forward, graph, backward)


def stand_in_for(architecture: Mapping[str, Any], run: Explaining) -> nn.Module:
    """Return a cheap model with the architecture's inputs and classes, or the real model if `run` does not accept the cheap one."""
    shape, classes = architecture["input_shape"], architecture["classes"]
    torch.manual_seed(0)
    small = (_small_network(shape, classes) if len(shape) == 3 else nn.Linear(prod(shape), classes)).eval()
    small.requires_grad_(False)
    try:
        run(small, *one_record(architecture))
    except UserError:  # the explainer supports only certain models
        return construct(architecture, seed=0).eval().requires_grad_(False)
    return small


def one_record(architecture: Mapping[str, Any]) -> tuple[Tensor, np.ndarray]:
    """Return a record of zeros and its label."""
    return torch.zeros(1, *architecture["input_shape"]), np.zeros(1, dtype=np.int64)


def _small_network(shape: tuple[int, ...], classes: int) -> nn.Module:
    stride = max(1, min(shape[1:]) // SIDE)
    convolution = nn.Conv2d(shape[0], CHANNELS, stride, stride)
    return nn.Sequential(convolution, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, classes))


def explaining(
    architecture: Mapping[str, Any], family: str, options: Mapping[str, Any], members: int, batch: int
) -> Explaining:
    """Return a function that computes a family of signals. `members` has a model's training records, for explainers that are fitted to them."""
    request = ExplanationRequest(options["explainers"], options, 0, model=0)
    explained_set = _explanation_set(architecture, members) if needs_training_records(options["explainers"]) else None

    def run(model: nn.Module, inputs: Tensor, labels: np.ndarray) -> None:
        known = Members(model, inputs[:0], np.zeros(0, dtype=bool), 0, explained_set) if explained_set else None
        numbers = np.arange(len(inputs))
        module_summaries(model, inputs, labels, numbers, request, family == GRADIENT, batch, known)

    return run


def measuring(asked: Mapping[str, Any], batch: int) -> Explaining:
    """Return a function that explains records and measures the explanations, with and without comparison to two other models."""

    def run(model: nn.Module, inputs: Tensor, labels: np.ndarray) -> None:
        shape = tuple(inputs.shape[1:])
        known = defined(asked["measures"], shape)
        task = Task(asked["explainers"], asked["explaining"], known, asked["measuring"], 0, batch, shape)
        sample = Records(inputs.cpu().numpy(), labels, {}, np.arange(len(inputs)))
        for one in explained(TorchModel(model, batch), sample, task).values():
            alone(one, labels, task)
            for _ in range(2):
                beside(one, one, task)

    return run


def _explanation_set(architecture: Mapping[str, Any], count: int) -> ExplanationSet:
    """Draw random training records with random values; the model labels them once, which is not part of an explanation's cost."""
    random = np.random.default_rng(0)
    records = random.standard_normal((count, prod(architecture["input_shape"])), np.float32)
    return ExplanationSet.of(records, random.uniform(-1, 1, (count, architecture["classes"])))
