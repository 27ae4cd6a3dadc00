"""Calibration of the most exposed records: what an audit states about them, and what is true on fresh models.

`python benchmarks/exposure.py [RUNS]` prints a row per scenario and number of models. Signals of 1,000 records are
normal around a level of the record: without leak (`none`), without leak but with noise that differs fivefold between
records (`uneven`), with the same shift in standard deviations for all (`equal`), with shifts that vary (`spread`), and
with large shifts of 20 records (`few`) or of 3 (`three`). Stated values come from two halves of the models; true values
are means over fresh models, attacked with as many as the audit has. `listed` is the share of audits that list any
record. Of the listed records: their number, the stated and the true share of models trained on them that reveal them
(at an FPR of 1 %), the stated and the true advantage, and the share of intervals whose lower limit holds and that hold
as a whole. `truth_10`, `truth_50`: of all records said to be revealed with at least 10 or 50 %, the true share.
"""

from __future__ import annotations

import sys

import numpy as np

from mia_audit.attacks.engine.ratios import RATIOS
from mia_audit.evaluation.exposure import Estimated, Halves, estimated
from mia_audit.evaluation.metrics import called_above

RECORDS, FPR, FRESH = 1000, 0.01, 12
SCENARIOS = ("none", "uneven", "equal", "spread", "few", "three")
COLUMNS = (
    *("scenario", "models", "listed", "records", "revealed", "true_revealed", "advantage", "true_advantage"),
    *("lower_limit_holds", "interval_holds", "truth_10", "truth_50"),
)


def shifts(name: str, sd: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return how far membership moves every record's signal."""
    if name in ("none", "uneven"):
        return np.zeros_like(sd)
    if name == "equal":
        return 0.7 * sd
    if name == "spread":
        return np.asarray(np.abs(random.normal(0.7, 0.7, sd.shape)))
    strong = 20 if name == "few" else 3
    return np.where(np.arange(len(sd))[:, None] < strong, 4.0, 0.0)


def drawn(
    random: np.random.Generator, level: np.ndarray, sd: np.ndarray, shift: np.ndarray, models: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return signals and memberships of models."""
    member = np.asfortranarray(np.stack([random.permutation(RECORDS) < RECORDS // 2 for _ in range(models)], axis=1))
    return np.asfortranarray(level + shift * member + sd * random.normal(size=member.shape)), member


def scores(signal: np.ndarray, member: np.ndarray) -> np.ndarray:
    """Return the hierarchical ratio's scores."""
    return np.asarray(RATIOS["hierarchical"](np.asfortranarray(signal), np.asfortranarray(member)), dtype=np.float64)


def stated(signal: np.ndarray, member: np.ndarray) -> Estimated:
    """Return what an audit estimates."""
    middle = member.shape[1] // 2
    parts = [(signal[:, half], member[:, half]) for half in (slice(middle), slice(middle, None))]
    found = estimated(
        Halves.from_scores(("", "", ""), "none", [(scores(*part), part[1]) for part in parts], (FPR,)), FPR
    )
    assert found is not None
    return found


def scenario(name: str, models: int, runs: int) -> dict[str, float]:
    """Return the columns of one row."""
    rows = []
    for run in range(runs):
        fixed = np.random.default_rng([run, 1])
        level = fixed.normal(3, 2, (RECORDS, 1))
        sd = fixed.uniform(0.6, 1.6, (RECORDS, 1)) if name != "uneven" else fixed.choice([0.4, 2.0], (RECORDS, 1))
        shift = shifts(name, sd, fixed)
        found = stated(*drawn(np.random.default_rng([run, models, 2]), level, sd, shift, models))
        counts = np.zeros((4, RECORDS))
        for fresh in range(FRESH):
            signal, member = drawn(np.random.default_rng([run, models, 3, fresh]), level, sd, shift, models)
            called = called_above(scores(signal, member), member, FPR)
            sides = (called & member, member, called & ~member, ~member)
            counts += [side.sum(axis=1) for side in sides]
        revealed = counts[0] / counts[1]
        rows.append((found, revealed, revealed - counts[2] / counts[3]))
    places = [found.listed for found, _, _ in rows]
    every = list(zip(rows, places, strict=True))

    def of_listed(values: list[np.ndarray]) -> float:
        joined = np.concatenate(values)
        return float(joined.mean()) if len(joined) else float("nan")

    def truth(least: float) -> float:
        return of_listed([revealed[found.reveal >= least] for found, revealed, _ in rows])

    return {
        "listed": float(np.mean([len(place) > 0 for place in places])),
        "records": float(np.mean([len(place) for place in places])),
        "revealed": of_listed([found.reveal[place] for (found, _, _), place in every]),
        "true_revealed": of_listed([revealed[place] for (_, revealed, _), place in every]),
        "advantage": of_listed([found.advantage[place] for (found, _, _), place in every]),
        "true_advantage": of_listed([true[place] for (_, _, true), place in every]),
        "lower_limit_holds": of_listed([found.low[place] <= true[place] for (found, _, true), place in every]),
        "interval_holds": of_listed(
            [
                (found.low[place] <= true[place]) & (true[place] <= found.high[place])
                for (found, _, true), place in every
            ]
        ),
        "truth_10": truth(0.1),
        "truth_50": truth(0.5),
    }


def main() -> None:
    """Print every scenario."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print("\t".join(COLUMNS))
    for name in SCENARIOS:
        for models in (9, 17, 33):
            numbers = [f"{value:.3f}" for value in scenario(name, models, runs).values()]
            print("\t".join([name, str(models), *numbers]), flush=True)


if __name__ == "__main__":
    main()
