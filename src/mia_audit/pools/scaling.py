"""Centre and scale a table's columns by constants that depend on the audited records only through noise."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from jaxtyping import Bool, Float

from mia_audit.errors import UserError, suggest
from mia_audit.pools.catalogue import Source
from mia_audit.pools.section import Dataset

Table = Float[np.ndarray, "n d"]


@dataclass(frozen=True)
class Scaling:
    """(x − centre) / scale, with constants per column [d], and the terms of their release, if any."""

    centre: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]
    release: dict[str, Any] = field(default_factory=dict)

    def apply(self, records: Table) -> Table:
        """Return float32 [n, d]."""
        return np.asarray((records - self.centre) / self.scale, dtype=np.float32)

    def metadata(self) -> dict[str, Any]:
        """Return the entries of this scaling in the pool's metadata."""
        constants = {"centre": self.centre.tolist(), "scale": self.scale.tolist()}
        return constants | ({"release": self.release} if self.release else {})


class Side(Protocol):
    """The unscaled audited or public records and, if the unit is the person, each record's share of its person [n]."""

    @property
    def shares(self) -> Float[np.ndarray, " n"] | None: ...
    def __len__(self) -> int: ...

    def chunks(self) -> Iterator[Table]:
        """Yield the records in their order, some at a time."""


Constants = Callable[[Side, Side], Scaling | None]
"""Returns the constants, given the audited and the public records, for a config that was checked."""


class Moments(Protocol):
    """Noisy means and standard deviations [d] of columns, a mask of deviations at their floor [d], and the noise."""

    @property
    def mean(self) -> Float[np.ndarray, " d"]: ...
    @property
    def sd(self) -> Float[np.ndarray, " d"]: ...
    @property
    def floored(self) -> Bool[np.ndarray, " d"]: ...
    @property
    def noise_multiplier(self) -> float: ...
    @property
    def sensitivity(self) -> float: ...
    @property
    def noise(self) -> float: ...


Bounds = tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]
"""The low and the high bound of every column."""

Shares = Float[np.ndarray, " n"] | None

Release = Callable[[Iterable[Table], int, Bounds, float, float, tuple[int | str, ...], Shares], Moments]
"""Releases moments of rows.

Its arguments are the number of records (or persons), bounds, ε, δ, the key of the noise, and each record's share of its
person.
"""


@dataclass(frozen=True)
class Standardisation:
    """A data set, its section, the section's name for errors, and a function that releases moments."""

    source: Source
    section: Dataset
    name: str
    where: str
    seed: int
    release: Release | None = None


def _none(task: Standardisation) -> Constants:
    return lambda audited, public: None


def _public(task: Standardisation) -> Constants:
    """Standardise by mean and standard deviation of the public records; a constant column is only centred."""

    def constants(audited: Side, public: Side) -> Scaling:
        records = np.concatenate(list(public.chunks()))
        scale = records.std(axis=0, dtype=np.float64)
        scale[scale == 0] = 1.0
        return Scaling(records.mean(axis=0, dtype=np.float64), scale)

    return constants


def _stated(task: Standardisation) -> Constants:
    """Standardise by the constants that the config states for every column of numbers; columns of 0 and 1 without
    stated constants are not changed.
    """
    constants = dict(task.section.constants)
    lacking = [name for name in task.source.features if name not in constants and name not in task.source.flags]
    pairs = np.array([constants.pop(name, (0.0, 1.0)) for name in task.source.features], dtype=np.float64)
    _check_known(constants, task, "constants")
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise UserError(
            f"{task.where}.constants: nothing for column '{lacking[0]}'{more}: state [centre, scale] for every column of numbers, [0, 1]"
            " to leave one unchanged"
        )
    return lambda audited, public: Scaling(pairs[:, 0], pairs[:, 1])


def _private(task: Standardisation) -> Constants:
    """Standardise by noisy moments of the audited records; columns of 0 and 1 without stated bounds are not changed."""
    if task.release is None:
        raise TypeError("standardise: private needs a release function")
    bounds, section, features, release = _bounds(task), task.section, task.source.features, task.release
    chosen = [column for column, name in enumerate(features) if name in bounds]
    low, high = np.array([bounds[features[column]] for column in chosen], dtype=np.float64).T
    epsilon, delta = section.standardise_epsilon or 0.0, section.standardise_delta
    secret: tuple[int | str, ...] = (task.seed, "standardise", task.name, *(features[column] for column in chosen))

    def constants(audited: Side, public: Side) -> Scaling:
        columns = (chunk[:, chosen] for chunk in audited.chunks())
        shares = audited.shares
        units = len(audited) if shares is None else round(float(shares.sum()))
        moments = release(columns, units, (low, high), epsilon, delta, secret, shares)
        centre, scale = np.zeros(len(features)), np.ones(len(features))
        centre[chosen], scale[chosen] = moments.mean, moments.sd
        terms = {
            "mechanism": "Gaussian",
            "epsilon": epsilon,
            "delta": delta,
            "adjacency": f"add or remove one {RECORD if shares is None else PERSON} of the pool, their number being public",
            "records": len(audited),
            **({} if shares is None else {"persons": units}),
            "noise_multiplier": moments.noise_multiplier,
            "sensitivity": moments.sensitivity,
            "noise": moments.noise,
            "bounds": {name: list(pair) for name, pair in bounds.items()},
            "floored": [features[column] for column, low in zip(chosen, moments.floored, strict=True) if low],
        }
        return Scaling(centre, scale, terms)

    return constants


RECORD, PERSON = "record", "person, with all of their records,"
"""The difference between neighbouring pools."""

EVERY = "*"
"""Key of `bounds` for all columns of numbers that it does not name."""


def _bounds(task: Standardisation) -> dict[str, tuple[float, float]]:
    """Return the bounds of every column that is standardised, in the order of the columns."""
    given = dict(task.section.bounds)
    common = given.pop(EVERY, None)
    bounds, missing = {}, []
    for name in task.source.features:
        pair = given.pop(name, None if name in task.source.flags else common)
        if pair is not None:
            bounds[name] = pair
        elif name not in task.source.flags:
            missing.append(name)
    _check_known(given, task, "bounds")
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(
            f"{task.where}.bounds: nothing for column '{missing[0]}'{more}: state [low, high] for every column of numbers, known"
            f" without looking at the records, or one pair for all other columns under '{EVERY}'"
        )
    if not bounds:
        raise UserError(f"{task.where}.standardise: private: all columns hold only 0 and 1; leave the key out")
    return bounds


def _check_known(left: dict[str, Any], task: Standardisation, key: str) -> None:
    if left:
        odd = next(iter(left))
        raise UserError(f"{task.where}.{key}.{odd}: no such column: {suggest(odd, task.source.features)}")


STANDARDISATIONS: dict[str, Callable[[Standardisation], Constants]] = {
    "none": _none,
    "public": _public,
    "stated": _stated,
    "private": _private,
}
"""The values of `standardise`."""
