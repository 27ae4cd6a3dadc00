"""Kinds of canaries, and the config section that asks for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from jaxtyping import Int, Num
from pydantic import Field

from mia_audit.registry import Registry
from mia_audit.sections import Section, known_all

Drawn = tuple[np.ndarray, np.ndarray]
"""Records [m, …] of the data set's type, and labels [m]."""


@dataclass(frozen=True)
class HeldOut:
    """Records [m, …] and labels [m] removed from the data set, from which canaries are made, and the number of classes."""

    records: Num[np.ndarray, "m ..."]
    labels: Int[np.ndarray, " m"]
    classes: int

    @property
    def images(self) -> bool:
        """Whether records are images (uint8) instead of rows of a table."""
        return self.records.dtype == np.uint8


Kind = Callable[[HeldOut, np.random.Generator], Drawn]


kinds: Registry[Kind] = Registry("kind of canaries")


def other_labels(labels: np.ndarray, classes: int, random: np.random.Generator) -> np.ndarray:
    """Return labels that differ from the given ones, drawn uniformly from the other classes."""
    others: np.ndarray = (labels + random.integers(1, classes, len(labels))) % classes
    return others.astype(labels.dtype)


Kinds = Annotated[tuple[str, ...], known_all(kinds)]


FEWEST = 20
"""Smallest number of canaries; fewer give no bound at any usual confidence."""


class Canaries(Section):
    """Canaries in one training run of each chosen setting, trained as for a release; bounds on ε come from that run."""

    settings: tuple[str, ...] = ()
    """Settings to train once on canaries, as DATASET/ARCHITECTURE/MECHANISM-epsE; none by default."""
    count: int = Field(1000, ge=FEWEST)
    """Number of canaries per data set."""
    kinds: Kinds = ("mislabelled",)
    """Kinds of canaries: `natural`, `mislabelled`, `rare`, `noise`."""


@kinds.register("noise")
def noise(held_out: HeldOut, random: np.random.Generator) -> Drawn:
    """Return uniform noise for images; for tables, draw each value independently from its column."""
    shape, dtype = held_out.records.shape, held_out.records.dtype
    labels = random.integers(0, held_out.classes, len(held_out.labels)).astype(held_out.labels.dtype)
    if held_out.images:
        return random.integers(0, 256, shape).astype(dtype), labels
    return random.permuted(held_out.records, axis=0), labels


@kinds.register("mislabelled")
def mislabelled(held_out: HeldOut, random: np.random.Generator) -> Drawn:
    """Return the records with another class's label, which only a model trained on them predicts (Steinke et al. 2023)."""
    return held_out.records, other_labels(held_out.labels, held_out.classes, random)


@kinds.register("natural")
def natural(held_out: HeldOut, random: np.random.Generator) -> Drawn:
    """Return the records unchanged. They measure the leakage of typical records, which is the weakest of all kinds."""
    return held_out.records, held_out.labels


TAIL = 0.01
"""Quantile of each column, from either end, at which the extreme values of a rare row lie."""


@kinds.register("rare")
def rare(held_out: HeldOut, random: np.random.Generator) -> Drawn:
    """Return images with a patch of black and white noise, or rows with only extreme values, and wrong labels."""
    labels = other_labels(held_out.labels, held_out.classes, random)
    if held_out.images:
        return _patched(held_out.records, random), labels
    low, high = np.nanquantile(held_out.records, (TAIL, 1 - TAIL), axis=0)
    extreme = np.where(random.random(held_out.records.shape) < 0.5, low, high)
    return extreme.astype(held_out.records.dtype), labels


def _patched(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return copies of images [m, C, H, W], each with a patch of half its height and width at a random position."""
    patched = images.copy()
    height, width = (max(1, side // 2) for side in images.shape[-2:])
    tops = random.integers(0, images.shape[-2] - height + 1, len(images))
    lefts = random.integers(0, images.shape[-1] - width + 1, len(images))
    for image, top, left in zip(patched, tops, lefts, strict=True):
        patch = random.integers(0, 2, (*image.shape[:-2], height, width))
        image[..., top : top + height, left : left + width] = 255 * patch
    return patched
