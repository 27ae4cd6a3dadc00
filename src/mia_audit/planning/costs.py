"""What a step and a record cost: timed on this machine, or derived from a rate that was measured elsewhere."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from mia_audit.config.schema import Mechanism, Training
from mia_audit.models import construct
from mia_audit.signals import Task, model_signals
from mia_audit.training.catalogue import Job, mechanisms
from mia_audit.training.loop import OPTIMIZERS
from mia_audit.training.parts import PARTS

LONG = 0.4
"""Seconds a timed run should take: more records are timed together until it does."""

PLAIN_STEP, PRIVATE_STEP, FORWARD = 1.4, 1.8, 0.35
"""Cost of a record in a plain step, in a private one and in a forward pass, where one in the pass of the gradient family is 1.

A ViT-S/16 at 224 pixels took 1.35 and 1.69 (benchmarks/paper_scale.py).
"""


@dataclass(frozen=True)
class Linear:
    """Seconds of work on n records: `fixed` + `each` · n."""

    fixed: float
    each: float

    def __call__(self, records: float) -> float:
        return self.fixed + self.each * records


Found = TypeVar("Found")


class Costs(Protocol):
    """Seconds of one process, per architecture as architecture.json has it."""

    def step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training) -> Linear:
        """Return what a training step costs by the records in it."""

    def calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        """Return what setting a mechanism up for a budget costs a job, once."""

    def forward(self, architecture: Mapping[str, Any]) -> float:
        """Return what a record costs in a forward pass."""

    def signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any]) -> float:
        """Return what a record costs in one family of signals."""


class Measured:
    """Costs by the audit's own code on random records; on a CPU in processor time, which other processes do not stretch."""

    def __init__(self, batch: int, device: str) -> None:
        self.batch = batch
        self.device = device
        self._known: dict[str, Any] = {}

    def step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training) -> Linear:
        terms = training.model_dump(include={"batch", "optimizer", "train"})
        key = ["step", _compute_of(architecture), mechanism.model_dump(exclude={"delta"}), terms]
        return self._once(key, lambda: self._step(architecture, mechanism, training))

    def calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        key = ["calibration", mechanism.model_dump(), training.epochs, training.batch, records, epsilon]
        return self._once(key, lambda: self._calibration(mechanism, training, records, epsilon))

    def forward(self, architecture: Mapping[str, Any]) -> float:
        return self._once(["forward", _compute_of(architecture)], lambda: self._forward(architecture))

    def signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any]) -> float:
        key = ["signals", _compute_of(architecture), family, dict(options)]
        return self._once(key, lambda: self._signals(architecture, family, options))

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
        job = Job(model, 2 * training.batch, budget, training, self.batch, (0, "plan"))
        protection = mechanisms[name](rough, job)
        optimizer = OPTIMIZERS[training.optimizer]([p for p in model.parameters() if p.requires_grad], training)

        def run(inputs: Tensor, labels: Tensor) -> None:
            protection.backward(inputs, labels)
            optimizer.step()

        return self._timed(architecture, run, training.batch)

    def _calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        job = Job(nn.Linear(1, 1), records, epsilon, training, 1, (0, "plan"))
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

    def _signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any]) -> float:
        model = construct(architecture, seed=0).to(self.device).eval().requires_grad_(False)
        task = Task(family, options, 0, self.batch)

        def run(inputs: Tensor, labels: Tensor) -> None:
            model_signals(model, inputs, labels.cpu().numpy(), task)

        return self._timed(architecture, run, self.batch)(self.batch) / self.batch

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


def fitted(seconds: Callable[[int], float], most: int) -> Linear:
    """Fit `seconds` of 1, 4, 16 … records, up to `most` of them or until a run is long, by its last two points."""
    seconds(1)  # what is set up once
    points: list[tuple[int, float]] = []
    count = 1
    while True:
        points.append((count, min(seconds(count) for _ in range(2))))
        if count == most or (points[-1][1] > LONG and len(points) > 1):
            break
        count = min(4 * count, most)
    (few, less), (many, more) = points[max(len(points) - 2, 0)], points[-1]
    each = more / many if few == many else min(max((more - less) / (many - few), 0.0), more / many)
    return Linear(max(more - each * many, 0.0), each)


class Given:
    """Costs derived from one rate: records per second in the gradient family's pass, one forward and one backward."""

    def __init__(self, records_per_second: float) -> None:
        self.each = 1 / records_per_second

    def step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training) -> Linear:
        passes = PLAIN_STEP if mechanism.mechanism == "none" else PRIVATE_STEP
        return Linear(0.0, passes * self.each)

    def calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        return 0.0

    def forward(self, architecture: Mapping[str, Any]) -> float:
        return FORWARD * self.each

    def signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any]) -> float:
        passes = records_through(construct(architecture, seed=0), architecture, family, options)
        return max(passes, 1) * self.each


class Free:
    """No costs: for the parts of a plan that are not time."""

    def step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training) -> Linear:
        return Linear(0.0, 0.0)

    def calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        return 0.0

    def forward(self, architecture: Mapping[str, Any]) -> float:
        return 0.0

    def signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any]) -> float:
        return 0.0


def records_through(model: nn.Module, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any]) -> int:
    """Count how many times a record goes through the model for one family of signals."""
    seen = 0

    def count(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        nonlocal seen
        seen += len(arguments[0])

    model.eval().requires_grad_(False).register_forward_hook(count)
    inputs = torch.zeros(1, *architecture["input_shape"])
    model_signals(model, inputs, np.zeros(1, dtype=np.int64), Task(family, options, 0, 1))
    return seen


@contextmanager
def _counting(saved: list[int], skip: set[int]) -> Iterator[None]:
    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in skip:
            saved.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield


def activation_bytes(architecture: Mapping[str, Any]) -> int:
    """Return the bytes that one record's forward pass keeps for its backward pass."""
    model = construct(architecture, seed=0)
    saved: list[int] = []
    with _counting(saved, {value.untyped_storage().data_ptr() for value in model.parameters()}):
        model(torch.zeros(1, *architecture["input_shape"]).requires_grad_())
    return sum(saved)
