"""Similarity of two models' explanations of the same records: 1 for equal explanations, NaN if a map is constant or 0 everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mia_audit.explanation_metrics.catalogue import measure

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float

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
    import numpy as np
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
    import numpy as np

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
    import numpy as np

    first, second = (_top(np.abs(_flat(values)), top_share) for values in (maps, other))
    longer = np.maximum(first.sum(axis=1), second.sum(axis=1))
    return np.asarray((first & second).sum(axis=1) / np.where(longer > 0, longer, np.nan))


def _top(sizes: Float[np.ndarray, "n d"], share: float) -> np.ndarray:
    import numpy as np

    count = max(1, round(share * sizes.shape[1]))
    chosen = np.zeros(sizes.shape, dtype=bool)
    np.put_along_axis(chosen, np.argsort(-sizes, axis=1, kind="stable")[:, :count], True, axis=1)
    return chosen & (sizes > 0)


def _flat(values: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n d"]:
    return values.reshape(len(values), -1)


def _cosine(first: Float[np.ndarray, "n d"], second: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
    import numpy as np

    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.asarray((first * second).sum(axis=1) / np.where(lengths > 0, lengths, np.nan))
