"""The empirical ε of attacks on a setting, computed for each target from the number of members among its highest-scoring records.

The choice of the records called members must not depend on the membership. For each target these are the records with
the highest scores; their share of all records is fixed here. A target's scores come from its own outputs and from the
other models' membership. If nothing leaks, its own membership is therefore independent of the records called, and each
target's bound exceeds 0 with probability at most its level. Bounds are combined over shares, targets and attacks by
Bonferroni's correction, which allows any dependence. Targets share their shadow models, so pooling their records as
independent trials would claim leaks that do not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from mia_audit.errors import UserError
from mia_audit.evaluation.called import called_columns
from mia_audit.evaluation.epsilon_bounds import (
    clopper_pearson_epsilon,
    gaussian_epsilon,
    one_run_bound,
    one_run_epsilon,
    one_run_f_dp_epsilon,
    one_run_gaussian_epsilon,
)
from mia_audit.evaluation.summary import KEYS, of_drawn_unit

THRESHOLDS = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99)
"""Shares of records that are called members, one threshold each, for bounds from error rates."""

GUESSES = ((0.001, 0.0), (0.01, 0.0), (0.1, 0.0), (0.01, 0.01), (0.025, 0.025), (0.1, 0.1), (0.5, 0.5))
"""Shares of records that one-run bounds guess to be members and non-members; no guess is made on the other records."""

MOST = 0.75
"""The share of a target's level for the one of the `GUESSES` that `levels` chooses (`benchmarks/one_run_bounds.py`)."""

MANY = 5000
"""With this many records or more, guesses on 2.5 % at either end recover more of a Gaussian mechanism's ε than guesses on 10 %."""

PROMISING = 4
"""Number of (target, guess) pairs whose bounds from trade-off curves are computed; such bounds take longer than closed forms."""


def lower_bounds(metrics: pl.DataFrame, delta: float, alpha: float, bernoulli: bool) -> dict[str, float]:
    """Return, per method, the largest lower bound on ε at δ over all attacks of a metrics table, jointly at level 1 − α.

    The table has a row per attack and target. The methods of `ONE_RUN` apply only to membership by fair coins
    (`bernoulli`), under which their bounds are proofs: for any mechanism (`one-run`, `one-run-f-dp`), or for Gaussian
    ones (`one-run-gaussian`). `clopper-pearson`, and `gaussian` for Gaussian mechanisms, exceed 0 in at most α of the
    audits if nothing leaks; if something leaks, they assume that the records of a target are independent trials.
    """
    methods = METHODS if bernoulli else {name: bound for name, bound in METHODS.items() if name not in ONE_RUN}
    read = {*THRESHOLDS, *(GUESSED if bernoulli else ())}
    if missing := [name for share in sorted(read) for name in called_columns(share) if name not in metrics.columns]:
        raise UserError(
            f"the metrics have no column '{missing[0]}', which is needed for bounds on ε; evaluate the scores again"
        )
    known = metrics.filter(pl.col("auc").is_not_null())
    return {name: bound(known, delta, alpha) if len(known) else 0.0 for name, bound in methods.items()}


def bounds_table(metrics: pl.DataFrame, delta: float, confidence: float, bernoulli: bool) -> pl.DataFrame:
    """Return a row per attack × signal × likelihood × null_control and method, with its `epsilon` at `delta` and `confidence`.

    Where membership was drawn by person, the bounds are per person.
    """
    rows = [
        dict(zip(KEYS, key, strict=True)) | {"method": name, "epsilon": epsilon}
        for key, group in of_drawn_unit(metrics).group_by(*KEYS, maintain_order=True)
        for name, epsilon in lower_bounds(group, delta, 1 - confidence, bernoulli).items()
    ]
    kinds: dict[str, Any] = dict.fromkeys(KEYS, pl.String) | {"null_control": pl.Boolean, "method": pl.String}
    table = pl.DataFrame(rows, schema=kinds | {"epsilon": pl.Float64})
    return table.with_columns(pl.lit(delta).alias("delta"), pl.lit(confidence).alias("confidence"))


