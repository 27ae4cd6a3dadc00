"""Compute membership scores of canaries, from a stored model, or from given outputs or scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from mia_audit.attacks.io.layouts import confidence_of
from mia_audit.canaries.draw import Coins
from mia_audit.errors import UserError, first_line, suggest
from mia_audit.evaluation.epsilon_bounds import bounds_table
from mia_audit.evaluation.files import Scored, metric_rows, metrics_table
from mia_audit.learners.protocol import Compute, open_learner
from mia_audit.pools.store import StoredRecords
from mia_audit.training.task import Records


def ask(architecture: Path, model: Path, asked: StoredRecords, compute: Compute) -> np.ndarray:
    """Return the confidence of a stored model (built-in, estimator or script) in the label of every canary, [m]."""
    _, learner = open_learner(architecture, compute)
    logits = learner.load(model).logits(Records.from_stored(asked))
    return confidence(np.asarray(logits), asked.labels, str(model))


def confidence(outputs: np.ndarray, labels: np.ndarray, where: str) -> np.ndarray:
    """Return z_y − logsumexp of the other logits, [m], from logits or probabilities [m, C] (rows that sum to 1)."""
    if outputs.ndim != 2 or len(outputs) != len(labels):
        raise UserError(
            f"{where}: outputs of shape {list(outputs.shape)}; expected one row for each of the {len(labels)} canaries"
        )
    values = outputs.astype(np.float64)
    if (values >= 0).all() and np.allclose(values.sum(axis=1), 1, atol=1e-3):
        with np.errstate(divide="ignore"):
            values = np.log(np.maximum(values, 1e-30))
    if not np.isfinite(values).all():
        raise UserError(f"{where}: an output is not finite")
    return confidence_of(values[:, None, :], labels, where)[:, 0]


def read_outputs(path: Path, labels: np.ndarray) -> np.ndarray:
    """Return the confidence from logits or probabilities in a .npy file [m, C]."""
    try:
        outputs = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; expected logits or probabilities, .npy [canaries, classes]") from None
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path}: not a NumPy array ({first_line(error)}); expected .npy [canaries, classes]") from None
    if outputs.dtype.kind not in "fiu":
        raise UserError(f"{path}: holds {outputs.dtype}, not numbers")
    return confidence(outputs, labels, str(path))


def read_given(path: Path, canaries: int) -> np.ndarray:
    """Return the scores [m] in a CSV file with columns `canary` (from 0, in the order of ask/) and `score` (high for members)."""
    expected = f"expected the columns `canary` (0 to {canaries - 1}) and `score`, one row for each canary"
    try:
        frame = pl.read_csv(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; {expected}") from None
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UserError(f"{path}: not a CSV file ({first_line(error)[:120]}); {expected}") from None
    for name in ("canary", "score"):
        if name not in frame.columns:
            raise UserError(f"{path}: no column '{name}': {suggest(name, frame.columns)}; {expected}")
        if not frame[name].dtype.is_numeric() or frame[name].null_count():
            raise UserError(f"{path}: column '{name}' holds text or empty cells; {expected}")
    frame = frame.sort("canary")
    if frame["canary"].to_list() != list(range(canaries)):
        raise UserError(f"{path}: {len(frame)} rows, with missing, repeated or unknown canaries; {expected}")
    scores: np.ndarray = frame["score"].cast(pl.Float64).to_numpy()
    if not np.isfinite(scores).all():
        raise UserError(f"{path}: a score is not finite; {expected}")
    return scores


def scored(scores: np.ndarray, coins: Coins, chosen: Sequence[str] = ()) -> pl.DataFrame:
    """Return the columns canary, kind, member and score, for `mia-audit epsilon-bound`.

    Each score is replaced by its rank within its kind, in (0, 1), since confidence differs between kinds regardless of
    membership. Ranks do not depend on coins, so bounds stay valid. The kinds in `chosen` (all by default) must be
    chosen before scores are seen.
    """
    known = list(dict.fromkeys(coins.kind.tolist()))
    for name in chosen:
        if name not in known:
            raise UserError(f"--kinds {name}: no canary of that kind: {suggest(name, known)}")
    ranks = np.empty(len(scores))
    for name in known:
        inside = np.flatnonzero(coins.kind == name)
        order = np.argsort(np.argsort(scores[inside], kind="stable"), kind="stable")
        ranks[inside] = (order + 0.5) / len(inside)
    columns = {
        "canary": np.arange(len(scores)),
        "kind": coins.kind,
        "member": coins.member.astype(np.int64),
        "score": ranks,
    }
    return pl.DataFrame(columns).filter(pl.col("kind").is_in(list(chosen) or known))


def bounds(table: pl.DataFrame, delta: float, confidence: float, gaussian: bool = False) -> pl.DataFrame:
    """Return one row per method with the lower bound on `epsilon` at `delta` and `confidence` from scored canaries."""
    key = ("canaries", "confidence", "none", False)
    member, score = (table[name].to_numpy()[:, None] for name in ("member", "score"))
    one = Scored(key, np.zeros(1, dtype=np.int32), table["canary"].to_numpy(), member == 1, score)
    metrics = metrics_table(metric_rows(one, (), confidence))
    bounded = bounds_table(metrics, delta, confidence, bernoulli=True, gaussian=gaussian)
    return bounded.select("method", "epsilon", "delta", "confidence").with_columns(pl.lit(len(table)).alias("canaries"))
