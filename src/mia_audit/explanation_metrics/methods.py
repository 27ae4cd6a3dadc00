"""The measures: faithfulness to the model, similarity of two models' explanations, and the spread of one model's.

Faithfulness is measured at changed records: removed coordinates are 0 in the model's input space, the baseline of
integrated gradients, and all channels of an image's pixel are removed together. Random changes are keyed by the record,
the same for every model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.explain.release import top
from mia_audit.explanation_metrics.catalogue import measure

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from mia_audit.explanation_metrics.study import Probe


@measure("infidelity", label="infidelity")
def infidelity(probe: Probe, perturbations: int, removed_share: float) -> Float[np.ndarray, " n"]:
    """Mean of (Iᵀa − (f(x) − f(x − I)))² over random removals (Yeh et al. 2019, definition 2.1), by captum; 0 is best.

    The perturbation I removes every coordinate with probability `removed_share`. For an explanation a in units of f,
    the sum of a over the removed coordinates replaces Iᵀa.
    """
    import torch

    parts = [_infidelity(probe, rows, perturbations, removed_share) for rows in probe.rows(perturbations)]
    return torch.cat(parts).double().cpu().numpy()


def _infidelity(probe: Probe, rows: list[int], times: int, share: float) -> Tensor:
    from captum.metrics import infidelity

    drawn = probe.draws("removal", rows, times)
    removed = (drawn[:, :1] if drawn.ndim == 4 else drawn) < share

    def removal(points: Tensor) -> tuple[Tensor, Tensor]:
        change = removed * points
        return (removed.expand_as(points).to(points) if probe.multiplied else change), points - change

    def quantity(points: Tensor) -> Tensor:
        classes = probe.classes[rows].repeat_interleave(len(points) // len(rows))
        return probe.value(points, classes).to(points)

    values: Tensor = infidelity(
        quantity, removal, probe.inputs[rows], probe.attributions[rows], n_perturb_samples=times
    )
    return values


@measure("sensitivity", label="sensitivity")
def sensitivity(probe: Probe, perturbations: int, radius: float) -> Float[np.ndarray, " n"]:
    """Largest ‖e(x + u) − e(x)‖₂ / ‖e(x)‖₂ over random u with ‖u‖∞ ≤ `radius` (Yeh et al. 2019), by captum; 0 is best.

    `radius` is in units of the model's input.
    """
    import torch

    parts = [_sensitivity(probe, rows, perturbations, radius) for rows in probe.rows(perturbations)]
    return torch.cat(parts).double().cpu().numpy()


def _sensitivity(probe: Probe, rows: list[int], times: int, radius: float) -> Tensor:
    from captum.metrics import sensitivity_max

    shifts = (2 * probe.draws("shift", rows, times) - 1) * radius

    def shifted(points: Tensor) -> Tensor:
        return points + shifts

    def explain(points: Tensor | tuple[Tensor]) -> tuple[Tensor]:
        if isinstance(points, tuple):  # captum passes a tuple for the records, but a tensor for the changed records
            (points,) = points
        return (probe.explain(points, [row for row in rows for _ in range(len(points) // len(rows))]),)

    values: Tensor = sensitivity_max(explain, probe.inputs[rows], shifted, n_perturb_samples=times)
    return values


@measure("deletion", label="deletion area", curve=True)
def deletion(probe: Probe, maps: Float[np.ndarray, "n ..."], curve_steps: int) -> Float[np.ndarray, "n steps"]:
    """The class's probability while the record's coordinates are removed, the most important first; a small area is good.

    The measure is that of Petsiuk et al. (2018). Importance is the map's value with its sign. Heights are at 0, 1, …,
    `curve_steps` equal shares of the coordinates.
    """
    return _curve(probe, maps, curve_steps, deleting=True)


@measure("insertion", label="insertion area", curve=True)
def insertion(probe: Probe, maps: Float[np.ndarray, "n ..."], curve_steps: int) -> Float[np.ndarray, "n steps"]:
    """The class's probability while coordinates are inserted into an empty record, the most important first; a large area is good.

    The measure is that of Petsiuk et al. (2018). In all other respects it is like `deletion`.
    """
    return _curve(probe, maps, curve_steps, deleting=False)


def _curve(probe: Probe, maps: Float[np.ndarray, "n ..."], steps: int, deleting: bool) -> Float[np.ndarray, "n steps"]:
    order = np.argsort(-maps.reshape(len(maps), -1), axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable").reshape(maps.shape)
    heights = [_height(probe, rank < round(step / steps * order.shape[1]), deleting) for step in range(steps + 1)]
    return np.stack(heights, axis=1)


def _height(probe: Probe, chosen: Bool[np.ndarray, "n ..."], deleting: bool) -> Float[np.ndarray, " n"]:
    import torch

    kept = torch.from_numpy(chosen ^ deleting).to(probe.inputs.device)
    if probe.inputs.ndim == 4:
        kept = kept[:, None]
    return probe.height(probe.inputs * kept, probe.classes)


WINDOW = 7
"""Side of SSIM's square window, the default of scikit-image. Smaller maps have a window of the largest odd side that fits."""
K1, K2 = 0.01, 0.03


