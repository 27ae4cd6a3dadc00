"""The registry of pool sources, and what a source returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from mia_audit.registry import Registry

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Int, Num

    from mia_audit.config.schema import Dataset

    Load = Callable[[Dataset, str], "Source"]


class BadRecordError(Exception):
    """A record that cannot be read: its message names it and says why."""


class Rows(Protocol):
    """Records in the order of their source: an array [n, …], or images that are decoded when they are asked for."""

    @property
    def shape(self) -> tuple[int, ...]:
        """[n, C, H, W] or [n, d]."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> Num[np.ndarray, ...]:
        """Return one record; called by several threads at a time. Raises BadRecordError for one that cannot be read."""


@dataclass(frozen=True)
class Source:
    """A data set as it comes: uint8 [n, C, H, W] images or float32 [n, d] rows, int labels [n], and names."""

    kind: Literal["image", "table"]
    records: Rows
    labels: Int[np.ndarray, " n"]
    classes: list[str]
    features: list[str]
    flags: frozenset[str] = frozenset()
    """Features that are 0 or 1 whatever the records are: a word or not, true or false."""


@dataclass(frozen=True)
class PoolSource:
    """How a data set is loaded, and the keys of its section that say where from and how.

    `load` takes the section and how errors call it (`datasets.NAME`); it raises UserError where the files are not as they should be.
    """

    load: Load
    keys: tuple[str, ...] = ()


pools: Registry[PoolSource] = Registry("pool", "mia_audit.pools.sources", "_")

TABLE_KEYS = ("standardise", "constants", "bounds", "standardise_epsilon", "standardise_delta")
"""Keys of a dataset's section that pools of rows read."""
OPTIONAL_KEYS = ("root", "download", "size", "convert", "label", *TABLE_KEYS)
"""Keys of a dataset's section that only some pools read."""


def pool(name: str, *keys: str) -> Callable[[Load], Load]:
    """Register the decorated function as a source that reads those of the optional keys."""

    def decorate(load: Load) -> Load:
        pools.register(name)(PoolSource(load, keys))
        return load

    return decorate
