"""The authors' score and read-out against their definitions."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from mia_audit.evaluation import tpr_at_fpr
from mia_audit.reproduction.published import their_read_out, their_score


def draw(records=400, models=6):
    rng = np.random.default_rng(0)
    member = rng.random((records, models)) < 0.5
    member[:, :2], member[:, 2:4] = True, False
    return rng.normal(size=(records, 1)) * 5 + 100 + rng.normal(size=member.shape) - member, member


def test_their_score_has_one_standard_deviation_for_all_means():
    signal, member = draw()
    scores = their_score(signal, member)
    for target in range(signal.shape[1]):
        others = np.arange(signal.shape[1]) != target
        inside, outside = (
            np.array([row[others & (here == side)].mean() for row, here in zip(signal, member, strict=True)])
            for side in (True, False)
        )
        sd = np.concatenate([inside, outside]).std()
        x = signal[:, target]
        np.testing.assert_allclose(scores[:, target], ((x - outside) ** 2 - (x - inside) ** 2) / (2 * sd**2), rtol=1e-9)


def test_their_read_out_keeps_the_auc_and_reports_non_members_that_stand_out():
    """A tenth of the non-members is recognised for sure and no member is: their TPR at 0.1 % is that tenth."""
    rng = np.random.default_rng(1)
    member = rng.random(20_000) < 0.5
    scores = rng.normal(size=20_000) - 100 * (~member & (rng.random(20_000) < 0.1))
    tprs, auc = their_read_out(scores, member)
    assert auc == pytest.approx(roc_auc_score(member, scores), abs=1e-4)
    assert tprs[0] > 0.09 and tpr_at_fpr(scores, member, 0.001) < 0.003
