"""What a step and a record cost: timed on this machine, or derived from a rate that was measured elsewhere."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from mia_audit.compute.precision import computing
from mia_audit.config.schema import Mechanism, PrivateExplanations, Training
from mia_audit.config.settings import of_members
from mia_audit.explain.members import Members
from mia_audit.interpretability.study import Sample, alone, beside, defined, explained
from mia_audit.interpretability.study import Task as Measuring
from mia_audit.models import construct
from mia_audit.planning.explanations import MadeUp
from mia_audit.planning.linear import Linear, fitted
from mia_audit.planning.sizes import Size
from mia_audit.signals import Task, model_signals
from mia_audit.training.catalogue import Job, mechanisms
from mia_audit.training.loop import OPTIMIZERS
from mia_audit.training.parts import PARTS

PLAIN_STEP, PRIVATE_STEP, FORWARD = 1.4, 1.8, 0.35
"""Cost of a record in a plain step, in a private one and in a forward pass, where one in the pass of the gradient family is 1.

A ViT-S/16 at 224 pixels took 1.35 and 1.69 (benchmarks/paper_scale.py).
"""


BATCH = 256
"""Records at once where none are told."""

PER_MAP = 3e-3
"""Seconds to measure one explanation by itself and beside other models'."""

Found = TypeVar("Found")

Explaining = Callable[[nn.Module, Tensor, np.ndarray], object]
"""What is done with a model, records and their labels."""


class Costs(Protocol):
    """Seconds of one process, per architecture as architecture.json has it."""

    def step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training) -> Linear:
        """Return what a training step costs by the records in it."""

    def calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        """Return what setting a mechanism up for a budget costs a job, once."""

    def forward(self, architecture: Mapping[str, Any]) -> float:
        """Return what a record costs in a forward pass."""

    def signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any], members: int) -> float:
        """Return what a record costs in one family of signals, of a model with so many training records."""

    def measures(self, architecture: Mapping[str, Any], spec: Mapping[str, Any], records: int) -> float:
        """Return what explaining and measuring so many records costs a model; `spec` is that of `mia-audit interpretability`."""

    def study(self, study: PrivateExplanations, size: Size) -> MadeUp | None:
        """Return what times a study of private explanations, or nothing where it costs nothing."""


class Measured:
    """Costs by the audit's own code on random records; on a CPU in processor time, which other processes do not stretch."""

    def __init__(self, batch: int, device: str) -> None:
        self.batch = batch
        self.device = device
        self._known: dict[str, Any] = {}

    def step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training) -> Linear:
        terms = training.model_dump(include={"batch", "optimizer", "train", "precision"})
        key = ["step", _compute_of(architecture), mechanism.model_dump(exclude={"delta"}), terms]
        return self._once(key, lambda: self._step(architecture, mechanism, training))

    def calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        key = ["calibration", mechanism.model_dump(), training.epochs, training.batch, records, epsilon]
        return self._once(key, lambda: self._calibration(mechanism, training, records, epsilon))

    def forward(self, architecture: Mapping[str, Any]) -> float:
        return self._once(["forward", _compute_of(architecture)], lambda: self._forward(architecture))

    def signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any], members: int) -> float:
        key = ["signals", _compute_of(architecture), family, dict(options), members * of_members(options["explainers"])]
        return self._once(key, lambda: self._signals(architecture, family, options, members))

    def measures(self, architecture: Mapping[str, Any], spec: Mapping[str, Any], records: int) -> float:
        asked = {name: spec[name] for name in ("explainers", "explaining", "measures", "measuring")}
        key = ["measures", _compute_of(architecture), asked, records]
        return self._once(key, lambda: self._measures(architecture, asked, records))

    def study(self, study: PrivateExplanations, size: Size) -> MadeUp | None:
        return MadeUp(study, size)

    def _once(self, key: list[Any], measure: Callable[[], Found]) -> Found:
        """Time what costs the same only once."""
        name = json.dumps(key, sort_keys=True)
        if name not in self._known:
            self._known[name] = measure()
        found: Found = self._known[name]
        return found

    def _step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training) -> Linear:
        model = construct(architecture, seed=0).to(self.device).train()
        PARTS[training.train](model)
        name = mechanism.mechanism
        budget = float("inf") if name == "none" else 8.0
        rough = mechanism.model_copy(update={"accountant": "rdp"})  # the step is the same, and calibration quick
        public = _one_record(architecture["input_shape"], self.device)
        job = Job(model, 2 * training.batch, budget, training, self.batch, (0, "plan"), public)
        protection = mechanisms[name](rough, job)
        optimizer = OPTIMIZERS[training.optimizer]([p for p in model.parameters() if p.requires_grad], training)

        def run(inputs: Tensor, labels: Tensor) -> None:
            protection.backward(inputs, labels)
            optimizer.step()

        with computing(model, training.precision or "float32"):
            return self._timed(architecture, run, training.batch)

    def _calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Flatten(), nn.Linear(1, 1))  # channels, for noise by channel
        job = Job(model, records, epsilon, training, 1, (0, "plan"), _one_record((1, 1, 1)))
        start = self._clock()
        protection = mechanisms[mechanism.mechanism](mechanism, job)
        protection.spent(training.epochs * protection.steps_per_epoch)
        return self._clock() - start

    def _forward(self, architecture: Mapping[str, Any]) -> float:
        model = construct(architecture, seed=0).to(self.device).eval()

        @torch.no_grad()
        def run(inputs: Tensor, labels: Tensor) -> None:
            model(inputs)

        return self._timed(architecture, run, self.batch)(self.batch) / self.batch

    def _signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any], members: int) -> float:
        model = construct(architecture, seed=0).to(self.device).eval().requires_grad_(False)
        task = Task(family, options, 0, self.batch)
        known = _members(model, architecture, members) if of_members(options["explainers"]) else None

        def run(inputs: Tensor, labels: Tensor) -> None:
            fresh = replace(known, _last=((), [])) if known else None  # nothing is kept from one run to the next
            model_signals(model, inputs, labels.cpu().numpy(), task, fresh)

        return self._timed(architecture, run, self.batch)(self.batch) / self.batch

    def _measures(self, architecture: Mapping[str, Any], asked: Mapping[str, Any], records: int) -> float:
        model = construct(architecture, seed=0).to(self.device).eval().requires_grad_(False)

        def run(inputs: Tensor, labels: Tensor) -> None:
            _measure(model, inputs, labels, asked, self.batch)

        return self._timed(architecture, run, records)(records)

    def _timed(self, architecture: Mapping[str, Any], run: Callable[[Tensor, Tensor], None], most: int) -> Linear:
        shape, classes = architecture["input_shape"], architecture["classes"]
        random = torch.Generator().manual_seed(0)

        def seconds(count: int) -> float:
            inputs = torch.randn(count, *shape, generator=random).to(self.device)
            labels = torch.randint(classes, (count,), generator=random).to(self.device)
            start = self._clock()
            run(inputs, labels)
            return self._clock() - start

        return fitted(seconds, most)

    def _clock(self) -> float:
        if self.device == "cpu":
            return time.process_time() / torch.get_num_threads()
        torch.cuda.synchronize(self.device)
        return time.perf_counter()