@measure("ssim", label="SSIM", images=True)
def ssim(maps: Float[np.ndarray, "n H W"], other: Float[np.ndarray, "n H W"]) -> Float[np.ndarray, " n"]:
    """Structural similarity (Wang et al. 2004, eq. 13) of maps that are each divided by their largest absolute value.

    It equals scikit-image's `structural_similarity` with default arguments (uniform window, sample covariances, mean
    over the windows inside the map), for all records at once. The data range is 2, the width of [−1, 1], or 1 if no map
    of either model has a negative value. A map that is 0 everywhere is not changed. Raises ValueError for maps under 3
    × 3.
    """
    from scipy.ndimage import uniform_filter

    side = min(WINDOW, *maps.shape[1:])
    side -= side % 2 == 0
    if side < 3:
        raise ValueError(f"SSIM needs maps of at least 3 × 3, got {maps.shape[1]} × {maps.shape[2]}")
    reach = 1.0 if maps.min() >= 0 and other.min() >= 0 else 2.0
    edge = side // 2

    def local_mean(values: Float[np.ndarray, "n H W"]) -> Float[np.ndarray, "n h w"]:
        return np.asarray(uniform_filter(values, size=(1, side, side))[:, edge:-edge, edge:-edge])

    x, y = _scaled(maps), _scaled(other)
    x_mean, y_mean = local_mean(x), local_mean(y)
    unbiased = side**2 / (side**2 - 1)
    x_variance, y_variance, covariance = (
        unbiased * (local_mean(a * b) - a_mean * b_mean)
        for a, b, a_mean, b_mean in ((x, x, x_mean, x_mean), (y, y, y_mean, y_mean), (x, y, x_mean, y_mean))
    )
    c1, c2 = (K1 * reach) ** 2, (K2 * reach) ** 2
    numerator = (2 * x_mean * y_mean + c1) * (2 * covariance + c2)
    denominator = (x_mean**2 + y_mean**2 + c1) * (x_variance + y_variance + c2)
    return np.asarray((numerator / denominator).mean(axis=(1, 2)))


def _scaled(maps: Float[np.ndarray, "n H W"]) -> Float[np.ndarray, "n H W"]:
    largest = np.abs(maps).max(axis=(1, 2), keepdims=True)
    return maps / np.where(largest > 0, largest, 1.0)


@measure("rank-correlation", label="rank correlation")
def rank_correlation(maps: Float[np.ndarray, "n ..."], other: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, " n"]:
    """Spearman's rank correlation of the maps' signed values, with ties at their mean rank; NaN for a constant map."""
    from scipy.stats import rankdata

    first, second = (rankdata(_flat(values), axis=1) for values in (maps, other))
    return _cosine(first - first.mean(axis=1, keepdims=True), second - second.mean(axis=1, keepdims=True))


@measure("cosine", label="cosine similarity")
def cosine(maps: Float[np.ndarray, "n ..."], other: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, " n"]:
    """Cosine of the angle between the maps; NaN for a map that is 0 everywhere."""
    return _cosine(_flat(maps), _flat(other))


@measure("top-overlap", label="overlap of the top")
def top_overlap(
    maps: Float[np.ndarray, "n ..."], other: Float[np.ndarray, "n ..."], top_share: float
) -> Float[np.ndarray, " n"]:
    """Overlap of the two maps' coordinates with the largest absolute values.

    The top of a map is its max(1, round(top_share · d)) coordinates with the largest absolute values (with ties, the
    first ones), except those that are 0. The overlap is the number of common coordinates as a share of the longer top.
    For unrelated maps it is about `top_share`. NaN if both tops are empty.
    """
    first, second = (top(np.abs(_flat(values)), top_share) for values in (maps, other))
    longer = np.maximum(first.sum(axis=1), second.sum(axis=1))
    return np.asarray((first & second).sum(axis=1) / np.where(longer > 0, longer, np.nan))


def _flat(values: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n d"]:
    return values.reshape(len(values), -1)


def _cosine(first: Float[np.ndarray, "n d"], second: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.asarray((first * second).sum(axis=1) / np.where(lengths > 0, lengths, np.nan))


@measure("gini", label="sparsity (Gini)")
def gini(maps: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, " n"]:
    """Gini index of the absolute values (Hurley and Rickard 2009): 0 if all are equal, 1 − 1/d if all but one are 0.

    Chalasani et al. (2020) use it to measure the sparsity of explanations. NaN for a map that is 0 everywhere.
    """
    sizes = np.sort(np.abs(maps.reshape(len(maps), -1)), axis=1)
    d = sizes.shape[1]
    total = sizes.sum(axis=1)
    weights = (d - np.arange(1, d + 1) + 0.5) / d
    return np.asarray(1 - 2 * (sizes @ weights) / np.where(total > 0, total, np.nan))


@measure("class-variability", label="variability within a class")
def class_variability(maps: Float[np.ndarray, "n ..."], labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """One minus the mean cosine between a record's map and those of the other records with its label.

    It is 0 if a model's explanations of all records of a class are equal up to scale, 1 if they are unrelated. It is
    NaN for the only record of a class, and for maps that are 0 everywhere. Such maps are left out of all comparisons.
    """
    flat = maps.reshape(len(maps), -1)
    lengths = np.linalg.norm(flat, axis=1)
    units = flat / np.where(lengths > 0, lengths, 1.0)[:, None]
    values = np.full(len(flat), np.nan)
    for label in np.unique(labels):
        rows = np.flatnonzero((labels == label) & (lengths > 0))
        if len(rows) > 1:
            others = units[rows].sum(axis=0) - units[rows]
            values[rows] = 1 - (units[rows] * others).sum(axis=1) / (len(rows) - 1)
    return values
