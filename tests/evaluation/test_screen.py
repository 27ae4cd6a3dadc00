"""The screen of one model: its interval holds what the attack finds on other models of the recipe."""

import numpy as np
import pytest

from mia_audit.evaluation.metrics import tpr_at_fpr
from mia_audit.evaluation.screen import beyond_quantile, screen


def test_on_the_digits_it_holds_the_later_result() -> None:
    """20 models of one recipe: the interval of each, against the mean over the others."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    records, labels = load_digits(return_X_y=True)
    records = records / 16
    found, later = [], []
    for seed in range(20):
        member = np.random.default_rng(seed).permutation(len(labels)) < len(labels) // 2
        model = LogisticRegression(C=100, max_iter=60, tol=1e-2).fit(records[member], labels[member])
        score = model.predict_log_proba(records)[np.arange(len(labels)), labels]
        found.append(screen(score[member], score[~member], 0.01, 0.95))
        later.append(tpr_at_fpr(score, member, 0.01))
    assert [one.tpr for one in found] == pytest.approx(later)
    rest = (np.sum(later) - np.array(later)) / 19
    assert sum(one.low <= mean <= one.high for one, mean in zip(found, rest, strict=True)) >= 18
    assert sum(not one.resolved for one in found) <= 5


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
