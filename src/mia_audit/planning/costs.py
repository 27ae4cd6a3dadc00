"""The seconds of an audit's training, signals and measures: counted steps and passes, times one timed step and pass each."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from mia_audit.config.expand import needs_training_records
from mia_audit.errors import UserError
from mia_audit.explain.batch import Members, explained_batch
from mia_audit.explain.catalogue import GRADIENT
from mia_audit.explain.private_local.records import ExplanationSet
from mia_audit.explanation_metrics.study import MetricsTask, alone, beside, defined, explained
from mia_audit.learners.protocol import ExplanationRequest
from mia_audit.learners.torch_module import TorchModel, module_summaries
from mia_audit.models.architecture import construct
from mia_audit.planning.attacks import extrapolated
from mia_audit.privacy.catalogue import Job, Mechanism
from mia_audit.privacy.per_record import FEW
from mia_audit.runtime.device import computing
from mia_audit.sections import Precision
from mia_audit.signals.compute import SignalsTask, probed
from mia_audit.training.loop import OPTIMIZERS
from mia_audit.training.section import Training
from mia_audit.training.task import Records
from mia_audit.training.trainable import Features, choose_part

Known = TypeVar("Known")
Explaining = Callable[[nn.Module, Tensor, np.ndarray], object]
"""Explains records, given a model, the records and their labels."""

PLAIN_STEP, PRIVATE_STEP, FORWARD = 1.4, 1.8, 0.35
"""A record's cost in a plain step, a private step and a forward pass, in units of one forward and one backward pass.

