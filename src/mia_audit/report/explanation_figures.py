"""Figures of explanations: what privacy does to them beside accuracy and leakage, and the same records' maps in every setting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from mia_audit.report.figures import tick
from mia_audit.report.findings import Finding, Findings, reference
from mia_audit.report.interpretability import Interpretation, likeness, measure_label
from mia_audit.report.panels import GUESSING, PAGE, errorbars, label_lines, name_places, panel_grid, shared_legend
from mia_audit.report.pictures import NEGATIVE, POSITIVE, ZERO
from mia_audit.report.series import CHANNELS, PALETTE
from mia_audit.report.signals import explainer_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.results import Results

LETTERS = 14
"""Letters that fit above a map."""
OVERLAID = frozenset({"gradcam"})
"""Explainers whose maps are so coarse that they are laid over the record."""
CELL = 0.56
"""Width of a map in inches."""


def interpretability_figure(findings: Findings, interpreted: Mapping[tuple[str, str], Interpretation]) -> Figure:
    """Draw test accuracy, likeness of explanations and leakage over the settings of a group, a column of panels per group."""
    groups = [(group, interpreted[place]) for place, group in findings.groups().items() if place in interpreted]
    figure, rows = panel_grid(3, len(groups), height=1.5)
    labels = list(dict.fromkeys(one.label for _, interpretation in groups for one in interpretation.drawn))
    for column, (group, interpretation) in enumerate(groups):
        accuracy, alike, leakage = (row[column] for row in rows)
        known = [(x, found.test_accuracy) for x, found in enumerate(group) if found.test_accuracy]
        errorbars(accuracy, known, "0.1", "o", "test accuracy")
        _likeness(alike, group, interpretation, labels)
        low, high = alike.get_ylim()
        alike.set_ylim(
            max(low, -1.05), min(high, 1.05)
        )  # no likeness is above 1, whatever the interval of two pairs says
        for offset, (channel, (shade, marker)) in zip((-0.1, 0.1, 0.0), ATTACKS.items(), strict=True):
            strongest = [(x, found.strongest.get(channel)) for x, found in enumerate(group)]
            values = [(x + offset, leak.auc_estimate) for x, leak in strongest if leak]
            errorbars(leakage, values, shade, marker, f"attack on {CHANNELS[channel]}")
        leakage.axhline(0.5, **GUESSING)
        name_places(leakage, [tick(found, group) for found in group])
        accuracy.set_title(f"{group[0].setting.dataset}, {group[0].setting.architecture}")
        if headline := interpretation.headline:
            label = f"{measure_label(headline)}\nwith no DP"
            label_lines([alike], label)
            if column and headline != groups[column - 1][1].headline:
                alike.set_ylabel(label)
    label_lines(rows[0], "test accuracy")
    label_lines(rows[2], "AUC of attacks")
    shared_legend(figure, rows)
    return figure


ATTACKS = {"outputs": ("0.1", "s"), "explanations": ("0.5", "D"), "both": ("0.7", "^")}
"""Shades of the channels: the colours are the explainers'."""


def _likeness(axes: Axes, group: list[Finding], interpretation: Interpretation, labels: Sequence[str]) -> None:
    """Draw likeness to the reference's models; at the reference itself, of two of its models, hollow and as a line."""
    base = reference(group)
    drawn = interpretation.drawn
    found = [(x, setting, likeness(setting, base, interpretation)) for x, setting in enumerate(group)]
    for slot, one in enumerate(drawn):
        offset = (slot - (len(drawn) - 1) / 2) * 0.7 / max(len(drawn), 1)
        number = labels.index(one.label)
        colour, marker = PALETTE[number % len(PALETTE)], "os^DvP"[number % 6]
        values = [(x + offset, alike[one]) for x, setting, alike in found if one in alike and setting is not base]
        errorbars(axes, values, colour, marker, one.label)
        level = [(x + offset, alike[one]) for x, setting, alike in found if one in alike and setting is base]
        errorbars(axes, level, colour, marker, f"_{one.label}", markerfacecolor="white")
        for _, value in level:
            axes.axhline(value.mean, color=colour, linewidth=0.6, alpha=0.5, linestyle=(0, (1, 2)), zorder=1)
    axes.plot([], [], "o", color="0.4", markerfacecolor="white", markersize=3.4, label="hollow: two models with no DP")


def sheet_figure(results: Results, group: Sequence[Finding], interpretation: Interpretation) -> Figure:
    """Draw the maps of a few records by the first shadow model of every setting, each in shares of its largest value.

    Images: a row per record, its picture first, then every explainer's maps, setting by setting. Tables: a strip per
    record and explainer, a row per setting and a column per feature.
    """
    place = group[0].setting.group
    maps = results.maps(place)
    facts = results.pool_facts(place[0]) or {}
    first = [(one.explainer, one.quantity) for one in interpretation.drawn]
    trained = [found for found in group if found.setting.trained]
    if facts.get("kind") == "image":
        stored = np.load(results.root / "pools" / place[0] / "records.npy", mmap_mode="r")
        return _image_sheet(maps, first, trained, facts, stored)
    return _table_sheet(maps, first, trained, facts)


