"""Shapley values of models without gradients, against brute force over all coalitions and against the shap library."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mia_audit.errors import UserError
from mia_audit.explain.shapley import Box, kernel_shap, linear_shap, permutation_shap, tree_shap

FEATURES = 4
RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(size=(60, FEATURES))
CLASSES = RANDOM.integers(0, 3, 60)
BINARY = (ROWS[:, 0] + ROWS[:, 1] * ROWS[:, 2] > 0).astype(int)
WEIGHTS = RANDOM.normal(size=(2 * FEATURES, 3))


def logits(rows: np.ndarray) -> np.ndarray:
    """A model with interactions of pairs."""
    return np.concatenate([rows, rows * np.roll(rows, 1, axis=1)], axis=1) @ WEIGHTS


def box(estimator: Any = None, known: Any = None, classes: np.ndarray = CLASSES) -> Box:
    return Box(ROWS[:6], classes[:6], logits, lambda: ROWS[10:], (0, "test"), estimator, known)


def by_hand(one: Box, background: np.ndarray) -> np.ndarray:
    """Average the marginal contributions over all orders of the features."""
    found = np.zeros_like(one.rows)
    orders = list(permutations(range(FEATURES)))
    for row, (record, label) in enumerate(zip(one.rows, one.classes, strict=True)):
        for order in orders:
            mixed = background.copy()
            before = one.logits(mixed)[:, label].mean()
            for feature in order:
                mixed[:, feature] = record[feature]
                after = one.logits(mixed)[:, label].mean()
                found[row, feature] += (after - before) / len(orders)
                before = after
    return found


def test_all_coalitions_give_shapley_values() -> None:
    one = box()
    background = one.members()
    found = kernel_shap(one, 16 * len(background), len(background))
    np.testing.assert_allclose(found["logit"], by_hand(one, background), atol=1e-9)
    assert np.abs(found["probability"]).max() <= 1


def test_drawn_orders_come_close_and_sum_exactly() -> None:
    one = box()
    exact = by_hand(one, one.members())
    background = len(one.members())
    change = np.take_along_axis(logits(one.rows) - logits(one.members()).mean(axis=0), one.classes[:, None], axis=1)
    for found in (
        permutation_shap(one, 2 * FEATURES * background * 40, background),
        kernel_shap(one, 10 * background, 50),
    ):
        np.testing.assert_allclose(found["logit"].sum(axis=1), change[:, 0], atol=1e-9)
    orders = permutation_shap(one, 2 * FEATURES * background * 40, background)["logit"]
    assert np.abs(orders - exact).max() < 0.3 * np.abs(exact).max()
    np.testing.assert_array_equal(orders, permutation_shap(one, 2 * FEATURES * background * 40, background)["logit"])


@pytest.mark.parametrize("explain", [kernel_shap, permutation_shap])
def test_too_few_evaluations_are_refused(explain: Any) -> None:
    with pytest.raises(
        UserError, match=r"shap_evaluations: 30 evaluations per record are too few for .* needs at least \d+"
    ):
        explain(box(), 30, 5)


def test_linear_models_are_explained_by_their_weights() -> None:
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(ROWS, CLASSES)
    found = linear_shap(box(model, model.classes_))["logit"]
    margins = model.decision_function(ROWS)
    change = margins[np.arange(6), CLASSES[:6]] - margins[10:].mean(axis=0)[CLASSES[:6]]
    np.testing.assert_allclose(found.sum(axis=1), change, atol=1e-9)
    binary = LogisticRegression().fit(ROWS, BINARY)
    found = linear_shap(box(binary, binary.classes_, BINARY))["logit"]
    sign = np.where(BINARY[:6] == 1, 1, -1)
    np.testing.assert_allclose(found, sign[:, None] * (ROWS[:6] - ROWS[10:].mean(axis=0)) * binary.coef_[0])


def test_a_model_of_another_kind_is_refused() -> None:
    with pytest.raises(
        UserError, match="linear_shap explains only linear models, but a RandomForestClassifier has no coef_"
    ):
        linear_shap(box(RandomForestClassifier(2).fit(ROWS, CLASSES), np.arange(3)))
    with pytest.raises(UserError, match="explain only estimators, but this model is not one; choose permutation_shap"):
        tree_shap(box())


def test_a_class_without_training_records_has_no_output() -> None:
    some = CLASSES != 2
    model = RandomForestClassifier(2, random_state=0).fit(ROWS[some], CLASSES[some])
    with pytest.raises(UserError, match="no output for class 2, because it was trained on no record of that class"):
        box(model, model.classes_, np.full(60, 2)).column("a forest")


@pytest.mark.parametrize("labels", [BINARY, CLASSES], ids=["two classes", "three"])
def test_trees_sum_to_the_change_in_their_own_output(labels: np.ndarray) -> None:
    pytest.importorskip("shap")
    forest = RandomForestClassifier(5, random_state=0).fit(ROWS, labels)
    found = tree_shap(box(forest, forest.classes_, labels))
    shares = forest.predict_proba(ROWS[:6])[np.arange(6), labels[:6]]
    assert set(found) == {"probability"}
    assert np.ptp((shares - found["probability"].sum(axis=1))[labels[:6] == labels[0]]) < 1e-9, (
        "but for a constant of the class"
    )
    if labels is BINARY:
        boosted = GradientBoostingClassifier(n_estimators=5, random_state=0).fit(ROWS, labels)
        found = tree_shap(box(boosted, boosted.classes_, labels))
        margin = boosted.decision_function(ROWS[:6]) * np.where(labels[:6] == 1, 1, -1)
        assert np.ptp((margin - found["logit"].sum(axis=1))[labels[:6] == labels[0]]) < 1e-6


@pytest.mark.parametrize("labels", [BINARY, CLASSES], ids=["two classes", "three"])
@pytest.mark.parametrize("name", ["lightgbm:LGBMClassifier", "xgboost:XGBClassifier"])
def test_boosted_trees_explain_themselves_as_the_shap_library_does(name: str, labels: np.ndarray) -> None:
    package, _, kind = name.partition(":")
    library, shap = pytest.importorskip(package), pytest.importorskip("shap")
    quiet = {"verbose": -1, "min_child_samples": 5} if package == "lightgbm" else {"verbosity": 0}
    model = getattr(library, kind)(n_estimators=4, n_jobs=1, **quiet).fit(ROWS, labels)
    found = tree_shap(box(model, model.classes_, labels))["logit"]
    values = np.asarray(shap.TreeExplainer(model).shap_values(ROWS[:6]))
    own = (
        values[np.arange(6), :, labels[:6]] if values.ndim == 3 else values * np.where(labels[:6] == 1, 1, -1)[:, None]
    )
    np.testing.assert_allclose(found, own, atol=1e-5)
