"""What the published code of Huang et al. 2024 calls a TPR."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from mia_audit.evaluation import tpr_at_fpr
from mia_audit.evaluation.metrics import authors_read_out


def test_it_keeps_the_auc_and_reports_non_members_that_stand_out():
    """A tenth of the non-members is recognised for sure and no member is: their TPR at 0.1 % is that tenth."""
    rng = np.random.default_rng(1)
    member = rng.random(20_000) < 0.5
    scores = rng.normal(size=20_000) - 100 * (~member & (rng.random(20_000) < 0.1))
    tprs, auc = authors_read_out(scores, member)
    assert auc == pytest.approx(roc_auc_score(member, scores), abs=1e-4)
    assert tprs[0] > 0.09 and tpr_at_fpr(scores, member, 0.001) < 0.003
    scores[:100] = np.nan
    assert authors_read_out(scores, member) == authors_read_out(scores[100:], member[100:])
