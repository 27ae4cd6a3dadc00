"""Empirical ε: lower bounds on the leak of a training run, proved by an attack at a stated confidence.

All bounds are one-sided at level 1 − α, and 0 where the attack proves nothing. Adjacency is add/remove of one record.

The choice of the records called members must not depend on the membership. For each target these are the records with
the highest scores; their share of all records is fixed here. A target's scores come from its own outputs and from the
other models' membership. If nothing leaks, its own membership is therefore independent of the records called, and each
target's bound exceeds 0 with probability at most its level. Bounds are combined over shares, targets and attacks by
Bonferroni's correction, which allows any dependence. Targets share their shadow models, so pooling their records as
independent trials would claim leaks that do not exist.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.special import betainc, betaincinv, ndtr, ndtri

from mia_audit.errors import UserError, few
from mia_audit.evaluation.files import KEYS, Scored, of_drawn_unit
from mia_audit.evaluation.metrics import called_columns
from mia_audit.privacy.gaussian import epsilon_of_gdp
from mia_audit.storage.tables import CONTRACTS

Count = int | np.ndarray

RANGE = 200.0
"""The search for a bound stops at this ε."""

LARGEST_MU = 20.0
"""The search for a bound stops at this μ of Gaussian DP, whose ε exceeds `LARGEST`."""

GRID = 64
"""Number of parameters that are tried at once."""


def clopper_pearson_epsilon(
    true_positives: Count, false_positives: Count, members: Count, non_members: Count, alpha: float, delta: float = 0.0
) -> float:
    """Bound ε from the errors at one threshold fixed beforehand (Nasr et al. 2021; Zanella-Béguelin et al. 2023).

    Both error rates are bounded above at 1 − α/2 each (Clopper and Pearson): any (ε, δ)-DP training run has 1 − FNR ≤
    e^ε FPR + δ, and likewise with the errors exchanged. For arrays of counts, return the largest bound; each bound has
    level 1 − α.
    """
    fnr, fpr = _error_bounds(true_positives, false_positives, members, non_members, alpha)
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = [np.log(np.maximum(1 - above - delta, 0) / below) for above, below in ((fnr, fpr), (fpr, fnr))]
    return max(0.0, *(float(values.max()) for values in bounds))


def gaussian_epsilon(
    true_positives: Count, false_positives: Count, members: Count, non_members: Count, alpha: float, delta: float
) -> float:
    """Bound ε at δ from the errors at one threshold fixed beforehand, if the mechanism is Gaussian (Nasr et al. 2023).

    The errors bound μ of Gaussian DP, μ ≥ Φ⁻¹(1 − FPR) − Φ⁻¹(FNR); ε is that of μ-GDP at δ. The bound is not valid for
    training without noise, or with other noise. For arrays of counts, return the largest bound; each bound has level 1
    − α.
    """
    fnr, fpr = _error_bounds(true_positives, false_positives, members, non_members, alpha)
    return min(RANGE, epsilon_of_gdp(max(0.0, float(np.max(ndtri(1 - fpr) - ndtri(fnr)))), delta))


def one_run_epsilon(records: int, guesses: int, correct: int, alpha: float, delta: float) -> float:
    """Bound ε from one training run on fair coins, for `bernoulli` membership only (Steinke et al. 2023, theorem 5.2).

    A fair coin decided the membership of each of the `records`. For `guesses` of them the membership was guessed, and
    `correct` guesses were right. The number of guesses on either side must have been fixed before the scores were seen.
    """
    if correct == 0 or _one_run_p_value(records, guesses, correct, 0.0, delta) > alpha:
        return 0.0
    return _largest(lambda epsilon: _one_run_p_value(records, guesses, correct, epsilon, delta) < alpha)


def one_run_f_dp_epsilon(records: int, guesses: int, correct: int, alpha: float, delta: float) -> float:
    """Bound ε from one training run on fair coins by the trade-off curve of (ε, δ)-DP itself (Mahloujifar et al. 2024, algorithm 3).

    It has the same assumptions as `one_run_epsilon` but allows a larger δ; `one_run_epsilon` multiplies δ by the number
    of records.
    """

    def curve(shown: np.ndarray, epsilon: np.ndarray) -> np.ndarray:
        low: np.ndarray = np.exp(-epsilon) * (shown - delta)
        return np.asarray(np.maximum(low, 1 - np.exp(epsilon) * (1 - shown) - delta))

    return _largest_refuted(records, guesses, correct, alpha=alpha, curve=curve, largest=RANGE)


def one_run_gaussian_epsilon(records: int, guesses: int, correct: int, alpha: float, delta: float) -> float:
    """Bound ε at δ from one training run on fair coins, if the mechanism is Gaussian (Mahloujifar et al. 2024, algorithm 3).

    The guesses refute μ-Gaussian DP up to some μ. The bound is the ε of that μ at δ.
    """

    def curve(shown: np.ndarray, mu: np.ndarray) -> np.ndarray:
        return np.asarray(ndtr(ndtri(np.clip(shown, 0, 1)) - mu))

    return min(
        RANGE,
        epsilon_of_gdp(
            _largest_refuted(records, guesses, correct, alpha=alpha, curve=curve, largest=LARGEST_MU), delta
        ),
    )


def _largest_refuted(
    records: int,
    guesses: int,
    correct: int,
    alpha: float,
    curve: Callable[[np.ndarray, np.ndarray], np.ndarray],
    largest: float,
) -> float:
    """Return the largest parameter at which a claimed curve is refuted by `correct` right guesses, at level α.

    `curve(x, parameter)` is the claim's inverse blow-up: the smallest probability that an event can have without the
    record if it has probability x with it. The parameter is searched on successive grids of `GRID` values. Each grid
    refines the interval between the largest refuted value of the previous grid and the next value.
    """
    low, high = 0.0, largest
    while high - low > 1e-9 * max(1.0, low):
        grid = np.linspace(low, high, GRID)
        refuted = _refuted(records, guesses, correct, alpha=alpha, curve=curve, parameters=grid)
        if not refuted[0]:
            return 0.0
        if refuted.all():
            return high
        first = int(np.argmin(refuted))
        low, high = float(grid[first - 1]), float(grid[first])
    return low


def _refuted(
    records: int,
    guesses: int,
    correct: int,
    alpha: float,
    curve: Callable[[np.ndarray, np.ndarray], np.ndarray],
    parameters: np.ndarray,
) -> np.ndarray:
    """Return which claims are refuted: those that imply a larger expected number of guesses than were made.

    R and H bound the expected right and wrong guesses per record in runs with at least i right guesses, for i from
    `correct` down.
    """
    right = np.full(len(parameters), alpha * correct / records)
    wrong = np.full(len(parameters), alpha * (guesses - correct) / records)
    for place in range(correct - 1, -1, -1):
        more = np.maximum(wrong, curve(right, parameters))
        right = np.minimum(right + place / (guesses - place) * (more - wrong), 1.0)
        wrong = more
    return np.asarray(right + wrong > guesses / records)


def one_run_bound(guesses: np.ndarray, correct: np.ndarray, alpha: float | np.ndarray) -> np.ndarray:
    """Return the bounds of `one_run_epsilon` at δ = 0, in closed form and for arrays; no bound with δ > 0 is larger."""
    right = np.maximum(correct, 1)
    accuracy = np.where(correct > 0, betaincinv(right, guesses - np.minimum(right, guesses) + 1, alpha), 0.0)
    return np.asarray(np.maximum(np.log(np.maximum(accuracy, 0.5)) - np.log1p(-np.maximum(accuracy, 0.5)), 0))


def _error_bounds(
    tp: Count, fp: Count, members: Count, non_members: Count, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the upper bounds of FNR and FPR, jointly at 1 − α."""
    return _upper(np.subtract(members, tp), members, alpha / 2), _upper(fp, non_members, alpha / 2)


