"""The ladder's first rungs: screens of one model of a setting, with no, one or two other models as references."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.config.expand import Setting, draw_of
from mia_audit.config.schema import Audit
from mia_audit.explain.catalogue import GRADIENT

if TYPE_CHECKING:
    import pyarrow as pa

    from mia_audit.evaluation.screen import Screened
    from mia_audit.signals.name import Member

MOST_COORDINATES = 1000
"""Number of coordinates above which quantiles are learned for each class separately."""


@dataclass(frozen=True)
class Screen:
    """An attack on the first model at one FPR, with or without references, and the share of records that the attack scores."""

    attack: str
    signal: str
    likelihood: str
    estimate: Screened
    scored: float = 1.0

    def sentence(self) -> str:
        """Return a sentence with the estimate and its meaning."""
        one, of = self.estimate, "" if self.scored == 1 else f" among the {self.scored:.0%} of records that it scores"
        return (
            f"{self.attack}: TPR at {one.fpr:g}{of} is {one.tpr:.4f}, {one.low:.4f} to {one.high:.4f}: {one.verdict()}"
        )


def jobs_of(models: int) -> dict[str, int]:
    """Return the keys of `compute` with which one job trains only the first models. Later, larger jobs reuse these models."""
    return {"shadows_per_job": models, "blocks_explained_per_job": 1}


def stamp(setting: Setting, results: Path, models: int) -> Path:
    """Return the file that the workflow writes when the signals of the setting's first models are computed."""
    return results / setting.path / "signals" / GRADIENT / ".jobs" / f"000-{models - 1:03d}"


def screened(audit: Audit, setting: Setting, results: Path, references: int) -> Iterator[Screen]:
    """Yield the screens of a setting's first model at every FPR.

    Without references, a screen has one threshold on the loss, or one that depends on the record. Non-members are the
    pool's records that the model was not trained on. Yields nothing if the model, or all of its references, diverged.
    """
    tables = {shadow: _signals(results, setting, shadow) for shadow in range(references + 1)}
    there = {shadow: table for shadow, table in tables.items() if len(table)}
    if 0 not in there or len(there) == 1 < len(tables):
        return
    from mia_audit.pools.membership import draw_training_sets

    pool, draw = results / "pools" / setting.dataset, draw_of(audit, setting.dataset)
    member = draw_training_sets(draw, pool / "records.parquet", setting.dataset, audit.seed, list(there))
    if references:
        yield from _with_references(audit, list(there.values()), member)
    else:
        yield from _alone(audit, pool, there[0], member)


def _signals(results: Path, setting: Setting, shadow: int) -> pa.Table:
    from mia_audit.storage import read_table

    path = results / setting.path / "signals" / GRADIENT / f"shadow-{shadow}.parquet"
    return read_table(path, "signals", ["loss", "confidence", "label"])


def _alone(audit: Audit, pool: Path, table: pa.Table, members: Member) -> Iterator[Screen]:
    import numpy as np

    from mia_audit.evaluation.screen import beyond_quantile, screen
    from mia_audit.pools.store import read_records

    member, confidence = members[:, 0], audit.evaluation.confidence
    score = -table["loss"].to_numpy().astype(np.float64)
    stored = read_records(pool).data
    coordinates = int(np.prod(stored.shape[1:]))
    data = np.asarray(stored).reshape(len(score), -1) if coordinates <= MOST_COORDINATES else np.empty((len(score), 0))
    features = np.column_stack([data, table["label"].to_numpy()]).astype(np.float32)
    for fpr in audit.evaluation.fprs:
        plain = screen(score[member], score[~member], fpr, confidence)
        yield Screen("one threshold on the loss", "loss", "none", plain)
        by_record = beyond_quantile(features, score, member, fpr, audit.seed % 2**32)
        yield Screen("a threshold for every record", "loss", "none", screen(*by_record, fpr, confidence))


def _with_references(audit: Audit, tables: list[pa.Table], member: Member) -> Iterator[Screen]:
    import numpy as np

    from mia_audit.evaluation.screen import against_references, screen

    columns = ("loss", "confidence")
    signals = {name: np.stack([one[name].to_numpy() for one in tables], axis=1).astype(np.float64) for name in columns}
    scored = list(against_references(signals, member))
    for fpr in audit.evaluation.fprs:
        for key, scores in scored:
            known, inside = ~np.isnan(scores), member[:, 0]
            groups = scores[known & inside], scores[known & ~inside]
            if all(map(len, groups)):
                yield Screen(*key, screen(*groups, fpr, audit.evaluation.confidence), float(known.mean()))
