"""Time a training step, a record and an explanation on this machine, with the audit's own code on random records."""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from mia_audit.config.expand import needs_training_records
from mia_audit.explain.batch import explained_batch
from mia_audit.explain.private_section import PrivateExplanations
from mia_audit.models import construct
from mia_audit.planning.attacks import AttackTimer, attack_seconds
from mia_audit.planning.counting import Counted, Explaining, Rates, explaining, measuring, stand_in_for
from mia_audit.planning.explanations import MadeUp
from mia_audit.planning.linear import LONG, Linear, fitted
from mia_audit.planning.pace import pace
from mia_audit.planning.sizes import Size
from mia_audit.privacy.catalogue import Job, Mechanism
from mia_audit.privacy.per_record import LEAST
from mia_audit.runtime.precision import computing
from mia_audit.sections import Precision
from mia_audit.training.loop import OPTIMIZERS
from mia_audit.training.section import Training
from mia_audit.training.trainable import PARTS

Known = TypeVar("Known")

FEWER = 2
"""Number of records in the timed private step if a pass of one is long; with four at once, each takes 5 % less."""

ONE_GRADIENT: Mapping[str, Any] = {"explain": ["logit"], "explained_class": "predicted"}
"""The explainer that needs one forward and one backward pass."""


class Measured:
    """Costs of the audit's own code on random records. On a CPU they are in processor time, which other processes do not affect."""

    def __init__(self, batch: int, device: str, attacks: AttackTimer = attack_seconds) -> None:
        self.batch = batch
        self.device = device
        self._known: dict[str, Any] = {}
        self.counted = Counted()
        self.attacks = attacks
        self.pace = pace
        self._last: tuple[str, nn.Module, list[bool]] | None = None

    def step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training) -> Linear:
        terms = training.model_dump(include={"batch", "optimizer", "trainable", "precision", "per_record"})
        key = ["step", _compute_of(architecture), mechanism.model_dump(exclude={"delta"}), terms]
        return self._once(key, lambda: self._step(architecture, mechanism, training))

    def calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        # every ε takes about as long as the first one
        key = ["calibration", mechanism.model_dump(), training.epochs, training.batch, records]
        return self._once(key, lambda: self._calibration(mechanism, training, records, epsilon))

    def forward(self, architecture: Mapping[str, Any]) -> float:
        return self._rates(architecture, "float32").forward

    def signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any], members: int) -> float:
        passes = self.counted.signals(architecture, family, options)
        rates = self._rates(architecture, options.get("precision", "float32"))
        return rates.of(passes) + self.beside_passes(architecture, family, options, members)

    def beside_passes(
        self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any], members: int
    ) -> float:
        """Return the cost of a record in one family of signals, excluding its passes through the model."""
        known = members if needs_training_records(options["explainers"]) else 0
        key = ["signals", architecture["input_shape"], architecture["classes"], family, dict(options), known]
        run = explaining(architecture, family, options, known, self.batch)
        return self._once(key, lambda: self._without_model(architecture, run, self.batch)) / self.batch

    def measures(self, architecture: Mapping[str, Any], spec: Mapping[str, Any], records: int) -> float:
        asked = {name: spec[name] for name in ("explainers", "explaining", "measures", "measuring")}
        passes = self.counted.measures(architecture, asked)
        key = ["measures", architecture["input_shape"], architecture["classes"], asked, records]
        run = measuring(asked, self.batch)
        beside = self._once(key, lambda: self._without_model(architecture, run, records))
        return records * self._rates(architecture, "float32").of(passes) + beside

    def study(self, study: PrivateExplanations, size: Size) -> MadeUp | None:
        return MadeUp(study, size)

    def _once(self, key: list[Any], measure: Callable[[], Known]) -> Known:
        """Time equal costs only once."""
        name = json.dumps(key, sort_keys=True)
        if name not in self._known:
            self._known[name] = measure()
        known: Known = self._known[name]
        return known

    def _step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training) -> Linear:
        private = mechanism.kind.per_record
        few, batch = LEAST if private else 1, self.batch  # a private pass is padded to `LEAST` records
        if private and self._rates(architecture, "float32").both > LONG:
            few = batch = min(FEWER, batch)
        model = self._model(architecture).train()
        PARTS[training.trainable](model)
        budget = 8.0 if mechanism.kind.private else float("inf")
        # a step takes the same time, and calibration for two steps is fast
        rough, short = mechanism.model_copy(update={"accountant": "pld"}), training.model_copy(update={"epochs": 1})
        public = _one_record(architecture["input_shape"], self.device)
        # there are two records per person, but a step's cost depends only on the records
        persons = torch.arange(4 * training.batch) // 2 if mechanism.by_person else None
        records = 2 * training.batch if persons is None else len(persons)
        protection = mechanism.kind(rough, Job(model, records, budget, short, batch, b"plan", public, persons))
        optimizer = OPTIMIZERS[training.optimizer]([p for p in model.parameters() if p.requires_grad], training)

        def run(inputs: Tensor, labels: Tensor) -> None:
            protection.backward(
                inputs, labels, *(() if persons is None else (persons[: len(inputs)].to(inputs.device),))
            )

        with computing(model, training.precision or "float32"):
            gradients = self._timed(
                architecture, run, training.batch, few, empty=private
            )  # a step without records only adds noise
            update = min(
                self._seconds(optimizer.step) for _ in range(3)
            )  # the first step creates the optimizer's state
        return Linear(gradients.fixed + update, gradients.each)

    def _calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        model = nn.Sequential(
            nn.Conv2d(1, 1, 1), nn.Flatten(), nn.Linear(1, 1)
        )  # the model has channels, for noise by channel
        persons = torch.arange(records) if mechanism.by_person else None
        job = Job(model, records, epsilon, training, 1, b"plan", _one_record((1, 1, 1)), persons)
        start = self._clock()
        protection = mechanism.kind(mechanism, job)
        protection.spent(training.epochs * protection.steps_per_epoch)
        return self._clock() - start

    def _rates(self, architecture: Mapping[str, Any], precision: Precision) -> Rates:
        return self._once(
            ["rates", _compute_of(architecture), precision], lambda: self._passes(architecture, precision)
        )

    def _passes(self, architecture: Mapping[str, Any], precision: Precision) -> Rates:
        model = self._model(architecture).eval().requires_grad_(False)
        share = 0.0

        def run(inputs: Tensor, labels: Tensor) -> None:
            nonlocal share
            start, passed = self._clock(), 0.0

            def after_forward(*_: object) -> None:
                nonlocal passed
                passed = self._clock() - start

            handle = model.register_forward_hook(after_forward)
            explained_batch(model, inputs, labels, range(len(inputs)), ONE_GRADIENT, 0, gradients=True)
            handle.remove()
            share = passed / max(self._clock() - start, passed)

        with computing(model, precision):
            both = self._timed(architecture, run, self.batch, few=1)(self.batch) / self.batch
        return Rates(share * both, (1 - share) * both)

    def _without_model(self, architecture: Mapping[str, Any], run: Explaining, most: int) -> float:
        """Time explanations of a cheap model, to measure their cost without the passes."""
        model = stand_in_for(architecture, run).to(self.device)
        return self._timed(architecture, lambda inputs, labels: run(model, inputs, labels.cpu().numpy()), most)(most)

    def _model(self, architecture: Mapping[str, Any]) -> nn.Module:
        """Construct a model, or return the last one in its initial state, because constructing a large model takes seconds."""
        name = json.dumps(_compute_of(architecture), sort_keys=True)
        if self._last is None or self._last[0] != name:
            model = construct(architecture, seed=0).to(self.device)
            self._last = name, model, [parameter.requires_grad for parameter in model.parameters()]
        _, model, trained = self._last
        for parameter, wanted in zip(model.parameters(), trained, strict=True):
            parameter.requires_grad_(wanted)
        return model

    def _timed(
        self,
        architecture: Mapping[str, Any],
        run: Callable[[Tensor, Tensor], object],
        most: int,
        few: int = 0,
        empty: bool = False,
    ) -> Linear:
        def seconds(count: int) -> float:
            records = self._records(architecture, count)
            return self._seconds(lambda: run(*records))

        if self.device != "cpu":
            seconds(few or 1)  # a GPU's first run loads its kernels
        return fitted(seconds, most, few, empty, few if empty else 1)

    def _records(self, architecture: Mapping[str, Any], count: int) -> tuple[Tensor, Tensor]:
        """Draw random inputs and labels."""
        random = torch.Generator().manual_seed(count)
        inputs = torch.randn(count, *architecture["input_shape"], generator=random)
        labels = torch.randint(architecture["classes"], (count,), generator=random)
        return inputs.to(self.device), labels.to(self.device)

    def _seconds(self, run: Callable[[], object]) -> float:
        """Time a run; a long one on a CPU without the kernel's time, which is that of memory that later runs hold already."""
        start, kernel = self._clock(), os.times().system
        run()
        taken = self._clock() - start
        if self.device != "cpu" or taken < LONG:  # the kernel's time is too coarse for short runs
            return taken
        return taken - (os.times().system - kernel) / torch.get_num_threads()

    def _clock(self) -> float:
        if self.device == "cpu":
            return time.process_time() / torch.get_num_threads()
        torch.cuda.synchronize(self.device)
        return time.perf_counter()


def _compute_of(architecture: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of an architecture on which its cost depends; the number of classes hardly matters."""
    arguments = {
        name: value for name, value in architecture["arguments"].items() if name not in ("num_classes", "classes")
    }
    return {"model": architecture["model"], "arguments": arguments, "input_shape": architecture["input_shape"]}


def _one_record(shape: Sequence[int], device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Return a public record of class 0, for mechanisms that read public records."""
    return torch.ones(1, *shape, device=device), torch.zeros(1, dtype=torch.long, device=device)
