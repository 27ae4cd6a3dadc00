"""Attribution maps of the same few records in every setting."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.explain.catalogue import explainer_label
from mia_audit.report.data.explanation_metrics import interpretations
from mia_audit.report.data.findings import Finding, Findings
from mia_audit.report.data.series import PALETTE
from mia_audit.report.figures.catalogue import figure, once_for
from mia_audit.report.figures.layout import PAGE, panel_grid, shared_legend, tick
from mia_audit.report.figures.pictures import displayed, signed_colours

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results

LETTERS = 14
"""Number of letters that fit above a map."""
OVERLAID = frozenset({"gradcam"})
"""Explainers whose maps are coarse and therefore drawn over the record."""
CELL = 0.56
"""Width of a map in inches."""
FEATURES = 10
"""Number of a table's features that are shown, the most important ones."""
BAR = 0.05
"""Height of a bar in inches."""
FEATURE_LETTERS = 18
"""Letters per line in a feature's name."""


@figure(
    "explanations",
    once_for("explanations", lambda spec: spec.measured_groups if spec.explanation_maps else []),
    "Explanations of the same records by the first model of every setting, relative to the largest absolute value of each. "
    "Maps of images: orange counts for the class explained, blue against it. Features of tables: mean size over the records.",
)
def explanations(results: Results, findings: Findings, place: tuple[str, str]) -> Figure | str:
    """Draw the maps of a few records by the first shadow model of every setting.

    For images, a row per record has its picture, then every explainer's maps, setting by setting. For tables, a panel per
    explainer ranks the most important features, with a bar per setting.
    """
    group = findings.groups().get(place, [])
    if not group or (maps := results.maps(place)).is_empty():
        return "No setting whose explanations would be shown here was trained to the end."
    interpretation = interpretations(results)[place]
    metadata = results.pool_metadata(place[0]) or {}
    first = [(one.explainer, one.quantity) for one in interpretation.drawn]
    trained = [finding for finding in group if finding.setting.trained]
    if metadata.get("kind") == "image":
        stored = np.load(results.root / "pools" / place[0] / "records.npy", mmap_mode="r")
        return _image_sheet(maps, first, trained, metadata, stored)
    return _feature_chart(maps, first, trained, metadata)


def _image_sheet(
    maps: pl.DataFrame,
    explained: Sequence[tuple[str, str]],
    group: Sequence[Finding],
    metadata: Mapping[str, Any],
    stored: np.ndarray,
) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    records = maps["record"].unique(maintain_order=True).to_list()
    beside = max(1, int((PAGE / CELL - 1) // len(group)))
    bands = math.ceil(len(explained) / beside)
    beside = math.ceil(len(explained) / bands)
    columns = 1 + beside * len(group)
    size = (CELL * columns + 0.5, bands * (CELL * len(records) + 0.45))
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.01, h_pad=0.01, wspace=0.02, hspace=0.02))
    for band, part in enumerate(figure.subfigures(bands, 1, squeeze=False)[:, 0]):
        axes = part.subplots(len(records), columns, squeeze=False)
        for cell in axes.flat:
            cell.set_axis_off()
        for row, record in enumerate(records):
            axes[row][0].imshow(displayed(stored[record]), cmap="gray")
        axes[0][0].set_title("record", fontsize=6, loc="center")
        for turn, (explainer, quantity) in enumerate(explained[band * beside : (band + 1) * beside]):
            for number, finding in enumerate(group):
                column = 1 + turn * len(group) + number
                _maps_of(axes[:, column], maps, records, finding, (explainer, quantity), group[0], metadata)
                if explainer in OVERLAID:
                    for cell, record in zip(axes[:, column], records, strict=True):
                        cell.imshow(displayed(stored[record]), cmap="gray", alpha=0.3)
                name = _heading(finding, group)
                above = explainer_label(explainer) if number == 0 else ""
                title = name if "\n" in name and not above else f"{above}\n{name}"
                axes[0][column].set_title(title, fontsize=6, loc="left")
    return figure


def _maps_of(
    axes: Sequence[Axes],
    maps: pl.DataFrame,
    records: Sequence[int],
    finding: Finding,
    explained: tuple[str, str],
    base: Finding,
    metadata: Mapping[str, Any],
) -> None:
    """Draw one setting's maps of all records, with the class explained where it differs from the first setting's."""
    rows, before = (_rows(maps, setting, explained) for setting in (finding, base))
    for cell, record in zip(axes, records, strict=True):
        row = rows[record]
        cell.imshow(_shares(row), cmap=signed_colours(), vmin=-1, vmax=1)
        if row["class"] != before[record]["class"]:
            cell.text(
                0.03, 0.97, f"→ {metadata['classes'][row['class']]}", fontsize=5.5, va="top", transform=cell.transAxes
            )


def _rows(maps: pl.DataFrame, finding: Finding, explained: tuple[str, str]) -> dict[int, dict[str, Any]]:
    """Return the rows of one setting and explainer, by record."""
    explainer, quantity = explained
    rows = maps.filter(**finding.setting.within_group, explainer=explainer, quantity=quantity)
    return {row["record"]: row for row in rows.iter_rows(named=True)}


def _shares(row: Mapping[str, Any]) -> np.ndarray:
    values = np.asarray(row["map"], dtype=np.float64).reshape(row["height"], row["width"])
    return values / (np.abs(values).max() or 1.0)


def _feature_chart(
    maps: pl.DataFrame, explained: Sequence[tuple[str, str]], group: Sequence[Finding], metadata: Mapping[str, Any]
) -> Figure:
    """Draw the most important features of every explainer, with a bar per setting for the mean size of a feature's share."""
    features = len(maps["map"][0])
    names = metadata.get("features") or [str(place) for place in range(features)]
    shown = min(FEATURES, features)
    figure, panels = panel_grid(1, len(explained), height=0.5 + BAR * shown * (len(group) + 1))
    for axes, key in zip(panels[0], explained, strict=True):
        sizes = np.array([_mean_sizes(_rows(maps, finding, key).values()) for finding in group])
        ranked = np.argsort(-sizes.mean(axis=0), kind="stable")[:shown]
        for order, (finding, size) in enumerate(zip(group, sizes, strict=True)):
            offset = (order - (len(group) - 1) / 2) / (len(group) + 1)
            places = np.arange(shown) + offset
            colour, label = PALETTE[order % len(PALETTE)], tick(finding, group).replace("\n", " ")
            axes.barh(places, size[ranked], height=1 / (len(group) + 1), color=colour, label=label)
        axes.set_yticks(range(shown), [fill(names[place], FEATURE_LETTERS) for place in ranked], fontsize=6)
        axes.invert_yaxis()
        axes.set_title(explainer_label(key[0]))
        axes.set_xlabel("mean size of the share")
    shared_legend(figure, panels)
    return figure


def _mean_sizes(rows: Iterable[Mapping[str, Any]]) -> np.ndarray:
    """Return the mean absolute share of every feature over records."""
    sizes: np.ndarray = np.mean([np.abs(_shares(row)).ravel() for row in rows], axis=0)
    return sizes


def _heading(finding: Finding, group: Sequence[Finding]) -> str:
    """Return a setting's name, wrapped to the width of a map."""
    name = tick(finding, group)
    if len(name) <= LETTERS:
        return name.replace("\n", " ")
    return "\n".join(fill(line, LETTERS) for line in name.splitlines())
