"""The data of a figure, read from its axes: a row per point, interval, bar, or position in a band."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer
    from matplotlib.figure import Figure

CSV = "csv"
"""Suffix of a figure's data."""

COLUMNS = ("panel", "series", "kind", "x", "y", "x_low", "x_high", "y_low", "y_high", "label")
Row = dict[str, Any]


def table_of(figure: Figure) -> pl.DataFrame:
    """Return a figure's points, intervals, bars and bands as a table; maps of records are in explanations.parquet.

    Columns: panel (its title, or its number), series (its name in the legend), kind, x, y, x_low, x_high, y_low,
    y_high, and label: the name of a position on a categorical axis, or of a feature. Elements that the panel's legend
    does not name have no series.
    """
    import polars as pl

    rows = [row for number, axes in enumerate(figure.axes, 1) for row in _rows(axes, number)]
    types = {name: pl.String if name in ("panel", "series", "kind", "label") else pl.Float64 for name in COLUMNS}
    return pl.DataFrame(rows, schema=types)


def _rows(axes: Axes, number: int) -> Iterator[Row]:
    from matplotlib.collections import PolyCollection
    from matplotlib.container import BarContainer, ErrorbarContainer

    panel = " ".join((axes.get_title(loc="left") or axes.get_title()).split()) or str(number)
    names = _names(axes)
    within: set[int] = set()
    for container in axes.containers:
        series = _legend(container)
        if isinstance(container, ErrorbarContainer):
            line, caps, _ = container.lines
            within |= {id(part) for part in (line, *caps) if part is not None}
            yield from ({"panel": panel, "series": series, **row, **names(row)} for row in _errorbars(container))
        elif isinstance(container, BarContainer):
            for bar in container.patches:
                low, left = bar.get_y(), bar.get_x()  # type: ignore[attr-defined]
                row = {"kind": "bar", "x": left + bar.get_width(), "y": low + bar.get_height() / 2, "x_low": left}  # type: ignore[attr-defined]
                if container.orientation == "vertical":
                    row = {"kind": "bar", "x": left + bar.get_width() / 2, "y": low + bar.get_height(), "y_low": low}  # type: ignore[attr-defined]
                yield {"panel": panel, "series": series, **row, **names(row)}
    for line in axes.lines:
        if id(line) in within:
            continue
        x, y = (np.asarray(values, dtype=float) for values in line.get_data())
        for place in range(len(x)):
            row = {"kind": "point", "x": float(x[place]), "y": float(y[place])}
            yield {"panel": panel, "series": _legend(line), **row, **names(row)}
    for collection in axes.collections:
        if isinstance(collection, PolyCollection):
            yield from ({"panel": panel, "kind": "band", **row} for row in _band(collection))


def _errorbars(container: ErrorbarContainer) -> Iterator[Row]:
    line, _, bars = container.lines
    if line is None:
        return
    x, y = (np.asarray(values, dtype=float) for values in line.get_data())
    ends: dict[str, np.ndarray] = {}
    axes = [axis for axis, there in (("x", container.has_xerr), ("y", container.has_yerr)) if there]
    for axis, bar in zip(axes, bars, strict=False):
        segments = np.array([segment[:, "xy".index(axis)] for segment in bar.get_segments()], dtype=float)
        ends |= {f"{axis}_low": segments.min(axis=1), f"{axis}_high": segments.max(axis=1)}
    for place in range(len(x)):
        limits = {name: float(values[place]) for name, values in ends.items() if len(values) == len(x)}
        yield {"kind": "interval", "x": float(x[place]), "y": float(y[place]), **limits}


def _band(collection: Any) -> Iterator[Row]:
    """Yield lowest and highest y of a filled band at every x of its outline."""
    for path in collection.get_paths():
        edges: dict[float, list[float]] = {}
        for x, y in path.vertices:
            edges.setdefault(float(x), []).append(float(y))
        yield from ({"x": x, "y_low": min(ys), "y_high": max(ys)} for x, ys in sorted(edges.items()))


def _legend(artist: Any) -> str | None:
    name = str(artist.get_label())
    return None if name.startswith("_") else name


def _names(axes: Axes) -> Any:
    """Return a function from a row to the label of its position, for axes whose ticks are names."""
    places: dict[str, dict[int, str]] = {}
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        ticks = axis.get_ticklocs()
        texts = axis.get_major_formatter().format_ticks(
            ticks.tolist()
        )  # also if this panel shares the labels of another one
        numbers = [text.replace("\N{MINUS SIGN}", "-").replace(".", "", 1).lstrip("-").isdigit() for text in texts]
        if any(texts) and not all(number for text, number in zip(texts, numbers, strict=True) if text):
            places[name] = {
                round(float(tick)): " ".join(text.split()) for tick, text in zip(ticks, texts, strict=False) if text
            }

    def label(row: Row) -> Row:
        names = [places[name].get(round(row[name])) for name in places if np.isfinite(row[name])]
        words = [text for text in names if text and "$" not in text]
        return {"label": ", ".join(words)} if words else {}

    return label
