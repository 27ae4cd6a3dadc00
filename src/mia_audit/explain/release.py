"""What is shipped in place of an attribution map: the defences of explanations that change the map alone. Nothing here imports torch.

None of them carries a guarantee. All are relative to the record's own map, so they need no scale.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.errors import suggest
from mia_audit.seeds import generator

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    Maps = Float[np.ndarray, "n d"]

FULL = "full"
"""The release that ships the map as it is."""


@dataclass(frozen=True)
class Release:
    """A release: its function of maps, parameter and standard normal numbers, and the parameter's default and limits.

    `whole` parameters are whole numbers. Without a default there is no parameter.
    """

    function: Callable[[Maps, float, Callable[[], Maps]], Maps]
    default: float | None = None
    most: float = np.inf
    whole: bool = False


def top(sizes: Float[np.ndarray, "n d"], share: float) -> Bool[np.ndarray, "n d"]:
    """Return which max(1, round(share · d)) coordinates of every map are largest; of equal ones the first, and none that is 0."""
    count = max(1, round(share * sizes.shape[1]))
    chosen = np.zeros(sizes.shape, dtype=bool)
    np.put_along_axis(chosen, np.argsort(-sizes, axis=1, kind="stable")[:, :count], True, axis=1)
    return chosen & (sizes > 0)


def _rounded(maps: Maps, digits: float, draw: Callable[[], Maps]) -> Maps:
    exponent = np.floor(np.log10(np.abs(maps, where=maps != 0, out=np.ones_like(maps))))
    unit = 10.0 ** (exponent - digits + 1)
    return np.asarray(np.round(maps / unit) * unit)


def _noisy(maps: Maps, level: float, draw: Callable[[], Maps]) -> Maps:
    return np.asarray(maps + level * np.sqrt(np.square(maps).mean(axis=1, keepdims=True)) * draw())


def _clipped(maps: Maps, share: float, draw: Callable[[], Maps]) -> Maps:
    limit = np.quantile(np.abs(maps), share, axis=1, keepdims=True)
    return np.asarray(np.clip(maps, -limit, limit))


RELEASES = {
    FULL: Release(lambda maps, parameter, draw: maps),
    "top-k": Release(lambda maps, share, draw: np.where(top(np.abs(maps), share), maps, 0.0), 0.1, most=1),
    "rounded": Release(_rounded, 1, whole=True),
    "noisy": Release(_noisy, 0.5),
    "clipped": Release(_clipped, 0.9, most=1),
    "sign": Release(lambda maps, parameter, draw: np.asarray(np.sign(maps))),
}
"""Releases by name. The parameters are: the share of coordinates kept, significant digits, the noise's standard deviation over
the map's root mean square, and the quantile of absolute values at which larger ones are clipped."""

WORDS = re.compile(r"(?P<name>[a-z-]+)(?::(?P<parameter>\d+(?:\.\d+)?))?")
RELEASED = re.compile(rf"(?P<explainer>.+)~(?P<release>(?:{'|'.join(RELEASES)})(?::[\d.]+)?)")
"""Name of an explainer whose maps are released in another form: `ixg~noisy:0.5`."""


def read_release(words: str) -> tuple[str, float]:
    """Return the name of a release and its parameter, 0 if it has none. Raises ValueError for others."""
    match = WORDS.fullmatch(words)
    name, given = (match["name"], match["parameter"]) if match else (words, None)
    if (known := RELEASES.get(name)) is None:
        raise ValueError(f"unknown release '{words}': {suggest(words, RELEASES)}")
    if known.default is None:
        if given is not None:
            raise ValueError(f"release '{words}': {name} has no parameter")
        return name, 0.0
    value = known.default if given is None else float(given)
    if not 0 < value <= known.most or (known.whole and value % 1):
        kind = "a whole number" if known.whole else "a number"
        below = f" and at most {known.most:g}" if np.isfinite(known.most) else ""
        raise ValueError(f"release '{words}': expected {kind} above 0{below}, as in {name}:{known.default:g}")
    return name, value


def release_of(explainer: str) -> tuple[str, str]:
    """Return the explainer in a name, and the form in which its maps are released."""
    match = RELEASED.fullmatch(explainer)
    return (match["explainer"], match["release"]) if match else (explainer, FULL)


def named_release(explainer: str, release: str) -> str:
    """Return the name of an explainer whose maps are released in this form."""
    return explainer if release == FULL else f"{explainer}~{release}"


def release_maps(
    maps: Float[np.ndarray, "n ..."], words: str, key: tuple[int | str, ...], records: Sequence[int]
) -> Float[np.ndarray, "n ..."]:
    """Return maps in the form in which they are released; a record's noise is keyed by `key` and its number."""
    if words == FULL:
        return maps
    name, parameter = read_release(words)
    flat = maps.reshape(len(maps), -1).astype(np.float64)

    def draw() -> Maps:
        return np.stack([generator(*key, int(record)).standard_normal(flat.shape[1]) for record in records])

    return RELEASES[name].function(flat, parameter, draw).astype(maps.dtype).reshape(maps.shape)
