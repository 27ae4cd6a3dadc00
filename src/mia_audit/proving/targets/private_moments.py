"""`private-moments`: the released constants of a table's columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mia_audit.privacy import moments
from mia_audit.proving.catalogue import Options, targets
from mia_audit.proving.mechanism import Mechanism, Pair
from mia_audit.proving.neighbours import HUGE

RECORDS, COLUMNS = 9, 2


@targets.register("private-moments")
def private_moments(options: Options) -> Sequence[Mechanism]:
    """Return the release for two columns between −1 and 1; the number of records is public."""
    claim = options.claim("add-remove").gaussian()
    bounds = moments.Bounds(-np.ones(COLUMNS), np.ones(COLUMNS))

    def run(records: Any, randomness: int, delta: float = claim.delta, epsilon: float = claim.epsilon) -> Any:
        released = moments.release([records], RECORDS, bounds, epsilon, delta, (randomness,))
        return {"mean": released.mean, "sd": released.sd, "floored": released.floored}

    others = np.zeros((RECORDS - 1, COLUMNS))
    canaries = {
        "a record at the bounds": [1.0, 1.0],
        "a record at two bounds": [1.0, -1.0],
        "a record far beyond": [HUGE, -HUGE],
        "a record of NaN": [math.nan, math.nan],
        "an infinite record": [math.inf, -math.inf],
        "a record like the others": [0.0, 0.0],
    }
    pairs = [Pair(name, np.vstack([others, canary]), others) for name, canary in canaries.items()]
    pairs.append(Pair("a record alone", np.ones((1, COLUMNS)), np.ones((0, COLUMNS))))
    other = np.vstack([others, [0.5, -0.25]])
    terms = ({"delta": claim.delta / 10}, {"epsilon": claim.epsilon / 2})
    return [Mechanism("private-moments", run, claim, pairs, terms, other, secret_seed=True)]