def _by_errors(bound: Callable[..., float]) -> Callable[[pl.DataFrame, float, float], float]:
    """Turn a bound from a target's errors at one threshold into the largest bound over all targets and shares."""

    def largest(metrics: pl.DataFrame, delta: float, alpha: float) -> float:
        members, non_members = (metrics[name].to_numpy()[:, None] for name in ("members", "non_members"))
        true, false = (
            np.stack([metrics[names[side]].to_numpy() for names in map(called_columns, THRESHOLDS)], axis=1)
            for side in (0, 1)
        )
        return bound(true, false, members, non_members, alpha / true.size, delta)

    return largest


def _one_run(metrics: pl.DataFrame, delta: float, alpha: float) -> float:
    """Return the largest one-run bound over all targets and guesses, skipping those that cannot be the largest."""
    records, guesses, correct = _guessed(metrics)
    level = levels(records, alpha)
    ceiling = one_run_bound(guesses, correct, level)
    best = 0.0
    for place in np.argsort(-ceiling, axis=None):
        if ceiling.flat[place] <= best:
            break
        drawn, guessed, hits = (int(values.flat[place]) for values in (records, guesses, correct))
        best = max(best, one_run_epsilon(drawn, guessed, hits, float(level.flat[place]), delta))
    return best


def _by_curve(bound: Callable[[int, int, int, float, float], float]) -> Callable[[pl.DataFrame, float, float], float]:
    """Turn a bound from a trade-off curve into the largest bound over the most promising targets and guesses.

    All bounds hold jointly at the level, so this choice may depend on their values.
    """

    def largest(metrics: pl.DataFrame, delta: float, alpha: float) -> float:
        records, guesses, correct = _guessed(metrics)
        level = levels(records, alpha)
        best = 0.0
        for place in np.argsort(-one_run_bound(guesses, correct, level), axis=None)[:PROMISING]:
            drawn, guessed, right = (int(values.flat[place]) for values in (records, guesses, correct))
            if 2 * right > guessed:
                best = max(best, bound(drawn, guessed, right, float(level.flat[place]), delta))
        return best

    return largest


def levels(records: np.ndarray, alpha: float) -> np.ndarray:
    """Return the level of every bound, [K, guesses] like `records`; the levels add up to α.

    All targets get equal shares of α. Of a target's share, the part `MOST` goes to the one of the `GUESSES` that
    recovers most of a Gaussian mechanism's ε, and the others divide the rest equally. The choice depends only on the
    number of records, which is known before any score.
    """
    first = np.where(records >= MANY, GUESSES.index((0.025, 0.025)), GUESSES.index((0.1, 0.1)))
    chosen = first == np.arange(len(GUESSES))
    shared: np.ndarray = alpha / len(records) * np.where(chosen, MOST, (1 - MOST) / (len(GUESSES) - 1))
    return shared


def _guessed(metrics: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return every target's numbers of records, guesses and right guesses, for all `GUESSES`, [K, guesses] each."""
    members, non_members, unscored = (
        metrics[name].to_numpy().astype(np.int64) for name in ("members", "non_members", "unscored")
    )
    counts = []
    for high, low in GUESSES:
        guesses = correct = np.zeros(len(metrics), dtype=np.int64)
        if high:
            right, wrong = (metrics[name].to_numpy().astype(np.int64) for name in called_columns(high))
            guesses, correct = guesses + right + wrong, correct + right
        if low:
            above, over = (metrics[name].to_numpy().astype(np.int64) for name in called_columns(1 - low))
            guesses = guesses + (members - above) + (non_members - over)
            correct = correct + (non_members - over)
        counts.append((guesses, correct))
    guesses, correct = (np.stack(parts, axis=1) for parts in zip(*counts, strict=True))
    return np.broadcast_to((members + non_members + unscored)[:, None], guesses.shape), guesses, correct


GUESSED = {share for high, low in GUESSES for share in (high, 1 - low) if 0 < share < 1}
"""Those of `SHARES` for which guesses are counted."""

METHODS: dict[str, Callable[[pl.DataFrame, float, float], float]] = {
    "one-run": _one_run,
    "one-run-f-dp": _by_curve(one_run_f_dp_epsilon),
    "one-run-gaussian": _by_curve(one_run_gaussian_epsilon),
    "clopper-pearson": _by_errors(clopper_pearson_epsilon),
    "gaussian": _by_errors(gaussian_epsilon),
}
"""The function from a metrics table, δ and α to the largest bound, by method. Methods whose bounds are proofs come first."""

ONE_RUN = ("one-run", "one-run-f-dp", "one-run-gaussian")
"""Methods that need membership by fair coins."""
