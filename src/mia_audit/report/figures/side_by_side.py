"""The same records explained by several architectures, setting by setting (Harder et al. 2020, Figures 2, 4 and 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.explain.catalogue import explainer_label
from mia_audit.report.figures.filters import CELL, tight
from mia_audit.report.figures.pictures import draw_cell

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

LETTERS = 14
"""Number of letters that fit above a map."""


@dataclass(frozen=True)
class Strip:
    """One explainer of one architecture in one setting: the maps of all records [R, H, W] and the classes explained [R]."""

    setting: str
    architecture: str
    explainer: str
    maps: np.ndarray
    classes: np.ndarray

    @property
    def label(self) -> str:
        """Architecture and explainer."""
        return f"{self.architecture}\n{explainer_label(self.explainer)}"


def strips(maps: Mapping[str, pl.DataFrame], headings: Mapping[str, Mapping[tuple[str, str], str]]) -> list[Strip]:
    """Choose each architecture's first explainer that no other one has, or all of its explainers if there is none.

    `maps` are the architectures' explanations.parquet, of the same records; `headings` name their settings by mechanism
    and ε, in the order in which they are drawn.
    """
    explainers = {name: table["explainer"].unique(maintain_order=True).to_list() for name, table in maps.items()}
    chosen_strips = []
    for name, table in maps.items():
        others = {explainer for other, known in explainers.items() if other != name for explainer in known}
        chosen = [explainer for explainer in explainers[name] if explainer not in others][:1] or explainers[name]
        for (mechanism, epsilon), heading in headings[name].items():
            for explainer in chosen:
                rows = table.filter(mechanism=mechanism, epsilon=epsilon, explainer=explainer)
                rows = rows.filter(quantity=rows["quantity"][0]) if len(rows) else rows
                if len(rows):
                    pixels = np.array(rows["map"].to_list()).reshape(len(rows), rows["height"][0], rows["width"][0])
                    chosen_strips.append(Strip(heading, name, explainer, pixels, rows["class"].to_numpy()))
    order = list(dict.fromkeys(heading for known in headings.values() for heading in known.values()))
    return sorted(chosen_strips, key=lambda strip: order.index(strip.setting))


def image_figure(drawn: Sequence[Strip], records: np.ndarray, metadata: Mapping[str, Any]) -> Figure:
    """Draw a band per setting and a row per record: its picture and the maps of every architecture, each on its own scale."""
    settings = list(dict.fromkeys(strip.setting for strip in drawn))
    columns = [[strip for strip in drawn if strip.setting == setting] for setting in settings]
    widest = max(map(len, columns))
    size = (CELL * (1 + widest) * 1.25 + 0.2, len(settings) * (CELL * len(records) + 0.55))
    figure = tight(size, 1.0)
    for band, setting, shown in zip(
        figure.subfigures(len(settings), 1, squeeze=False)[:, 0], settings, columns, strict=True
    ):
        axes = band.subplots(len(records), 1 + widest, squeeze=False)
        for row, record in enumerate(records):
            draw_cell(axes[row][0], record, record.shape, None)
            for column in range(widest):
                cell = axes[row][1 + column]
                if column >= len(shown):
                    cell.set_axis_off()
                    continue
                strip = shown[column]
                values = strip.maps[row]
                draw_cell(cell, values, (1, *values.shape), float(np.abs(values).max()))
                if row == 0:
                    label = "\n".join(fill(line, LETTERS) for line in strip.label.splitlines())
                    cell.set_title(label, fontsize=5, loc="center", pad=2)
                cell.set_xlabel(f"as {metadata['classes'][strip.classes[row]]}", fontsize=5, labelpad=1)
        axes[0][0].set_title(f"{setting}\n", fontsize=7, loc="left", pad=2)
    return figure


def table_figure(drawn: Sequence[Strip], numbers: Sequence[int], metadata: Mapping[str, Any]) -> Figure:
    """Draw a panel per record: a row per architecture, explainer and setting on its own scale, a column per feature."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    width = drawn[0].maps.shape[2]
    features = metadata.get("features") or list(range(width))
    height = (0.13 * len(drawn) + 0.2) * len(numbers) + 1.2
    figure = Figure(figsize=(0.14 * width + 2.6, height), layout=ConstrainedLayoutEngine(w_pad=0.15))
    panels = figure.subplots(len(numbers), 1, squeeze=False, sharex=True)[:, 0]
    for row, (axes, number) in enumerate(zip(panels, numbers, strict=True)):
        values = np.concatenate([strip.maps[row] for strip in drawn])
        shares = values / np.maximum(np.abs(values).max(axis=1, keepdims=True), 1e-30)
        draw_cell(axes, shares, (1, *shares.shape), 1.0, "auto")
        names = [f"{strip.label.replace(chr(10), ', ')}, {strip.setting}" for strip in drawn]
        axes.set_yticks(range(len(drawn)), names, fontsize=5)
        axes.tick_params(length=0)
        axes.set_title(f"record {number}", fontsize=6, pad=2)
    panels[-1].set_xticks(range(width), features, rotation=90, fontsize=5)
    return figure
