"""Centring and scaling the columns of a table by constants that do not come from the audited records without noise."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from mia_audit.config.schema import Dataset
from mia_audit.errors import UserError, suggest
from mia_audit.pools.catalogue import Source
from mia_audit.seeds import generator

Table = Float[np.ndarray, "n d"]


@dataclass(frozen=True)
class Scaling:
    """(x − centre) / scale, a constant a column [d], and the terms on which they were released, if they were."""

    centre: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]
    release: dict[str, Any] = field(default_factory=dict)

    def apply(self, records: Table) -> Table:
        """Return float32 [n, d]."""
        return np.asarray((records - self.centre) / self.scale, dtype=np.float32)

    def told(self) -> dict[str, Any]:
        """Return what the pool's facts say of it."""
        constants = {"centre": self.centre.tolist(), "scale": self.scale.tolist()}
        return constants | ({"release": self.release} if self.release else {})


class Side(Protocol):
    """Records of one side, as they came."""

    def __len__(self) -> int: ...

    def chunks(self) -> Iterator[Table]:
        """Yield the records in their order, some at a time."""


Found = Callable[[Side, Side], Scaling | None]
"""Takes the audited and the public records and returns the constants; what the config says was checked before."""


@dataclass(frozen=True)
class Task:
    """A data set, the section that says how it is standardised, and how errors call that."""

    source: Source
    section: Dataset
    name: str
    where: str
    seed: int


def _none(task: Task) -> Found:
    return lambda audited, public: None


def _public(task: Task) -> Found:
    """By mean and standard deviation of the public records; a constant column is only centred."""

    def found(audited: Side, public: Side) -> Scaling:
        records = np.concatenate(list(public.chunks()))
        scale = records.std(axis=0, dtype=np.float64)
        scale[scale == 0] = 1.0
        return Scaling(records.mean(axis=0, dtype=np.float64), scale)

    return found


def _stated(task: Task) -> Found:
    """By the constants that the config states; columns that it does not name stay as they are."""
    constants = dict(task.section.constants)
    pairs = np.array([constants.pop(name, (0.0, 1.0)) for name in task.source.features], dtype=np.float64)
    _check_known(constants, task, "constants")
    return lambda audited, public: Scaling(pairs[:, 0], pairs[:, 1])


def _private(task: Task) -> Found:
    """By noisy moments of the audited records; columns of 0 and 1 stay as they are where no bounds are stated for them."""
    bounds, section, features = _bounds(task), task.section, task.source.features
    chosen = [column for column, name in enumerate(features) if name in bounds]
    low, high = np.array([bounds[features[column]] for column in chosen], dtype=np.float64).T
    epsilon, delta = section.standardise_epsilon or 0.0, section.standardise_delta
    # other terms get other noise: the same one under two budgets would subtract away
    terms = [repr(value) for value in (epsilon, delta, sorted(bounds.items()))]
    random = generator(task.seed, "standardise", task.name, *terms)

    def found(audited: Side, public: Side) -> Scaling:
        from mia_audit.pools.private_moments import Bounds, release  # and evaluation with it

        columns = (chunk[:, chosen] for chunk in audited.chunks())
        moments = release(columns, len(audited), Bounds(low, high), epsilon, delta, random)
        centre, scale = np.zeros(len(features)), np.ones(len(features))
        centre[chosen], scale[chosen] = moments.mean, moments.sd
        told = {
            "mechanism": "Gaussian",
            "epsilon": epsilon,
            "delta": delta,
            "adjacency": "add or remove one record of the pool, their number being public",
            "records": len(audited),
            "noise_multiplier": moments.noise_multiplier,
            "sensitivity": moments.sensitivity,
            "noise": moments.noise,
            "bounds": {name: list(pair) for name, pair in bounds.items()},
            "floored": [features[column] for column, low in zip(chosen, moments.floored, strict=True) if low],
        }
        return Scaling(centre, scale, told)

    return found


EVERY = "*"
"""Stands in `bounds` for all columns of numbers that it does not name."""


def _bounds(task: Task) -> dict[str, tuple[float, float]]:
    """Return the bounds of every column that is standardised, in the order of the columns."""
    given = dict(task.section.bounds)
    common = given.pop(EVERY, None)
    found, missing = {}, []
    for name in task.source.features:
        pair = given.pop(name, None if name in task.source.flags else common)
        if pair is not None:
            found[name] = pair
        elif name not in task.source.flags:
            missing.append(name)
    _check_known(given, task, "bounds")
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(
            f"{task.where}.bounds: nothing for column '{missing[0]}'{more}: state [low, high] for every column of numbers, known"
            f" without looking at the records, or one for all others under '{EVERY}'"
        )
    if not found:
        raise UserError(f"{task.where}.standardise: private: all columns are of 0 and 1 already; leave it out")
    return found


def _check_known(left: dict[str, Any], task: Task, key: str) -> None:
    if left:
        odd = next(iter(left))
        raise UserError(f"{task.where}.{key}.{odd}: no such column: {suggest(odd, task.source.features)}")


STANDARDISATIONS: dict[str, Callable[[Task], Found]] = {
    "none": _none,
    "public": _public,
    "stated": _stated,
    "private": _private,
}
"""What `standardise` may say."""
