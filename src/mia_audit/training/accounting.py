"""Privacy accounting of the Poisson-subsampled Gaussian mechanism (add/remove adjacency), by Opacus's accountants."""

import math
import warnings
from functools import cache

from threadpoolctl import threadpool_limits

from mia_audit.errors import UserError
from mia_audit.models.torchvision_guard import guard

UNREACHABLE = 1e5


def steps_per_epoch(records: int, batch: int) -> int:
    """Return how many Poisson batches of `batch` expected records make one expected pass over the training set."""
    return max(1, round(records / batch))


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
    # one thread: the last digit of a sum depends on how many share it, and the noise must not depend on the machine's cores
    with threadpool_limits(1, "blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # RDP's remark on its range of orders
        return float(ledger.get_epsilon(delta))


@cache
def noise_multiplier_for(epsilon: float, sampling_rate: float, steps: int, delta: float, accountant: str) -> float:
    """Return a noise multiplier that spends at most ε over `steps` steps, and hardly less (0.01, or 1 % of a small ε).

    Raises UserError for an ε that no multiplier below 10⁵ reaches.
    """
    slack = min(0.01, epsilon / 100)
    rdp = _by_rdp(epsilon, sampling_rate, steps, delta, slack)
    if accountant == "rdp":
        return rdp

    def spent(noise_multiplier: float) -> float:
        return epsilon_spent(noise_multiplier, sampling_rate, steps, delta, accountant)

    # tighter accountants need less noise than RDP: log ε is nearly linear in log z, so a secant is there in a few steps
    high, low = rdp, 0.7 * rdp
    while spent(high) > epsilon:
        low, high = high, 1.2 * high
    while spent(low) <= epsilon:
        low, high = 0.7 * low, low
    while epsilon - spent(high) > slack:
        share = math.log((epsilon - slack / 2) / spent(high)) / math.log(spent(low) / spent(high))
        middle = high * (low / high) ** share
        low, high = (low, middle) if spent(middle) <= epsilon else (middle, high)
    return high


def _by_rdp(epsilon: float, sampling_rate: float, steps: int, delta: float, slack: float) -> float:
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
                accountant="rdp",
                epsilon_tolerance=slack,
            )
    except ValueError:
        found = math.inf
    if not found < UNREACHABLE:
        raise UserError(
            f"ε = {epsilon:g} at δ = {delta:g} cannot be reached in {steps} steps at sampling rate {sampling_rate:.4g}:"
            " raise mechanisms.*.epsilon or lower training.epochs or training.batch"
        )
    return float(found)
