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
        parts = [[], *(line.get_xydata() for line in data if line.get_color() != GUESSING["color"])]
        for shape in axes.collections:
            points = isinstance(shape, PathCollection)
            parts += [shape.get_offsets()] if points else [path.vertices for path in shape.get_paths()]
        for patch in axes.patches:
            step = isinstance(patch, StepPatch)
            parts += patch.get_data()[:2] if step else [[patch.get_width(), patch.get_y() + patch.get_height() / 2]]
        table = table_of(SimpleNamespace(axes=[axes]))
        numbers = (
            np.ravel(table.select(pl.col(pl.Float64)).to_numpy()),
            np.concatenate([np.ravel(one) for one in parts]),
        )
        known, drawn = (np.unique(some[np.isfinite(some.astype(float))]) for some in numbers)
        places = np.round(drawn) if table["label"].count() else drawn
        alike = np.isclose(known, drawn[:, None], 1e-9, 1e-12) | np.isclose(known, places[:, None], 1e-9)
        below = (drawn < axes.get_ylim()[0]) & (axes.get_yscale() == "log")
        assert alike.any(axis=0).all(), (axes.get_label(), known[~alike.any(axis=0)])
        assert (alike.any(axis=1) | below).all(), (axes.get_label(), drawn[~alike.any(axis=1)])


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
