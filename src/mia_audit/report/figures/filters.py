"""Filters of locally linear maps by record and by class, in every setting side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.report.figures.style import draw_cell

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from matplotlib.figure import Figure
    from torch import Tensor

    from mia_audit.models.architectures.locally_linear_maps import LocallyLinearMaps

CELL = 0.46
"""Side of a filter in inches."""
HEADING = 0.2
"""Height of the line of headings."""


@dataclass(frozen=True)
class Top:
    """The maps with the largest shares for the class that a model predicts, of every record shown."""

    classes: Int[np.ndarray, " R"]
    shares: Float[np.ndarray, "R T"]
    filters: Float[np.ndarray, "R T D"]


EVEN = 1.2
"""If the top map's mean share is below this multiple of an even share, no map decides: the mixture is one linear map."""


@dataclass(frozen=True)
class Column:
    """One setting: its heading, the records' top maps, every class's leading filter, and the mean share of the top map.

    `top_share` is the largest share that any of the `maps` maps has for the predicted class, averaged over a sample of records.
    """

    heading: str
    top: Top
    leading: Float[np.ndarray, "K D"]
    top_share: float
    maps: int

    @property
    def mixes_evenly(self) -> bool:
        """Whether the top map's share is close to that of an even mixture."""
        return self.maps > 1 and self.top_share < EVEN / self.maps

    @property
    def title(self) -> str:
        """The heading, with a warning if no map stands out."""
        return f"{self.heading} (maps mixed evenly)" if self.mixes_evenly else self.heading


def column(heading: str, model: LocallyLinearMaps, shown: Tensor, sample: Tensor, count: int) -> Column:
    """Return a setting's maps for the records shown, and its leading filters over a sample of records.

    A class's leading filter is that of the map with the largest mean share over the sample.
    """
    import torch

    with torch.no_grad():
        scores = model.scores(model.projected(shown))
        classes = model.mixed(scores).argmax(dim=1)
        shares = model.shares(scores)[torch.arange(len(classes)), :, classes]
        top = shares.topk(min(count, shares.shape[1]), dim=1)
        filters = model.filters()
        chosen = filters[top.indices, classes[:, None]]
        scores = model.scores(model.projected(sample))
        mixture = model.shares(scores)
        leading = filters[mixture.mean(dim=0).argmax(dim=0), torch.arange(filters.shape[1])]
        predicted = model.mixed(scores).argmax(dim=1)
        largest = mixture[torch.arange(len(predicted)), :, predicted].amax(dim=1).mean()
    top_maps = Top(*(value.numpy() for value in (classes, top.values, chosen)))
    return Column(heading, top_maps, leading.numpy(), float(largest), mixture.shape[1])


def record_sheet(
    columns: Sequence[Column], records: np.ndarray, metadata: Mapping[str, Any], labels: Sequence[str]
) -> Figure:
    """Draw a row per record: the record, then its top maps in every setting with the predicted class and their shares.

    Every filter has its own scale: blue counts against the class, orange for it (Harder et al. 2020, Figures 2 and 3).
    """
    shape = tuple(metadata["shape"])
    most = [one.top.shares.shape[1] for one in columns]
    wide = 1 if len(shape) == 3 else 3
    ratios = [1.0] + [part for count in most for part in [0.25, *[1.0] * count]]
    size = (CELL * wide * sum(ratios) + 0.2, (CELL + 0.15) * len(records) + HEADING)
    figure = tight(size, 1 - HEADING / size[1])
    grid = figure.subplots(len(records), len(ratios), squeeze=False, width_ratios=ratios)
    for row, record in enumerate(records):
        draw_cell(grid[row][0], record, record.shape, None)
        grid[row][0].set_title(labels[row], fontsize=6, loc="center", pad=2)
        position = 1
        for one, count in zip(columns, most, strict=True):
            grid[row][position].set_axis_off()  # a gap between settings
            for rank in range(count):
                axes = grid[row][position + 1 + rank]
                values = one.top.filters[row, rank]
                draw_cell(axes, values, shape, float(np.abs(values).max()))
                share = f"{one.top.shares[row, rank]:.2f}"
                named = f"{metadata['classes'][one.top.classes[row]]}: {share}" if rank == 0 else share
                axes.set_title(named, fontsize=5.5, loc="center", pad=2)
                if row == 0 and rank == 0:
                    heading = axes.annotate(
                        one.title, (0, 1), (0, 11), xycoords="axes fraction", textcoords="offset points", fontsize=7
                    )
                    heading.set_in_layout(False)  # it may be wider than its first filter
            position += 1 + count
    return figure


def class_sheet(columns: Sequence[Column], metadata: Mapping[str, Any]) -> Figure:
    """Draw a row per setting: every class's leading filter, each on its own scale."""
    shape, classes = tuple(metadata["shape"]), metadata["classes"]
    wide = 1 if len(shape) == 3 else 3
    size = (CELL * wide * len(classes) + 0.7, (CELL + 0.03) * len(columns) + 0.2)
    figure = tight(size, 1.0)
    grid = figure.subplots(len(columns), len(classes), squeeze=False)
    for row, one in enumerate(columns):
        for k, name in enumerate(classes):
            values = one.leading[k]
            draw_cell(grid[row][k], values, shape, float(np.abs(values).max()))
            if row == 0:
                grid[row][k].set_title(str(name), fontsize=7, loc="center", pad=2)
        grid[row][0].set_ylabel(one.title, rotation=0, ha="right", va="center", fontsize=7)
    return figure


def tight(size: tuple[float, float], top: float) -> Figure:
    """Return a figure without padding whose panels fill a share of its height."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(
        figsize=size,
        layout=ConstrainedLayoutEngine(rect=(0, 0, 1, top), w_pad=0.01, h_pad=0.01, wspace=0.0, hspace=0.0),
    )
