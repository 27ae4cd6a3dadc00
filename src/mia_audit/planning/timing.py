"""Time what a training step, a record and an explanation cost on this machine, by the audit's own code on random records."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from mia_audit.config.expand import needs_training_records
from mia_audit.explain.catalogue import GRADIENT
from mia_audit.explain.private_section import PrivateExplanations
from mia_audit.explain.training_records import Members
from mia_audit.explanation_metrics.study import Task as Measuring
from mia_audit.explanation_metrics.study import alone, beside, defined, explained
from mia_audit.learners import ExplanationRequest, Records
from mia_audit.learners.kinds.torch_module import TorchModel
from mia_audit.learners.torch_signals import module_summaries
from mia_audit.models import construct
from mia_audit.planning.explanations import MadeUp
from mia_audit.planning.linear import Linear, fitted
from mia_audit.planning.sizes import Size
from mia_audit.privacy.catalogue import Job, Mechanism
from mia_audit.runtime.precision import computing
from mia_audit.training.loop import OPTIMIZERS
from mia_audit.training.section import Training
from mia_audit.training.trainable import PARTS

Known = TypeVar("Known")


class Measured:
    """Costs of the audit's own code on random records; on a CPU in processor time, which other processes do not prolong."""

    def __init__(self, batch: int, device: str) -> None:
        self.batch = batch
        self.device = device
        self._known: dict[str, Any] = {}

    def step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training) -> Linear:
        terms = training.model_dump(include={"batch", "optimizer", "trainable", "precision"})
        key = ["step", _compute_of(architecture), mechanism.model_dump(exclude={"delta"}), terms]
        return self._once(key, lambda: self._step(architecture, mechanism, training))

    def calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        key = ["calibration", mechanism.model_dump(), training.epochs, training.batch, records, epsilon]
        return self._once(key, lambda: self._calibration(mechanism, training, records, epsilon))

    def forward(self, architecture: Mapping[str, Any]) -> float:
        return self._once(["forward", _compute_of(architecture)], lambda: self._forward(architecture))

    def signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any], members: int) -> float:
        key = [
            "signals",
            _compute_of(architecture),
            family,
            dict(options),
            members * needs_training_records(options["explainers"]),
        ]
        return self._once(key, lambda: self._signals(architecture, family, options, members))

    def measures(self, architecture: Mapping[str, Any], spec: Mapping[str, Any], records: int) -> float:
        asked = {name: spec[name] for name in ("explainers", "explaining", "measures", "measuring")}
        key = ["measures", _compute_of(architecture), asked, records]
        return self._once(key, lambda: self._measures(architecture, asked, records))

    def study(self, study: PrivateExplanations, size: Size) -> MadeUp | None:
        return MadeUp(study, size)

    def _once(self, key: list[Any], measure: Callable[[], Known]) -> Known:
        """Time what costs the same only once."""
        name = json.dumps(key, sort_keys=True)
        if name not in self._known:
            self._known[name] = measure()
        known: Known = self._known[name]
        return known

    def _step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training) -> Linear:
        model = construct(architecture, seed=0).to(self.device).train()
        PARTS[training.trainable](model)
        budget = 8.0 if mechanism.kind.private else float("inf")
        rough = mechanism.model_copy(update={"accountant": "rdp"})  # the step is the same, and calibration quick
        public = _one_record(architecture["input_shape"], self.device)
        # two records a person: what a step costs depends on the records alone
        persons = torch.arange(4 * training.batch) // 2 if mechanism.by_person else None
        records = 2 * training.batch if persons is None else len(persons)
        protection = mechanism.kind(rough, Job(model, records, budget, training, self.batch, b"plan", public, persons))
        optimizer = OPTIMIZERS[training.optimizer]([p for p in model.parameters() if p.requires_grad], training)

        def run(inputs: Tensor, labels: Tensor) -> None:
            protection.backward(
                inputs, labels, *(() if persons is None else (persons[: len(inputs)].to(inputs.device),))
            )
            optimizer.step()

        with computing(model, training.precision or "float32"):
            return self._timed(architecture, run, training.batch)

    def _calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Flatten(), nn.Linear(1, 1))  # channels, for noise by channel
        persons = torch.arange(records) if mechanism.by_person else None
        job = Job(model, records, epsilon, training, 1, b"plan", _one_record((1, 1, 1)), persons)
        start = self._clock()
        protection = mechanism.kind(mechanism, job)
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
        request = ExplanationRequest(options["explainers"], options, 0, model=0)
        known = _members(model, architecture, members) if needs_training_records(options["explainers"]) else None

        def run(inputs: Tensor, labels: Tensor) -> None:
            fresh = replace(known, _last=((), [])) if known else None  # no run starts with what an earlier one cached
            compute_signals(model, inputs, labels.cpu().numpy(), family, request, self.batch, fresh)

        return self._timed(architecture, run, self.batch)(self.batch) / self.batch

    def _measures(self, architecture: Mapping[str, Any], asked: Mapping[str, Any], records: int) -> float:
        model = construct(architecture, seed=0).to(self.device).eval().requires_grad_(False)

        def run(inputs: Tensor, labels: Tensor) -> None:
            measure_explanations(model, inputs, labels, asked, self.batch)

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


def _one_record(shape: Sequence[int], device: str = "cpu") -> tuple[Tensor, Tensor]:
    """A public record of class 0, for mechanisms that read public records."""
    return torch.ones(1, *shape, device=device), torch.zeros(1, dtype=torch.long, device=device)


def compute_signals(
    model: nn.Module,
    inputs: Tensor,
    labels: np.ndarray,
    family: str,
    request: ExplanationRequest,
    batch: int,
    members: Members | None = None,
) -> None:
    """Compute a family of signals."""
    module_summaries(model, inputs, labels, np.arange(len(inputs)), request, family == GRADIENT, batch, members)


def measure_explanations(
    model: nn.Module, inputs: Tensor, labels: Tensor, asked: Mapping[str, Any], batch: int
) -> None:
    """Explain records by a model and measure the explanations, alone and compared with two other models'."""
    shape = tuple(inputs.shape[1:])
    known = defined(asked["measures"], shape)
    task = Measuring(asked["explainers"], asked["explaining"], known, asked["measuring"], 0, batch, shape)
    sample = Records(inputs.cpu().numpy(), labels.cpu().numpy(), {}, np.arange(len(inputs)))
    for one in explained(TorchModel(model, batch), sample, task).values():
        alone(one, sample.labels, task)
        for _ in range(2):
            beside(one, one, task)


def _members(model: nn.Module, architecture: Mapping[str, Any], count: int) -> Members:
    """Draw random training records of a model, and label them, which is done once per model."""
    device = next(model.parameters()).device
    inputs = torch.randn(count, *architecture["input_shape"], generator=torch.Generator().manual_seed(0)).to(device)
    members = Members(model, inputs, np.ones(count, dtype=bool), 0)
    return replace(members, _explained=members.explained)
