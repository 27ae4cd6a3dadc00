"""Sweeps: keys of a config section with several values each, and one section per combination of these values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Annotated

from pydantic import Field

from mia_audit.sections import folder_name

Parameter = bool | int | float | str
Sweep = dict[str, Annotated[tuple[Parameter, ...], Field(min_length=1)]]
TRAINING = "training."
"""Prefix of swept keys that belong to the training section."""
MOST_SWEPT = 1000
"""Largest number of combinations of a sweep."""


@dataclass(frozen=True)
class Swept:
    """A section that a sweep generated: the name of the original section, and the values of the swept keys, without `training.`."""

    section: str
    values: Mapping[str, Parameter]
    training: tuple[str, ...] = ()
    """The swept keys of training."""


def combinations(name: str, sweep: Sweep) -> Iterator[tuple[str, Swept]]:
    """Return every combination of a sweep and its name, `{name}-{key}{value}`; ValueError for too many combinations, or for a repeated one."""
    if (count := prod(map(len, sweep.values()))) > MOST_SWEPT:
        raise ValueError(f"{name}.sweep: {count:,} combinations; expected at most {MOST_SWEPT:,}: leave values out")
    training = tuple(key.removeprefix(TRAINING) for key in sweep if key.startswith(TRAINING))
    names = set()
    for values in product(*sweep.values()):
        chosen = {key.removeprefix(TRAINING): value for key, value in zip(sweep, values, strict=True)}
        words = [f"{key}{str(value).lower() if isinstance(value, bool) else value}" for key, value in chosen.items()]
        if (label := folder_name("-".join([name, *words]))) in names:
            raise ValueError(f"{name}.sweep: two combinations are named '{label}'; give every value once")
        names.add(label)
        yield label, Swept(name, chosen, training)
