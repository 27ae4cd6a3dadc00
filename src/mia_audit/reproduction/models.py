"""The effect of fewer shadow models: AUC and TPR of every likelihood with a random subset of the models."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from mia_audit.attacks.engine.ratios import RATIOS, Ratio
from mia_audit.attacks.io.published import Published
from mia_audit.attacks.subsets import scored_with
from mia_audit.evaluation.authors_read_out import FPRS
from mia_audit.evaluation.metrics import metrics_of_columns
from mia_audit.signals.name import Reading, read_signal

if TYPE_CHECKING:
    from jaxtyping import Int

    from mia_audit.signals.name import Cells, Member

COUNTS = (4, 8, 12, 16, 24, 32)


def measure(published: Published, seed: int = 0) -> pl.DataFrame:
    """Return means and standard deviations over targets, each attacked within a random group of models, and the share of scored records.

    Records without a score get the score 0, a likelihood ratio of 1, so that all likelihoods are compared on the same records.
    """
    models = published.member.shape[1]
    measured = []
    for name in published.signals:
        if name == "loss":
            continue  # the confidence is a rescaled loss, and is measured instead
        signal = Reading(read_signal(name), [published.signals[name]]).scaled
        for count in (count for count in COUNTS if count < models):
            for likelihood, ratio in RATIOS.items():
                scores = scored_with(partial(_ratio, ratio, signal), published.member, count, seed)
                scored = float(np.mean(~np.isnan(scores)))
                stored = np.nan_to_num(scores, nan=0.0).astype(np.float32)
                measured.append(
                    {
                        "signal": name if read_signal(name).scale == "real" else f"log {name}",
                        "likelihood": likelihood,
                        "models": count,
                        "scored": scored,
                    }
                    | _summary(stored, published.member)
                )
    return pl.DataFrame(measured)


def _ratio(ratio: Ratio, signal: Cells, models: Int[np.ndarray, " n"], member: Member) -> Cells:
    """Return the scores of some models as targets, with only one another as shadow models."""
    return ratio(np.asfortranarray(signal[:, models]), member)


def _summary(scores: np.ndarray, member: np.ndarray) -> dict[str, Any]:
    metrics = metrics_of_columns(scores, member, FPRS)
    return {
        f"{name}_{part}": float(value)
        for name in ("auc", *(f"tpr_at_fpr_{fpr:g}" for fpr in FPRS))
        for part, value in (("mean", metrics[name].mean()), ("sd", metrics[name].std(ddof=1)))
    }