def _image_sheet(
    maps: pl.DataFrame,
    explained: Sequence[tuple[str, str]],
    group: Sequence[Finding],
    facts: Mapping[str, Any],
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
            axes[row][0].imshow(_picture(stored[record]), cmap="gray")
        axes[0][0].set_title("record", fontsize=6, loc="center")
        for turn, (explainer, quantity) in enumerate(explained[band * beside : (band + 1) * beside]):
            for number, found in enumerate(group):
                column = 1 + turn * len(group) + number
                _maps_of(axes[:, column], maps, records, found, (explainer, quantity), group[0], facts)
                if explainer in OVERLAID:
                    for cell, record in zip(axes[:, column], records, strict=True):
                        cell.imshow(_picture(stored[record]), cmap="gray", alpha=0.3)
                name = _heading(found, group)
                above = explainer_label(explainer) if number == 0 else ""
                title = name if "\n" in name and not above else f"{above}\n{name}"
                axes[0][column].set_title(title, fontsize=6, loc="left")
    return figure


def _picture(record: np.ndarray) -> np.ndarray:
    """Return a record as it is drawn: in colour, or its channels' mean in grey."""
    picture = record.transpose(1, 2, 0)
    return picture if picture.shape[2] == 3 else picture.mean(axis=2)


def _maps_of(
    axes: Sequence[Axes],
    maps: pl.DataFrame,
    records: Sequence[int],
    found: Finding,
    explained: tuple[str, str],
    base: Finding,
    facts: Mapping[str, Any],
) -> None:
    """Draw one setting's maps of all records, and the class explained where it is another one than the first setting's."""
    rows, before = (_rows(maps, setting, explained) for setting in (found, base))
    for cell, record in zip(axes, records, strict=True):
        row = rows[record]
        cell.imshow(_shares(row), cmap=_colours(), vmin=-1, vmax=1)
        if row["class"] != before[record]["class"]:
            cell.text(
                0.03, 0.97, f"→ {facts['classes'][row['class']]}", fontsize=5.5, va="top", transform=cell.transAxes
            )


def _rows(maps: pl.DataFrame, found: Finding, explained: tuple[str, str]) -> dict[int, dict[str, Any]]:
    """Return the rows of one setting and explainer, by record."""
    rows = maps.filter(
        pl.col("mechanism") == found.setting.mechanism,
        pl.col("epsilon") == found.setting.epsilon,
        pl.col("explainer") == explained[0],
        pl.col("quantity") == explained[1],
    )
    return {row["record"]: row for row in rows.iter_rows(named=True)}


def _shares(row: Mapping[str, Any]) -> np.ndarray:
    values = np.asarray(row["map"], dtype=np.float64).reshape(row["height"], row["width"])
    return values / (np.abs(values).max() or 1.0)


def _colours() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("signed", [colour / 255 for colour in (NEGATIVE, ZERO, POSITIVE)])


def _table_sheet(
    maps: pl.DataFrame, explained: Sequence[tuple[str, str]], group: Sequence[Finding], facts: Mapping[str, Any]
) -> Figure:
    from matplotlib.figure import Figure

    records = maps["record"].unique(maintain_order=True).to_list()
    features = facts.get("features") or []
    height = (0.1 * len(group) + 0.12) * len(explained) * len(records) + 1.3
    figure = Figure(figsize=(PAGE, height), layout="constrained")
    axes = figure.subplots(len(explained) * len(records), 1, squeeze=False, sharex=True)[:, 0]
    names = [tick(found, list(group)).replace("\n", " ") for found in group]
    for number, cell in enumerate(axes):
        key, record = explained[number // len(records)], records[number % len(records)]
        strip = np.concatenate([_shares(_rows(maps, found, key)[record]) for found in group])
        cell.imshow(strip, cmap=_colours(), vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
        cell.set_yticks(range(len(group)), names, fontsize=5)
        cell.tick_params(length=0)
        cell.spines[:].set_visible(False)
        cell.set_title(f"{explainer_label(key[0])}, record {record}", fontsize=6, pad=1.5)
    axes[-1].set_xticks(range(strip.shape[1]), features or range(strip.shape[1]), rotation=90, fontsize=5.5)
    return figure


def _heading(found: Finding, group: Sequence[Finding]) -> str:
    """Name a setting above a map: in one line where it fits, and in no wider ones."""
    name = tick(found, list(group))
    if len(name) <= LETTERS:
        return name.replace("\n", " ")
    return "\n".join(fill(line, LETTERS) for line in name.splitlines())
