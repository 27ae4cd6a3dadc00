"""The registry of pool sources, and what a source returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mia_audit.registry import Registry

if TYPE_CHECKING:
    import numpy as np

    from mia_audit.config.schema import Dataset


@dataclass(frozen=True)
class Source:
    """A data set as it comes: uint8 [n, C, H, W] images or float32 [n, d] rows, int labels [n], and names."""

    kind: Literal["image", "table"]
    records: np.ndarray
    labels: np.ndarray
    classes: list[str]
    features: list[str]


pools: Registry[Callable[[Dataset], Source]] = Registry("pool", "mia_audit.pools.sources", "_")