def _compute_of(architecture: Mapping[str, Any]) -> dict[str, Any]:
    """What an architecture's cost depends on: a classifier of a few more classes costs the same."""
    arguments = {
        name: value for name, value in architecture["arguments"].items() if name not in ("num_classes", "classes")
    }
    return {"model": architecture["model"], "arguments": arguments, "input_shape": architecture["input_shape"]}


class Given:
    """Costs derived from one rate: records per second in the gradient family's pass, one forward and one backward."""

    def __init__(self, records_per_second: float) -> None:
        self.each = 1 / records_per_second
        self._counted: dict[str, int] = {}

    def step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training) -> Linear:
        passes = PLAIN_STEP if mechanism.mechanism == "none" else PRIVATE_STEP
        return Linear(0.0, passes * self.each)

    def calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        return 0.0

    def forward(self, architecture: Mapping[str, Any]) -> float:
        return FORWARD * self.each

    def signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any], members: int) -> float:
        if of_members(options["explainers"]):  # the time goes to NumPy, not to the model
            return Measured(BATCH, "cpu").signals(architecture, family, options, members)
        run = partial(model_signals, task=Task(family, options, 0, 1))
        return max(self._passes([family, dict(options)], architecture, run), 1) * self.each

    def measures(self, architecture: Mapping[str, Any], spec: Mapping[str, Any], records: int) -> float:
        asked = [spec[name] for name in ("explainers", "explaining", "measures", "measuring")]
        through = self._passes(
            asked,
            architecture,
            lambda model, inputs, labels: _measure(model, inputs, torch.from_numpy(labels), spec, 1),
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


def _one_record(shape: Sequence[int], device: str = "cpu") -> tuple[Tensor, Tensor]:
    """A public record of class 0, for mechanisms that read public records."""
    return torch.ones(1, *shape, device=device), torch.zeros(1, dtype=torch.long, device=device)


def _measure(model: nn.Module, inputs: Tensor, labels: Tensor, asked: Mapping[str, Any], batch: int) -> None:
    """Explain records by a model and measure that, alone and beside two others', as most models are."""
    known = defined(asked["measures"], tuple(inputs.shape[1:]))
    task = Measuring(asked["explainers"], asked["explaining"], known, asked["measuring"], 0, batch)
    sample = Sample(np.arange(len(inputs)), inputs, labels.cpu().numpy())
    for one in explained(model, sample, task).values():
        alone(one, sample, task)
        for _ in range(2):
            beside(one, one, task)


def _members(model: nn.Module, architecture: Mapping[str, Any], count: int) -> Members:
    """Make up a model's training records, and label them: that is done once a model."""
    device = next(model.parameters()).device
    inputs = torch.randn(count, *architecture["input_shape"], generator=torch.Generator().manual_seed(0)).to(device)
    members = Members(model, inputs, np.ones(count, dtype=bool), 0)
    return replace(members, _explained=members.explained)


@contextmanager
def _counting(saved: list[int], skip: set[int]) -> Iterator[None]:
    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in skip:
            saved.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield


def activation_bytes(architecture: Mapping[str, Any]) -> int:
    """Return the bytes that one record's forward pass keeps for its backward pass, beside what the model holds anyway."""
    model = construct(architecture, seed=0)
    saved: list[int] = []
    own = (*model.parameters(), *model.buffers())
    with _counting(saved, {value.untyped_storage().data_ptr() for value in own}):
        model(torch.zeros(1, *architecture["input_shape"]).requires_grad_())
    return sum(saved)
