"""The tester's interface: a mechanism with its claim, and the findings about it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from mia_audit.privacy.gaussian import mu_for

ADJACENCIES = ("add-remove", "replace", "zero-out")
"""How neighbouring inputs differ: by one more record, by a replaced record, or by a removed term of a record while the
number of records is public.
"""

Adjacency = Literal["add-remove", "replace", "zero-out"]


@dataclass(frozen=True)
class Claim:
    """The claim of (ε, δ)-DP for adjacent inputs."""

    epsilon: float
    delta: float
    adjacency: str
    mu: float | None = None
    """μ of the Gaussian DP that implies the claim, if any. That μ-GDP is then claimed too, and fewer trials can refute it."""

    @property
    def apart(self) -> Claim | None:
        """The consequence of μ-GDP for the most distinguishing event: (0, 2Φ(μ/2) − 1)-DP (Dong et al. 2022, corollary 1)."""
        if self.mu is None:
            return None
        return Claim(0.0, math.erf(self.mu / math.sqrt(8)), self.adjacency)

    def gaussian(self) -> Claim:
        """Return the claim of a mechanism whose ε at δ follows from Gaussian DP."""
        return replace(self, mu=mu_for(self.epsilon, self.delta))


@dataclass(frozen=True)
class Pair:
    """Two neighbouring inputs, in the form that the mechanism takes."""

    name: str
    first: Any
    second: Any


Run = Callable[..., Any]
"""A function that returns a release from an input, 128 secret random bits (None: its own entropy), and terms by name."""


@dataclass(frozen=True)
class Mechanism:
    """A mechanism under fixed terms: a function that runs it, its claim, and the neighbouring inputs to try.

    `terms` are several sets of terms with which the mechanism runs under one secret seed. `other` is a further input,
    not adjacent to the others, which is released under the same seed. Without both, the mechanism claims nothing about
    a reused seed. `probes` are additional checks of this mechanism.
    """

    name: str
    run: Run
    claim: Claim
    pairs: Sequence[Pair]
    terms: Sequence[Mapping[str, Any]] = ()
    other: Any = None
    probes: Sequence[Probe] = ()
    secret_seed: bool = False
    """Whether the claim depends on the given seed, so that all bits of the seed must matter."""


@dataclass(frozen=True)
class Finding:
    """The result of one check: `refuted`, `held`, or `skipped` with the reason. It includes a lower bound on ε with its claim, if any."""

    mechanism: str
    check: str
    verdict: Literal["refuted", "held", "skipped"]
    detail: str
    claim: Claim | None = None
    lower_bound: float | None = None
    confidence: float | None = None
    trials: int = 0
    counts: tuple[int, int] | None = None
    """Occurrences of the event on the first and on the second input."""
    inputs: tuple[Any, Any] | None = field(default=None, repr=False)
    gaussian_bound: float | None = None
    """For a claim of Gaussian DP, the lower bound on μ, converted to ε at the claim's δ."""

    @property
    def share(self) -> float | None:
        """The lower bound as a share of the claimed ε."""
        return None if self.lower_bound is None or self.claim is None else self.lower_bound / self.claim.epsilon

    @property
    def gaussian_share(self) -> float | None:
        """The bound by Gaussian DP as a share of the claimed ε."""
        return None if self.gaussian_bound is None or self.claim is None else self.gaussian_bound / self.claim.epsilon

    @property
    def reached(self) -> float | None:
        """The larger of both shares."""
        return None if self.share is None else max(self.share, self.gaussian_share or 0.0)

    def as_json(self) -> dict[str, Any]:
        """Return the finding in JSON form; inputs are included only for a counterexample."""
        written = {**asdict(self), "share": self.share, "gaussian_share": self.gaussian_share, "inputs": None}
        if self.verdict == "refuted" and self.inputs is not None:
            written["inputs"] = [plain(one) for one in self.inputs]
        return written


Probe = Callable[[Mechanism], Finding]
"""A check other than a game between two inputs."""


@dataclass(frozen=True)
class Verdict:
    """All findings about a target."""

    target: str
    claim: Claim
    findings: Sequence[Finding]
    seconds: float

    @property
    def refuted(self) -> bool:
        """Whether there is a counterexample."""
        return any(finding.verdict == "refuted" for finding in self.findings)

    @property
    def counterexample(self) -> Finding | None:
        """The first finding that refutes the claim."""
        return next((finding for finding in self.findings if finding.verdict == "refuted"), None)

    @property
    def best(self) -> Finding | None:
        """The finding that reached the largest share of its claim, by either bound."""
        bounded = [finding for finding in self.findings if finding.reached is not None]
        return max(bounded, key=lambda finding: finding.reached or 0.0, default=None)

    def as_json(self) -> dict[str, Any]:
        """Return the verdict in JSON form."""
        best = self.best
        return {
            "target": self.target,
            "claim": asdict(self.claim),
            "verdict": "refuted" if self.refuted else "held",
            "lower_bound": best.lower_bound if best else None,
            "share": best.share if best else None,
            "gaussian_bound": best.gaussian_bound if best else None,
            "gaussian_share": best.gaussian_share if best else None,
            "seconds": round(self.seconds, 1),
            "findings": [finding.as_json() for finding in self.findings],
        }


def plain(value: Any) -> Any:
    """Return an input in JSON form; numbers that JSON does not have become strings."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)
