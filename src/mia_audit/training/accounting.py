"""Privacy accounting of the Poisson-subsampled Gaussian mechanism (add/remove adjacency), by Opacus's accountants."""

import math
import warnings
from functools import cache

from mia_audit.errors import UserError
from mia_audit.models.torchvision_guard import guard

UNREACHABLE = 1e5


@cache
def epsilon_spent(noise_multiplier: float, sampling_rate: float, steps: int, delta: float, accountant: str) -> float:
    """Return ε at δ after `steps` steps, by the `prv` or `rdp` accountant; inf without noise, 0 without a step."""
    if steps == 0:
        return 0.0
    if noise_multiplier == 0:
        return math.inf
    guard()
    from opacus.accountants import create_accountant

    ledger = create_accountant(accountant)
    ledger.history = [(noise_multiplier, sampling_rate, steps)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # RDP's remark on its range of orders
        return float(ledger.get_epsilon(delta))


@cache
def noise_multiplier_for(epsilon: float, sampling_rate: float, steps: int, delta: float, accountant: str) -> float:
    """Return a noise multiplier that spends at most ε (and at least ε − 0.01) over `steps` steps.

    Raises UserError for an ε that no multiplier below 10⁵ reaches.
    """
    guard()
    from opacus.accountants.utils import get_noise_multiplier

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = get_noise_multiplier(
                target_epsilon=epsilon,
                target_delta=delta,
                sample_rate=sampling_rate,
                steps=steps,
                accountant=accountant,
                epsilon_tolerance=min(0.01, epsilon / 100),
            )
    except ValueError:
        found = math.inf
    if not found < UNREACHABLE:
        raise UserError(
            f"ε = {epsilon:g} at δ = {delta:g} cannot be reached in {steps} steps at sampling rate {sampling_rate:.4g}:"
            " raise mechanisms.*.epsilon or lower training.epochs or training.batch"
        )
    return float(found)
