"""The screen of one model: its interval holds what the attack finds on other models of the recipe."""

import numpy as np
import pytest

from mia_audit.evaluation.metrics import tpr_at_fpr
from mia_audit.evaluation.screen import REFERENCED, Screened, against_references, beyond_quantile, screen

MODELS = 20


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    """The log probabilities of the label by 20 models of one recipe, [records, models], and their membership."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    records, labels = load_digits(return_X_y=True)
    records = records / 16
    members, scores = [], []
    for seed in range(MODELS):
        members.append(np.random.default_rng(seed).permutation(len(labels)) < len(labels) // 2)
        model = LogisticRegression(C=100, max_iter=60, tol=1e-2).fit(records[members[-1]], labels[members[-1]])
        scores.append(model.predict_log_proba(records)[np.arange(len(labels)), labels])
    return np.stack(scores, axis=1), np.stack(members, axis=1)


def assert_held(found: list[Screened], later: list[float]) -> None:
    """Assert that the interval of at least 18 models holds the mean over the others, and that 15 can tell."""
    assert [one.tpr for one in found] == pytest.approx(later)
    rest = (np.sum(later) - np.array(later)) / (MODELS - 1)
    assert sum(one.low <= mean <= one.high for one, mean in zip(found, rest, strict=True)) >= 18
    assert sum(not one.resolved for one in found) <= 5


def test_on_the_digits_it_holds_the_later_result(digits: tuple[np.ndarray, np.ndarray]) -> None:
    """20 models of one recipe: the interval of each, against the mean over the others."""
    pairs = [(score, member) for score, member in zip(digits[0].T, digits[1].T, strict=True)]
    found = [screen(score[member], score[~member], 0.01, 0.95) for score, member in pairs]
    assert_held(found, [tpr_at_fpr(score, member, 0.01) for score, member in pairs])


@pytest.mark.parametrize("references", [1, 2])
def test_with_references_it_holds_the_later_result_on_the_digits(
    digits: tuple[np.ndarray, np.ndarray], references: int
) -> None:
    """The same with the following models as references; every attack scores the records that it is said to."""
    scores, members = digits
    found: dict[str, list[Screened]] = {}
    later: dict[str, list[float]] = {}
    for target in range(MODELS):
        models = (target + np.arange(references + 1)) % MODELS
        log_p, member = scores[:, models], members[:, models]
        odds = log_p - np.log(-np.expm1(np.minimum(log_p, -1e-12)))
        for (attack, *_), score in against_references({"loss": -log_p, "confidence": odds}, member):
            known, inside = ~np.isnan(score), member[:, 0]
            np.testing.assert_array_equal(known, attack == "base" or ~member[:, 1:].all(axis=1))
            found.setdefault(attack, []).append(screen(score[known & inside], score[known & ~inside], 0.01, 0.95))
            later.setdefault(attack, []).append(tpr_at_fpr(score[known], inside[known], 0.01))
    assert list(found) == [attack for attack, *_ in REFERENCED]
    for attack, listed in found.items():
        assert_held(listed, later[attack])
    assert np.mean(later["loss-lira-offline"]) > 0.013, "one threshold on the loss finds 1 %"


def test_references_find_members_that_one_threshold_does_not() -> None:
    """Records of very different difficulty, which two other models know."""
    random = np.random.default_rng(0)
    member = random.random((4000, 3)) < 0.5
    loss = np.exp(random.normal(size=(4000, 1)) - 0.5 * member + 0.1 * random.normal(size=(4000, 3)))
    inside = member[:, 0]
    plain = screen(-loss[inside, 0], -loss[~inside, 0], 0.01, 0.95)
    referenced = dict(against_references({"loss": loss, "confidence": -np.log(np.expm1(loss))}, member))
    score = referenced["loss-lira-offline", "confidence", "pooled"]
    known = ~np.isnan(score)
    found = screen(score[known & inside], score[known & ~inside], 0.01, 0.95)
    assert found.low > plain.tpr and found.tpr > 2 * plain.tpr and found.verdict().startswith("leaks")


@pytest.mark.parametrize(("shift", "fpr"), [(0.0, 0.01), (1.0, 0.01), (1.0, 0.1)])
def test_it_holds_the_true_rate(shift: float, fpr: float) -> None:
    from scipy.stats import norm

    truth = float(norm.sf(norm.isf(fpr) - shift))
    held = 0
    for seed in range(300):
        random = np.random.default_rng(seed)
        one = screen(random.normal(size=300) + shift, random.normal(size=600), fpr, 0.95)
        held += one.low <= truth <= one.high
    assert held >= 285


def test_few_non_members_cannot_tell() -> None:
    random = np.random.default_rng(0)
    one = screen(random.normal(size=100) + 9, random.normal(size=100), 0.01, 0.95)
    assert (one.resolved, one.low) == (False, 0.0) and one.verdict().startswith("cannot tell")
    assert screen(random.normal(size=100) + 9, random.normal(size=600), 0.01, 0.95).verdict().startswith("leaks")
    assert "no evidence of safety" in screen(random.normal(size=100), random.normal(size=600), 0.01, 0.95).verdict()
    assert screen(np.ones(5), np.ones(600), 0.01, 0.95).tpr == 0, "ties are no hits"


def test_quantiles_find_members_that_one_threshold_does_not() -> None:
    """Records of very different difficulty: a member stands out among those like it alone."""
    random = np.random.default_rng(0)
    kind = random.integers(0, 2, 2000)
    member = random.random(2000) < 0.5
    values = random.normal(size=2000) + 3 * member + 40 * kind
    features = kind[:, None].astype(float)
    plain = screen(values[member], values[~member], 0.05, 0.95)
    inside, outside = beyond_quantile(features, values, member, 0.05, 0)
    conditional = screen(inside, outside, 0.05, 0.95)
    assert conditional.tpr > plain.tpr + 0.2
    none = beyond_quantile(features, random.normal(size=2000), member, 0.05, 0)
    assert screen(*none, 0.05, 0.95).low < 0.05
