"""Shapley values of any model from a stated number of evaluations: by permutations, and by regression on coalitions.

The value of a coalition S of features is the mean output for record x if the features outside S are replaced by those
of background records b. All records of a model share coalitions and background records, which are keyed by the model.
"""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.errors import UserError
from mia_audit.explain.shapley.box import Box
from mia_audit.seeds import generator

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from mia_audit.explain.shapley.box import ByQuantity

CELLS = 1 << 22
"""Largest number of values (rows × features) in one query of a model."""

EXACT = 12
"""Number of features up to which all coalitions are tried if the evaluations suffice."""


def permutation_shap(box: Box, evaluations: int, background: int) -> ByQuantity:
    """Return the mean marginal contributions over random orders of the features; each order is used in both directions.

    For each record at most `evaluations` outputs are computed: 2d per order and background record. Raises UserError if
    they are not enough for one order (Castro et al. 2009; both directions: Mitchell et al. 2022).
    """
    features = box.rows.shape[1]
    random = generator(*box.key, "permutations")
    others = _background(box, background)
    orders = evaluations // ((2 * features) * len(others))
    if not orders:
        _too_few("permutation_shap", evaluations, 2 * features * len(others))
    total = {quantity: np.zeros(box.rows.shape) for quantity in QUANTITIES}
    for _ in range(orders):
        order = random.permutation(features)
        forward = np.concatenate(
            [np.zeros((1, features), dtype=bool), np.tril(np.ones((features, features), dtype=bool))]
        )
        mask = np.zeros((2 * features, features), dtype=bool)  # both directions share the empty and the full coalition
        mask[: features + 1, order] = forward
        mask[features + 1 :] = ~mask[1:features][::-1]
        for quantity, values in _values(box, mask, others).items():
            steps = np.diff(values[:, : features + 1], axis=1)
            back = np.concatenate(
                [values[:, :1], values[:, features + 1 :], values[:, features : features + 1]], axis=1
            )
            total[quantity][:, order] += steps
            total[quantity][:, order[::-1]] += np.diff(back, axis=1)
    return {quantity: values / (2 * orders) for quantity, values in total.items()}


def kernel_shap(box: Box, evaluations: int, background: int) -> ByQuantity:
    """Return the coefficients of a weighted regression on coalitions, which sum to the change in output (Lundberg and Lee 2017).

    If d is at most `EXACT` and `evaluations` suffice for all 2^d coalitions with every background record, all are
    tried, and the values are exact. Otherwise coalitions and their complements are drawn by Shapley's kernel. Raises
    UserError if fewer than 2 (d + 1) coalitions can be tried.
    """
    features = box.rows.shape[1]
    others = _background(box, background)
    count = evaluations // len(others) - 2
    if count < 2 * features:
        _too_few("kernel_shap", evaluations, 2 * (features + 1) * len(others))
    inside, weights = _coalitions(features, count, box.key)
    mask = np.concatenate([np.zeros((1, features), dtype=bool), np.ones((1, features), dtype=bool), inside])
    # the last coefficient follows from the others: φ_d = f(x) − f(∅) − Σ φ_i
    design = inside[:, :-1].astype(np.float64) - inside[:, -1:]
    weighted = design * weights[:, None]
    solve = np.linalg.pinv(weighted.T @ design) @ weighted.T
    attributions = {}
    for quantity, values in _values(box, mask, others).items():
        whole = values[:, 1:2] - values[:, :1]
        target = values[:, 2:] - values[:, :1] - whole * inside[:, -1]
        first = target @ solve.T
        attributions[quantity] = np.concatenate([first, whole - first.sum(axis=1, keepdims=True)], axis=1)
    return attributions


QUANTITIES = ("logit", "probability")


def _coalitions(
    features: int, count: int, key: tuple[int | str, ...]
) -> tuple[Bool[np.ndarray, "m d"], Float[np.ndarray, " m"]]:
    """Return coalitions, excluding the empty and the full one, and their weights in the regression."""
    sizes = np.arange(1, features)
    if features <= EXACT and 2**features - 2 <= count:
        listed = [list(one) for size in sizes for one in combinations(range(features), int(size))]
        inside = np.zeros((len(listed), features), dtype=bool)
        for row, one in enumerate(listed):
            inside[row, one] = True
        held = inside.sum(axis=1)
        kernel = [(features - 1) / (comb(features, int(size)) * size * (features - size)) for size in held]
        return inside, np.array(kernel)
    random = generator(*key, "coalitions")
    chance = 1 / (sizes * (features - sizes))
    drawn = random.choice(sizes, count // 2, p=chance / chance.sum())
    ranks = np.argsort(random.random((len(drawn), features)), axis=1)
    half = ranks < drawn[:, None]
    inside = np.concatenate([half, ~half])
    return inside, np.ones(len(inside))


def _background(box: Box, count: int) -> np.ndarray:
    members = box.members()
    chosen = generator(*box.key, "background").permutation(len(members))[:count]
    return np.asarray(members[np.sort(chosen)])


def _values(
    box: Box, mask: Bool[np.ndarray, "m d"], others: Float[np.ndarray, "b d"]
) -> dict[str, Float[np.ndarray, "n m"]]:
    """Return the mean output of every record's class in every coalition, by quantity."""
    outputs = {quantity: np.empty((len(box.rows), len(mask))) for quantity in QUANTITIES}
    at_once = max(1, CELLS // box.rows.shape[1])
    together = max(1, at_once // (len(mask) * len(others)))
    for start in range(0, len(box.rows), together):
        rows = box.rows[start : start + together]
        mixed = np.where(mask[None, :, None], rows[:, None, None], others[None, None])
        flat = mixed.reshape(-1, rows.shape[1]).astype(box.rows.dtype)
        logits = np.concatenate([box.logits(flat[first : first + at_once]) for first in range(0, len(flat), at_once)])
        classes = np.repeat(box.classes[start : start + together], len(mask) * len(others))
        own = logits[np.arange(len(logits)), classes]
        largest = logits.max(axis=1)
        whole = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1))
        for quantity, values in (("logit", own), ("probability", np.exp(own - whole))):
            outputs[quantity][start : start + together] = values.reshape(len(rows), len(mask), -1).mean(axis=2)
    return outputs


def _too_few(name: str, evaluations: int, needed: int) -> None:
    raise UserError(
        f"explainers.shap_evaluations: {evaluations} evaluations per record are too few for {name}, which needs at least {needed};"
        " raise this number, or lower shap_background"
    )