def _upper(errors: Count, trials: Count, alpha: float) -> np.ndarray:
    left = np.subtract(trials, errors)
    return np.where(left <= 0, 1.0, betaincinv(np.add(errors, 1), np.maximum(left, 1), 1 - alpha))


def _one_run_p_value(records: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Bound the probability of at least this many correct guesses under (ε, δ)-DP: a binomial tail, plus what δ can add to it."""
    accuracy = 1 / (1 + math.exp(-epsilon))
    counts = np.arange(correct, 0, -1) if delta else np.array([correct])
    tails = betainc(counts, guesses - counts + 1, accuracy)  # the probabilities of at least so many
    if delta == 0.0:
        return float(tails[0])
    below = (np.append(tails[1:], 1.0) - tails[0]) / np.arange(1, correct + 1)
    return min(float(tails[0] + below.max() * delta * 2 * records), 1.0)


def _largest(holds: Callable[[float], bool]) -> float:
    """Return the largest ε, to nine decimals, up to which a property holds. The property must hold at 0."""
    low, high = 0.0, RANGE
    if holds(high):
        return high
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


THRESHOLDS = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99)
"""Shares of records that are called members, one threshold each, for bounds from error rates."""

GUESSES = ((0.001, 0.0), (0.01, 0.0), (0.1, 0.0), (0.01, 0.01), (0.025, 0.025), (0.1, 0.1), (0.5, 0.5))
"""Shares of records that one-run bounds guess to be members and non-members; no guess is made on the other records."""

MOST = 0.75
"""The share of a target's level for the one of the `GUESSES` that `levels` chooses (`benchmarks/one_run_bounds.py`)."""

MANY = 5000
"""With this many records or more, guesses on 2.5 % at either end recover more of a Gaussian mechanism's ε than guesses on 10 %."""

PROMISING = 4
"""Number of (target, guess) pairs whose bounds from trade-off curves are computed; such bounds take longer than closed forms."""


def lower_bounds(
    metrics: pl.DataFrame, delta: float, alpha: float, bernoulli: bool, gaussian: bool = False
) -> dict[str, float]:
    """Return, per method, the largest lower bound on ε at δ over all attacks of a metrics table, jointly at level 1 − α.

    The table has a row per attack and target. The methods of `ONE_RUN` apply only to membership by fair coins
    (`bernoulli`), under which their bounds are proofs. `clopper-pearson`, and `gaussian`, exceed 0 in at most α of the
    audits if nothing leaks; if something leaks, they assume that the records of a target are independent trials. The
    methods of `GAUSSIAN` apply only to mechanisms whose noise is known to be Gaussian (`gaussian`): with other noise,
    their bounds exceed ε.
    """
    wrong = (*(() if bernoulli else ONE_RUN), *(() if gaussian else GAUSSIAN))
    methods = {name: bound for name, bound in METHODS.items() if name not in wrong}
    read = {*THRESHOLDS, *(GUESSED if bernoulli else ())}
    if missing := [name for share in sorted(read) for name in called_columns(share) if name not in metrics.columns]:
        raise UserError(
            f"the metrics have no column '{missing[0]}', which is needed for bounds on ε; evaluate the scores again"
        )
    known = metrics.filter(pl.col("auc").is_not_null())
    return {name: bound(known, delta, alpha) if len(known) else 0.0 for name, bound in methods.items()}


def bounds_table(
    metrics: pl.DataFrame, delta: float, confidence: float, bernoulli: bool, gaussian: bool = False
) -> pl.DataFrame:
    """Return a row per attack × signal × likelihood × null_control and method, with its `epsilon` at `delta` and `confidence`.

    Where membership was drawn by person, the bounds are per person.
    """
    rows = [
        dict(zip(KEYS, key, strict=True)) | {"method": name, "epsilon": epsilon}
        for key, group in of_drawn_unit(metrics).group_by(*KEYS, maintain_order=True)
        for name, epsilon in lower_bounds(group, delta, 1 - confidence, bernoulli, gaussian).items()
    ]
    kinds: dict[str, Any] = dict.fromkeys(KEYS, pl.String) | {"null_control": pl.Boolean, "method": pl.String}
    table = pl.DataFrame(rows, schema=kinds | {"epsilon": pl.Float64})
    return table.with_columns(pl.lit(delta).alias("delta"), pl.lit(confidence).alias("confidence"))


def _by_errors(bound: Callable[..., float]) -> Callable[[pl.DataFrame, float, float], float]:
    """Turn a bound from a target's errors at one threshold into the largest bound over all targets and shares."""

    def largest(metrics: pl.DataFrame, delta: float, alpha: float) -> float:
        members, non_members = (metrics[name].to_numpy()[:, None] for name in ("members", "non_members"))
        true, false = (
            np.stack([metrics[names[side]].to_numpy() for names in map(called_columns, THRESHOLDS)], axis=1)
            for side in (0, 1)
        )
        return bound(true, false, members, non_members, alpha / true.size, delta)

    return largest


def _one_run(metrics: pl.DataFrame, delta: float, alpha: float) -> float:
    """Return the largest one-run bound over all targets and guesses, skipping those that cannot be the largest."""
    records, guesses, correct = _guessed(metrics)
    level = levels(records, alpha)
    ceiling = one_run_bound(guesses, correct, level)
    best = 0.0
    for place in np.argsort(-ceiling, axis=None):
        if ceiling.flat[place] <= best:
            break
        drawn, guessed, hits = (int(values.flat[place]) for values in (records, guesses, correct))
        best = max(best, one_run_epsilon(drawn, guessed, hits, float(level.flat[place]), delta))
    return best


def _by_curve(bound: Callable[[int, int, int, float, float], float]) -> Callable[[pl.DataFrame, float, float], float]:
    """Turn a bound from a trade-off curve into the largest bound over the most promising targets and guesses.

    All bounds hold jointly at the level, so this choice may depend on their values.
    """

    def largest(metrics: pl.DataFrame, delta: float, alpha: float) -> float:
        records, guesses, correct = _guessed(metrics)
        level = levels(records, alpha)
        best = 0.0
        for place in np.argsort(-one_run_bound(guesses, correct, level), axis=None)[:PROMISING]:
            drawn, guessed, right = (int(values.flat[place]) for values in (records, guesses, correct))
            if 2 * right > guessed:
                best = max(best, bound(drawn, guessed, right, float(level.flat[place]), delta))
        return best

    return largest


def levels(records: np.ndarray, alpha: float) -> np.ndarray:
    """Return the level of every bound, [K, guesses] like `records`; the levels add up to α.

    All targets get equal shares of α. Of a target's share, the part `MOST` goes to the one of the `GUESSES` that
    recovers most of a Gaussian mechanism's ε, and the others divide the rest equally. The choice depends only on the
    number of records, which is known before any score.
    """
    first = np.where(records >= MANY, GUESSES.index((0.025, 0.025)), GUESSES.index((0.1, 0.1)))
    chosen = first == np.arange(len(GUESSES))
    return np.asarray(alpha / len(records) * np.where(chosen, MOST, (1 - MOST) / (len(GUESSES) - 1)))


def _guessed(metrics: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return every target's numbers of records, guesses and right guesses, for all `GUESSES`, [K, guesses] each."""
    members, non_members, unscored = (
        metrics[name].to_numpy().astype(np.int64) for name in ("members", "non_members", "unscored")
    )
    counts = []
    for high, low in GUESSES:
        guesses = correct = np.zeros(len(metrics), dtype=np.int64)
        if high:
            right, wrong = (metrics[name].to_numpy().astype(np.int64) for name in called_columns(high))
            guesses, correct = guesses + right + wrong, correct + right
        if low:
            above, over = (metrics[name].to_numpy().astype(np.int64) for name in called_columns(1 - low))
            guesses = guesses + (members - above) + (non_members - over)
            correct = correct + (non_members - over)
        counts.append((guesses, correct))
    guesses, correct = (np.stack(parts, axis=1) for parts in zip(*counts, strict=True))
    return np.broadcast_to((members + non_members + unscored)[:, None], guesses.shape), guesses, correct


GUESSED = {share for high, low in GUESSES for share in (high, 1 - low) if 0 < share < 1}
"""Those of `SHARES` for which guesses are counted."""

METHODS: dict[str, Callable[[pl.DataFrame, float, float], float]] = {
    "one-run": _one_run,
    "one-run-f-dp": _by_curve(one_run_f_dp_epsilon),
    "one-run-gaussian": _by_curve(one_run_gaussian_epsilon),
    "clopper-pearson": _by_errors(clopper_pearson_epsilon),
    "gaussian": _by_errors(gaussian_epsilon),
}
"""The function from a metrics table, δ and α to the largest bound, by method. Methods whose bounds are proofs come first."""

ONE_RUN = ("one-run", "one-run-f-dp", "one-run-gaussian")
"""Methods that need membership by fair coins."""

GAUSSIAN = ("one-run-gaussian", "gaussian")
"""Methods that assume Gaussian differential privacy. No claim is held against their bounds."""

KEY = ("given", "scores", "none", False)
"""The attack, signal, likelihood and null_control of lists, which do not state any."""

LONG, WIDE = {"member", "score"}, {"in", "out"}
NAMED = LONG | WIDE | {"person"}

EXPECTED = "expected the columns `member` (0 or 1) and `score`, or `in` and `out`; higher scores mean members"


def is_score_list(path: Path) -> bool:
    """Return whether a file is a list of scores, and not an audit's scores table, according to its ending and columns."""
    if path.suffix.lower() == ".csv":
        return True
    try:
        names = set(pq.read_schema(path).names)
    except (OSError, pa.ArrowException):
        return False  # the reader of scores tables will report what is wrong
    return not set(CONTRACTS["scores"]) <= names and (names >= LONG or names >= WIDE)


def read_score_list(path: Path) -> Scored:
    """Return the scores of one target from a CSV or Parquet file: columns `member` and `score`, or `in` and `out`, which may differ in length."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; {EXPECTED}")
    try:
        read = partial(pl.read_csv, infer_schema_length=None) if path.suffix.lower() == ".csv" else pl.read_parquet
        frame = read(path, glob=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UserError(f"{path}: damaged or empty ({' '.join(str(error).split())[:120]}); {EXPECTED}") from None
    frame = frame.rename(_clean_names(frame.columns, path))
    if set(frame.columns) >= LONG:
        score, member = _numbers(frame, "score", path), _numbers(frame, "member", path)
        if len(score) != len(frame) or len(member) != len(frame) or not np.isin(member, (0, 1)).all():
            raise UserError(f"{path}: empty cells, or memberships other than 0 and 1; {EXPECTED}")
    elif set(frame.columns) >= WIDE:
        inside, outside = _numbers(frame, "in", path), _numbers(frame, "out", path)
        score = np.concatenate([inside, outside])
        member = np.repeat([1, 0], [len(inside), len(outside)])
    else:
        raise UserError(f"{path}: the columns are {few(frame.columns)}; {EXPECTED}")
    if not np.isfinite(score).all():
        raise UserError(f"{path}: a score is not a finite number; {EXPECTED}")
    if "person" in frame.columns:
        print(
            f"mia-audit: {path}: column 'person' is not read: bounds take every row to be drawn on its own; give one score per person",
            file=sys.stderr,
        )
    here = member == 1
    if here.all() or not here.any():
        raise UserError(f"{path}: no scores of {'non-' if here.any() else ''}members; {EXPECTED}")
    return Scored(KEY, np.zeros(1, dtype=np.int32), np.arange(len(score)), here[:, None], score[:, None])


def _clean_names(columns: list[str], path: Path) -> dict[str, str]:
    """Return the names of the columns that are read, by those in the file; UserError for a name that is repeated."""
    clean = {
        name: re.sub(r"_duplicated_\d+$", "", name).strip().lower() for name in columns
    }  # so polars names the second
    names = {name: known for name, known in clean.items() if known in NAMED}
    if repeated := [known for known in NAMED if list(names.values()).count(known) > 1]:
        raise UserError(f"{path}: several columns are named '{min(repeated)}'; {EXPECTED}")
    return names


def _numbers(frame: pl.DataFrame, name: str, path: Path) -> np.ndarray:
    """Return the cells of a column that are not empty, as float64."""
    column = frame[name].drop_nulls()
    if not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
        raise UserError(f"{path}: column '{name}' holds {str(column.dtype).lower()}, not numbers; {EXPECTED}")
    return np.asarray(column.cast(pl.Float64).to_numpy())
