"""Per-record clipping: the factor that bounds one record's contribution to a sum of gradients."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

STABILITY = 0.01


@dataclass(frozen=True)
class Clipping:
    """Factors from the norms of per-record gradients, and the sensitivity of the clipped sum to one record."""

    name: str
    factors: Callable[[Float[Tensor, " b"]], Float[Tensor, " b"]]
    sensitivity: float


def automatic(clip_norm: float) -> Clipping:
    """Return the clipping by 1/(‖g‖ + γ) with γ = 0.01, which has no norm to tune and sensitivity 1 (Bu et al. 2023, AUTO-S)."""
    return Clipping("automatic", lambda norms: 1 / (norms + STABILITY), 1.0)


def flat(clip_norm: float) -> Clipping:
    """Return the clipping by min(1, C/‖g‖), with sensitivity C (Abadi et al. 2016)."""
    return Clipping(f"flat {clip_norm:g}", lambda norms: (clip_norm / norms).clamp(max=1), clip_norm)


CLIPPINGS: dict[str, Callable[[float], Clipping]] = {"automatic": automatic, "flat": flat}
