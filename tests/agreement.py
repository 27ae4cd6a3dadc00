"""Every figure that a test draws agrees with its data: numbers of the one are in the other."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from matplotlib.collections import PathCollection
from matplotlib.patches import StepPatch

from mia_audit.report.figures.catalogue import GUESSING, FigureKind, table_of


def agree(figure):
    """Check every panel, without lines at guessing; what has a named place is drawn less than a half beside it."""
    for axes in figure.axes:
        data = [one for one in axes.lines if one.get_transform() == axes.transData]
        corners = [line.get_xydata() for line in data if line.get_color() != GUESSING["color"]]
        for shape in axes.collections:
            points = isinstance(shape, PathCollection)
            corners += [shape.get_offsets()] if points else [path.vertices for path in shape.get_paths()]
        others = []
        for patch in axes.patches:
            step = isinstance(patch, StepPatch)
            others += patch.get_data()[:2] if step else [[patch.get_width(), patch.get_y() + patch.get_height() / 2]]
        lowest = axes.get_ylim()[0] if axes.get_yscale() == "log" else -np.inf
        shown = [one[one[:, 1] >= lowest] for one in map(np.asarray, corners)]
        table = table_of(SimpleNamespace(axes=[axes]))
        written = numbers(table.select(pl.col(pl.Float64)).to_numpy())
        named = bool(table["label"].count())
        missing = written[~alike(written, numbers(*corners, *others), named).any(axis=1)]
        assert not len(missing), f"only in the data of '{axes.get_label()}': {missing}"
        drawn = numbers(*shown, *others)
        missing = drawn[~alike(written, drawn, named).any(axis=0)]
        assert not len(missing), f"only in the picture of '{axes.get_label()}': {missing}"


def alike(written, drawn, named):
    """Return which numbers [written, drawn] are equal, where places have names also if they are drawn beside each other."""
    beside = np.isclose(written[:, None], np.round(drawn), 1e-9) & named
    return np.isclose(written[:, None], drawn, 1e-9, 1e-12) | beside


def numbers(*parts):
    """Return the different finite numbers of arrays."""
    every = np.concatenate([[], *map(np.ravel, parts)]).astype(float)
    return np.unique(every[np.isfinite(every)])


@pytest.fixture(autouse=True, scope="session")
def figures_agree_with_their_data():
    """Check every figure that is drawn, of every kind."""
    draw = FigureKind.__call__

    def checked(*given, **more):
        if not isinstance(figure := draw(*given, **more), str):
            agree(figure)
        return figure

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FigureKind, "__call__", checked)
        yield