A ViT-S/16 at 224 pixels took 1.35 units in a plain and 1.69 in a private step (benchmarks/paper_scale.py).
"""


@dataclass(frozen=True)
class Rates:
    """Seconds of a record in a forward pass, and in a backward pass to the inputs."""

    forward: float
    backward: float

    def of(self, passes: tuple[int, int]) -> float:
        return passes[0] * self.forward + passes[1] * self.backward


class Costs:
    """Costs in seconds of one process; `architecture` is the content of architecture.json.

    Steps and passes are timed on random records, or follow from `rate`, the records per second of one forward and one
    backward pass. On a CPU the seconds are processor time.
    """

    def __init__(self, batch: int, device: str = "cpu", rate: float = 0.0) -> None:
        self.batch, self.device, self.rate = batch, device, rate
        self._known: dict[str, Any] = {}

    def step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training, records: int) -> float:
        """Return the cost of a training step on this many records."""
        if self.rate:
            return records * (PRIVATE_STEP if mechanism.kind.per_record else PLAIN_STEP) / self.rate
        terms = training.model_dump(include={"batch", "optimizer", "trainable", "lora", "precision", "per_record"})
        key = ["step", _compute_of(architecture), mechanism.model_dump(exclude={"delta"}), terms, records]
        return self._once(key, lambda: self._step(architecture, mechanism, training, records))

    def calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        """Return the cost of calibrating a mechanism to a budget, once per job; every ε takes about as long as the first."""
        key = ["calibration", mechanism.model_dump(), training.epochs, training.batch, records]
        return self._once(key, lambda: self._calibration(mechanism, training, records, epsilon))

    def forward(self, architecture: Mapping[str, Any]) -> float:
        """Return the cost of a record in a forward pass."""
        return self._rates(architecture, "float32", self.batch).forward

    def signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any], members: int) -> float:
        """Return the cost of a record in a family of signals, for a model with this number of training records."""
        request = ExplanationRequest(options["explainers"], options, 0, model=0)
        fitted = needs_training_records(options["explainers"])

        def run(model: nn.Module, inputs: Tensor, labels: np.ndarray) -> None:
            numbers = np.arange(len(inputs))
            known = Members(model, inputs[:0], np.zeros(0, dtype=bool), 0, records) if records else None
            module_summaries(
                model,
                inputs,
                labels,
                numbers=numbers,
                request=request,
                outputs=family == GRADIENT,
                batch=self.batch,
                members=known,
            )
            if "probes" in options:
                sample = Records(inputs.cpu().numpy(), labels, {}, numbers)
                probed(TorchModel(model, self.batch), sample, SignalsTask(family, options, 0, self.batch, 0))

        records = _explanation_set(architecture, members) if fitted else None
        key = ["signals", architecture["input_shape"], architecture["classes"], family, dict(options), members * fitted]
        return self._explaining(key, architecture, run, options.get("precision", "float32"), self.batch)

    def measures(self, architecture: Mapping[str, Any], spec: Mapping[str, Any], records: int) -> float:
        """Return the cost per model of explaining and measuring records, beside two others; `spec` is that of `explanation-metrics`."""
        asked = {name: spec[name] for name in ("explainers", "explaining", "measures", "measuring")}
        shape = tuple(architecture["input_shape"])
        known = defined(asked["measures"], shape)
        task = MetricsTask(
            explainers=asked["explainers"],
            explaining=asked["explaining"],
            measures=known,
            measuring=asked["measuring"],
            seed=0,
            batch=self.batch,
            shape=shape,
        )

        def run(model: nn.Module, inputs: Tensor, labels: np.ndarray) -> None:
            sample = Records(inputs.cpu().numpy(), labels, {}, np.arange(len(inputs)))
            for one in explained(TorchModel(model, self.batch), sample, task).values():
                alone(one, labels, task)
                for _ in range(2):
                    beside(one, one, task)

        batch = min(self.batch, records)  # of few records, a pass may cost little more than its start
        key = ["measures", architecture["input_shape"], architecture["classes"], asked, batch]
        return records * self._explaining(key, architecture, run, "float32", batch)

    def _once(self, key: list[Any], measure: Callable[[], Known]) -> Known:
        """Time equal costs only once."""
        name = json.dumps(key, sort_keys=True)
        if name not in self._known:
            self._known[name] = measure()
        known: Known = self._known[name]
        return known

    def _clock(self) -> float:
        if self.device == "cpu":
            return time.process_time() / torch.get_num_threads()
        torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def _records(self, architecture: Mapping[str, Any], count: int) -> tuple[Tensor, Tensor]:
        """Draw random inputs and labels."""
        random = torch.Generator().manual_seed(count)
        inputs = torch.randn(count, *architecture["input_shape"], generator=random)
        labels = torch.randint(architecture["classes"], (count,), generator=random)
        return inputs.to(self.device), labels.to(self.device)

    def _step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training, records: int) -> float:
        whole = construct(architecture, seed=0).to(self.device).train()
        choose_part(whole, training)
        private = mechanism.kind.per_record
        model, _ = Features()(whole, training, self._records(architecture, 1)[0], 1, private)
        budget = 8.0 if mechanism.kind.private else float("inf")
        # a step takes the same time, and calibration for two steps is fast
        rough, short = mechanism.model_copy(update={"accountant": "pld"}), training.model_copy(update={"epochs": 1})
        # there are two records per person, but a step's cost depends only on the records
        persons = torch.arange(4 * training.batch) // 2 if mechanism.by_person else None
        count = 2 * training.batch if persons is None else len(persons)
        public = _one_record(architecture["input_shape"], self.device)
        protection = mechanism.kind.protect(
            rough,
            Job(
                model=model,
                records=count,
                epsilon=budget,
                training=short,
                micro_batch=self.batch,
                key=b"plan",
                public=public,
                persons=persons,
            ),
        )
        optimizer = OPTIMIZERS[training.optimizer]([p for p in model.parameters() if p.requires_grad], training)

        def work(count: int) -> Callable[[], object]:
            inputs, labels = self._records(architecture, count)
            inputs = Features()(whole, training, inputs, self.batch, private)[1][0:count]
            owners = () if persons is None else (persons[: len(inputs)].to(inputs.device),)

            def run() -> None:
                protection.backward(inputs, labels, *owners)
                optimizer.step()

            return run

        with computing(model, training.precision or "float32"):
            # batch normalisation needs two records, and a private pass has at least `FEW`
            return extrapolated(work, max(records, 2), FEW if private else 2, self._clock, empty=private)

    def _calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        # the model has channels, for noise by channel
        model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Flatten(), nn.Linear(1, 1))
        persons = torch.arange(records) if mechanism.by_person else None
        job = Job(
            model=model,
            records=records,
            epsilon=epsilon,
            training=training,
            micro_batch=1,
            key=b"plan",
            public=_one_record((1, 1, 1)),
            persons=persons,
        )
        start = time.process_time()
        protection = mechanism.kind.protect(mechanism, job)
        protection.spent(training.epochs * protection.steps_per_epoch)
        return time.process_time() - start

    def _rates(self, architecture: Mapping[str, Any], precision: Precision, batch: int) -> Rates:
        if self.rate:
            return Rates(FORWARD / self.rate, (1 - FORWARD) / self.rate)
        key = ["rates", _compute_of(architecture), precision, batch]
        return self._once(key, lambda: self._passes(construct(architecture, seed=0), architecture, precision, batch))

    def _passes(self, model: nn.Module, architecture: Mapping[str, Any], precision: Precision, batch: int) -> Rates:
        """Time a pass of a batch forward without a graph, and one explanation by the gradient."""
        model = model.to(self.device).eval().requires_grad_(False)
        one: Mapping[str, Any] = {"explain": ["logit"], "explained_class": "predicted"}

        def forward(count: int) -> Callable[[], object]:
            inputs, _ = self._records(architecture, count)
            return torch.no_grad()(lambda: model(inputs))

        def both(count: int) -> Callable[[], object]:
            inputs, labels = self._records(architecture, count)
            return lambda: explained_batch(
                model, inputs, labels, records=range(count), options=one, seed=0, gradients=True
            )

        with computing(model, precision):
            there = extrapolated(forward, batch, clock=self._clock) / batch
            return Rates(there, max(extrapolated(both, batch, clock=self._clock) / batch - there, 0.0))

    def _explaining(
        self, key: list[Any], architecture: Mapping[str, Any], run: Explaining, precision: Precision, batch: int
    ) -> float:
        """Return the cost of a record in a batch: its passes through the model, and the rest as timed on a cheap stand-in."""

        def measured() -> tuple[tuple[int, int], float]:
            model = stand_in_for(architecture, run)
            passes = count_passes(model, architecture, run)

            def work(count: int) -> Callable[[], object]:
                inputs, labels = self._records(architecture, count)
                return lambda: run(model, inputs, labels.cpu().numpy())

            own = self._passes(model, architecture, "float32", batch).of(passes)
            return passes, max(extrapolated(work, batch, clock=self._clock) / batch - own, 0.0)

        passes, rest = self._once(key, measured)
        return self._rates(architecture, precision, batch).of(passes) + rest


def count_passes(model: nn.Module, architecture: Mapping[str, Any], run: Explaining) -> tuple[int, int]:
    """Count the passes forward and backward through a model that the explanation of one record takes."""
    counted = [0, 0]

    def passed(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        records = len(arguments[0])
        counted[0] += records
        if isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(lambda _: counted.__setitem__(1, counted[1] + records))  # type: ignore[no-untyped-call]

    handle = model.register_forward_hook(passed)
    try:
        run(model, torch.zeros(1, *architecture["input_shape"]), np.zeros(1, dtype=np.int64))
    finally:
        handle.remove()
    return counted[0], counted[1]


def stand_in_for(architecture: Mapping[str, Any], run: Explaining) -> nn.Module:
    """Return a cheap model with the architecture's inputs and classes, or the real one if `run` does not accept the cheap one."""
    shape, classes = architecture["input_shape"], architecture["classes"]
    torch.manual_seed(0)
    small: nn.Module = nn.Linear(prod(shape), classes)
    if len(shape) == 3:
        stride = max(1, min(shape[1:]) // 4)
        convolution = nn.Conv2d(shape[0], 2, stride, stride)
        small = nn.Sequential(convolution, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, classes))
    small = small.eval().requires_grad_(False)
    try:
        run(small, torch.zeros(1, *shape), np.zeros(1, dtype=np.int64))
    except UserError:  # the explainer supports only certain models
        return construct(architecture, seed=0).eval().requires_grad_(False)
    return small


def _compute_of(architecture: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of an architecture on which its cost depends; the number of classes hardly matters."""
    arguments = {name: one for name, one in architecture["arguments"].items() if name not in ("num_classes", "classes")}
    return {"model": architecture["model"], "arguments": arguments, "input_shape": architecture["input_shape"]}


def _one_record(shape: Any, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Return a public record of class 0, for mechanisms that read public records."""
    return torch.ones(1, *shape, device=device), torch.zeros(1, dtype=torch.long, device=device)


def _explanation_set(architecture: Mapping[str, Any], count: int) -> ExplanationSet:
    """Draw random training records with random values; the model labels them once, which is not part of an explanation's cost."""
    random = np.random.default_rng(0)
    records = random.standard_normal((count, prod(architecture["input_shape"])), np.float32)
    return ExplanationSet.from_arrays(records, random.uniform(-1, 1, (count, architecture["classes"])))
