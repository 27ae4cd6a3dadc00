"""The ladder's first rung: a screen of one model of a setting, without any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.config.expand import Setting, draw_of
from mia_audit.config.schema import Audit
from mia_audit.explain.catalogue import GRADIENT

if TYPE_CHECKING:
    from mia_audit.evaluation.screen import Screened

ONE = {"shadows_per_job": 1, "blocks_explained_per_job": 1}
"""The jobs that train and explain the first model alone; larger ones find it trained."""


MOST_COORDINATES = 1000
"""Coordinates of a record beyond which quantiles are learned for every class alone."""


def stamp(setting: Setting, results: Path) -> Path:
    """Return what the workflow makes where it explains the setting's first model alone."""
    return results / setting.path / "signals" / GRADIENT / ".jobs" / "000-000"


def screened(audit: Audit, setting: Setting, results: Path) -> Iterator[tuple[str, Screened]]:
    """Yield a screen by one threshold on the loss, and one by a threshold that depends on the record, at every FPR.

    Non-members are the pool's records that the model was not trained on. Nothing where the model diverged.
    """
    import numpy as np

    from mia_audit.evaluation.screen import beyond_quantile, screen
    from mia_audit.pools.membership import draw_training_sets
    from mia_audit.pools.store import read_records
    from mia_audit.storage import read_table

    table = read_table(results / setting.path / "signals" / GRADIENT / "shadow-0.parquet", "signals", ["loss", "label"])
    if not len(table):
        return
    pool = results / "pools" / setting.dataset
    draw = draw_of(audit, setting.dataset)
    member = draw_training_sets(draw, pool / "records.parquet", setting.dataset, audit.seed, [0])[:, 0]
    score = -table["loss"].to_numpy().astype(np.float64)
    stored = read_records(pool).data
    coordinates = int(np.prod(stored.shape[1:]))
    data = np.asarray(stored).reshape(len(score), -1) if coordinates <= MOST_COORDINATES else np.empty((len(score), 0))
    features = np.column_stack([data, table["label"].to_numpy()]).astype(np.float32)
    for fpr in audit.evaluation.fprs:
        yield "one threshold on the loss", screen(score[member], score[~member], fpr, audit.evaluation.confidence)
        by_record = beyond_quantile(features, score, member, fpr, audit.seed % 2**32)
        yield "a threshold for every record", screen(*by_record, fpr, audit.evaluation.confidence)
