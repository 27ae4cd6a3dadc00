"""Outliers with a wrong label; no other record of the training set is similar enough to prevent their memorisation."""

import numpy as np

from mia_audit.canaries.catalogue import Drawn, HeldOut, kinds, other_labels

TAIL = 0.01
"""Quantile of each column, from either end, at which the extreme values of a rare row lie."""


@kinds.register("rare")
def rare(held_out: HeldOut, random: np.random.Generator) -> Drawn:
    """Return images with a patch of black and white noise, or rows with only extreme values, and wrong labels."""
    labels = other_labels(held_out.labels, held_out.classes, random)
    if held_out.images:
        return _patched(held_out.records, random), labels
    low, high = np.quantile(held_out.records, (TAIL, 1 - TAIL), axis=0)
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
