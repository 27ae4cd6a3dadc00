"""The costs of training steps, passes and explanations for a plan, and their derivation from one given rate."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from mia_audit.config.expand import needs_training_records
from mia_audit.explain.private_section import PrivateExplanations
from mia_audit.planning.attacks import Attacked, AttackTimer, attack_seconds
from mia_audit.planning.counting import Counted, Rates
from mia_audit.planning.explanations import MadeUp
from mia_audit.planning.linear import Linear
from mia_audit.planning.pace import pace
from mia_audit.planning.sizes import Size
from mia_audit.planning.timing import Measured
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.training.section import Training

PLAIN_STEP, PRIVATE_STEP, FORWARD = 1.4, 1.8, 0.35
"""Cost of a record in a plain step, in a private step and in a forward pass, in units of the gradient family's pass.

A ViT-S/16 at 224 pixels took 1.35 units in a plain and 1.69 in a private step (benchmarks/paper_scale.py).
"""


BATCH = 256
"""Number of records processed at once, if the plan does not state it."""

PER_MAP = 3e-3
"""Seconds to measure one explanation, including comparisons with other models."""


class Costs(Protocol):
    """Costs in seconds of one process; `architecture` is the content of architecture.json."""

    def pace(self) -> float:
        """Return the factor of this machine for costs that `estimate` states as constants."""

    def step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training) -> Linear:
        """Return the cost of a training step as a function of its number of records."""

    def calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        """Return the cost of calibrating a mechanism to a budget, once per job."""

    def forward(self, architecture: Mapping[str, Any]) -> float:
        """Return the cost of a record in a forward pass."""

    def signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any], members: int) -> float:
        """Return the cost of a record in one family of signals, for a model with this number of training records."""

    def measures(self, architecture: Mapping[str, Any], spec: Mapping[str, Any], records: int) -> float:
        """Return the cost per model of explaining and measuring this many records; `spec` is that of `mia-audit explanation-metrics`."""

    def attacks(self, attacked: Sequence[Attacked], fprs: Sequence[float]) -> float:
        """Return the cost of all attacks, and of evaluating them."""

    def study(self, study: PrivateExplanations, size: Size) -> MadeUp | None:
        """Return an object that times a study of private explanations; None if the study costs nothing."""


class RateCosts:
    """Costs derived from one rate: the records per second of the gradient family's pass, that is, of one forward and one backward pass."""

    def __init__(self, records_per_second: float, attacks: AttackTimer = attack_seconds) -> None:
        self.each = 1 / records_per_second
        self.rates = Rates(FORWARD * self.each, (1 - FORWARD) * self.each)
        self.counted = Counted()
        self.attacks = attacks
        self.pace = pace

    def step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training) -> Linear:
        passes = PRIVATE_STEP if mechanism.kind.per_record else PLAIN_STEP
        return Linear(0.0, passes * self.each)

    def calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        return 0.0

    def forward(self, architecture: Mapping[str, Any]) -> float:
        return self.rates.forward

    def signals(self, architecture: Mapping[str, Any], family: str, options: Mapping[str, Any], members: int) -> float:
        through = self.rates.of(self.counted.signals(architecture, family, options))
        if needs_training_records(options["explainers"]):  # NumPy takes the time, not the model
            return through + Measured(BATCH, "cpu").beside_passes(architecture, family, options, members)
        return through

    def measures(self, architecture: Mapping[str, Any], spec: Mapping[str, Any], records: int) -> float:
        asked = {name: spec[name] for name in ("explainers", "explaining", "measures", "measuring")}
        through = self.rates.of(self.counted.measures(architecture, asked))
        return records * (through + len(spec["explainers"]) * len(spec["explaining"]["explain"]) * PER_MAP)

    def study(self, study: PrivateExplanations, size: Size) -> MadeUp | None:
        return MadeUp(study, size)


class Free:
    """Costs of zero, for plans without times."""

    def pace(self) -> float:
        return 0.0

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

    def attacks(self, attacked: Sequence[Attacked], fprs: Sequence[float]) -> float:
        return 0.0

    def study(self, study: PrivateExplanations, size: Size) -> MadeUp | None:
        return None
