"""Shapley values of models without gradients: of any model from a stated number of evaluations, of trees and of linear models.

The value of a coalition S of features is the mean output for record x if the features outside S are replaced by those
of background records b. All records of a model share coalitions and background records, which are keyed by the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.errors import UserError, first_line
from mia_audit.seeds import generator

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    Rows = Float[np.ndarray, "n d"]
    ByQuantity = Mapping[str, Float[np.ndarray, "n d"]]
    """Attributions by the quantity that they explain: `logit`, `probability`."""


@dataclass(frozen=True)
class Box:
    """A model without gradients, and the rows and classes to explain.

    `classes` has the explained class of each of the `rows`, numbered from 0; `estimator` is the fitted estimator, if
    the model is one. `known` lists the pool's classes that occur in its training set. `members` returns its training
    rows, for explainers that need them. Random draws are keyed by `key`. Rows are in the pool's form, and `prepare`
    returns them as the estimator reads them.
    """

    rows: Rows
    classes: Int[np.ndarray, " n"]
    logits: Callable[[Rows], Float[np.ndarray, "m C"]]
    members: Callable[[], Rows]
    key: tuple[int | str, ...]
    estimator: Any = None
    known: Int[np.ndarray, " c"] | None = None
    prepare: Callable[[Rows], Any] = lambda rows: rows

    def column(self, model: str) -> Int[np.ndarray, " n"]:
        """Return the column of every explained class in the estimator's outputs; UserError for a class without training records."""
        if self.known is None:
            return self.classes
        places = np.searchsorted(self.known, self.classes)
        known = self.known[np.minimum(places, len(self.known) - 1)] == self.classes
        if not known.all():
            raise UserError(
                f"{model} has no output for class {self.classes[~known][0]}, because it was trained on no record of that class;"
                " set explained_class: predicted"
            )
        return np.asarray(places)


def of_class(values: np.ndarray, box: Box, model: str) -> Rows:
    """Return the attributions of every row's explained class.

    `values` are those of all classes, [n, d, C]; for two classes, those of the second, [n, d].
    """
    columns = box.column(model)
    if values.ndim == 2:
        return np.where(columns[:, None] == 1, values, -values)
    return np.asarray(np.take_along_axis(values, columns[:, None, None], axis=2)[:, :, 0])


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


QUANTITIES = ("logit", "probability", "log_probability")


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
        for quantity, values in zip(QUANTITIES, (own, np.exp(own - whole), own - whole), strict=True):
            outputs[quantity][start : start + together] = values.reshape(len(rows), len(mask), -1).mean(axis=2)
    return outputs


def _too_few(name: str, evaluations: int, needed: int) -> None:
    raise UserError(
        f"explainers.shap_evaluations: {evaluations} evaluations per record are too few for {name}, which needs at least {needed};"
        " raise this number, or lower shap_background"
    )


INSTALL = "install it with: pip install 'mia-audit[shap]'"


def tree_shap(box: Box) -> ByQuantity:
    """Return exact Shapley values of trees: for a missing feature both branches are followed, weighted by training records (Lundberg et al. 2020).

    The explained quantity is the margin of boosted trees (`logit`), and the votes of forests and single trees
    (`probability`). LightGBM and XGBoost use their own implementation, which is faster than the shap library's
    TreeExplainer. Raises UserError for other models.
    """
    estimator, rows, _ = last_step(box, background=False)
    name = type(estimator).__name__
    if hasattr(estimator, "booster_"):
        # LightGBM's own interface uses the estimator's number of threads
        values = _by_class(estimator.predict(rows, pred_contrib=True), rows.shape[1])
        return {"logit": of_class(values, box, name)}
    if hasattr(estimator, "get_booster"):
        import xgboost

        matrix = xgboost.DMatrix(rows, nthread=estimator.n_jobs, enable_categorical=True)
        contributions = estimator.get_booster().predict(matrix, pred_contribs=True)
        values = contributions[:, :, :-1].transpose(0, 2, 1) if contributions.ndim == 3 else contributions[:, :-1]
        return {"logit": of_class(values.astype(np.float64), box, name)}
    votes = hasattr(estimator, "predict_proba") and not hasattr(estimator, "decision_function")  # else boosted
    quantity = "probability" if votes else "logit"
    return {quantity: of_class(_explained(estimator, rows, name), box, name)}


def last_step(box: Box, background: bool = True) -> tuple[Any, Any, Any]:
    """Return the fitted estimator, the rows and the training rows; for a pipeline, its last step and the inputs of that step."""
    estimator = box.estimator
    if estimator is None:
        raise UserError(
            "explainers.methods: tree_shap and linear_shap explain only estimators, but this model is not one; choose permutation_shap"
        )
    rows, members = (box.prepare(part) for part in (box.rows, box.members() if background else box.rows[:0]))
    if hasattr(estimator, "steps"):
        before = estimator[:-1]
        rows = _dense(before.transform(rows))
        members = _dense(before.transform(members)) if len(members) else members
        estimator = estimator[-1]
    return estimator, rows, members


def _dense(rows: Any) -> Rows:
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)


def _by_class(values: Any, features: int) -> np.ndarray:
    """Return LightGBM's contributions, [n, d] or [n, d, C], without the last column of each class, which is the expected value."""
    values = _dense(values).astype(np.float64)
    if values.shape[1] == features + 1:
        return np.asarray(values[:, :-1])
    return np.asarray(values.reshape(len(values), -1, features + 1)[:, :, :-1].transpose(0, 2, 1))


def _explained(estimator: Any, rows: Rows, name: str) -> np.ndarray:
    try:
        import shap
    except ImportError:
        raise UserError(f"explainers.methods: tree_shap of a {name} needs the shap library; {INSTALL}") from None
    try:
        values = shap.TreeExplainer(estimator).shap_values(rows, check_additivity=False)
    except Exception as error:  # the library raises various errors for unknown models
        raise UserError(
            f"explainers.methods: tree_shap explains only trees, but the shap library does not support a {name}: {first_line(error)}"
        ) from None
    stacked = np.stack(values, axis=2) if isinstance(values, list) else np.asarray(values)
    return stacked.astype(np.float64)


def linear_shap(box: Box) -> ByQuantity:
    """Return w ⊙ (x − mean of the training rows), which explains the logit (Lundberg and Lee 2017, corollary 1); UserError for other models."""
    estimator, rows, background = last_step(box)
    name = type(estimator).__name__
    weights = getattr(estimator, "coef_", None)
    if weights is None:
        raise UserError(f"explainers.methods: linear_shap explains only linear models, but a {name} has no coef_")
    distances = np.asarray(rows) - np.asarray(background).mean(axis=0)
    weights = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    values = distances[:, :, None] * weights.T[None] if len(weights) > 1 else distances * weights[0]
    return {"logit": of_class(values, box, name)}
