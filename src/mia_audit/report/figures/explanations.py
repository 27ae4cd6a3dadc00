"""Figures of explanations: maps, what privacy does to them, curves, releases, architectures side by side, and filters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.errors import UserError
from mia_audit.explain.catalogue import explainer_label, intrinsic
from mia_audit.explain.release import FULL, release_of
from mia_audit.explanation_metrics import FULL_MAP, measures
from mia_audit.report.figures.catalogue import (
    GUESSING,
    PAGE,
    add_rows,
    blank,
    chosen,
    displayed,
    draw_cell,
    draw_line,
    errorbars,
    figure,
    label_lines,
    name_places,
    once,
    once_for,
    panel_grid,
    shared_legend,
    signed_colours,
    tick,
    with_several,
)
from mia_audit.report.findings import Finding, Findings, reference
from mia_audit.report.formatting import titled
from mia_audit.report.series import (
    CHANNELS,
    DASHES,
    MARKERS,
    PALETTE,
    Explained,
    Interpretation,
    Series,
    curves_of,
    explainer_series,
    interpretations,
    measure_label,
    similarity,
    strongest,
)

if TYPE_CHECKING:
    import polars as pl
    from jaxtyping import Float, Int
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from mia_audit.models.architectures.locally_linear_maps import LocallyLinearMaps
    from mia_audit.report.results import Results
    from mia_audit.report.spec import AuditedSetting, ReportedAudit

LETTERS = 14
"""Number of letters that fit above a map."""
OVERLAID = frozenset({"gradcam"})
"""Explainers whose maps are coarse and therefore drawn over the record."""
MAP_CELL = 0.56
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
    records = maps["record"].unique(maintain_order=True).to_list()
    beside = max(1, int((PAGE / MAP_CELL - 1) // len(group)))
    bands = math.ceil(len(explained) / beside)
    beside = math.ceil(len(explained) / bands)
    columns = 1 + beside * len(group)
    size = (MAP_CELL * columns + 0.5, bands * (MAP_CELL * len(records) + 0.45))
    figure = blank(*size, w_pad=0.01, h_pad=0.01, wspace=0.02, hspace=0.02)
    for band, part in enumerate(figure.subfigures(bands, 1, squeeze=False)[:, 0]):
        axes = part.subplots(len(records), columns, squeeze=False)
        for cell in axes.flat:
            cell.set_axis_off()
        for row, record in enumerate(records):
            axes[row][0].imshow(displayed(stored[record]), cmap="gray")
        axes[0][0].set_title("record", fontsize=6, loc="center")
        for turn, key in enumerate(explained[band * beside : (band + 1) * beside]):
            for number, finding in enumerate(group):
                column = 1 + turn * len(group) + number
                rows, first = (_rows(maps, setting, key) for setting in (finding, group[0]))
                for cell, record in zip(axes[:, column], records, strict=True):
                    cell.imshow(_shares(rows[record]), cmap=signed_colours(), vmin=-1, vmax=1)
                    if (explained_class := rows[record]["class"]) != first[record]["class"]:
                        label = f"→ {metadata['classes'][explained_class]}"
                        cell.text(0.03, 0.97, label, fontsize=5.5, va="top", transform=cell.transAxes)
                    if key[0] in OVERLAID:
                        cell.imshow(displayed(stored[record]), cmap="gray", alpha=0.3)
                name = _heading(finding, group)
                above = explainer_label(key[0]) if number == 0 else ""
                title = name if "\n" in name and not above else f"{above}\n{name}"
                axes[0][column].set_title(title, fontsize=6, loc="left")
    return figure


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
        shares = ([np.abs(_shares(row)).ravel() for row in _rows(maps, finding, key).values()] for finding in group)
        sizes = np.array([np.mean(records, axis=0) for records in shares])
        ranked = np.argsort(-sizes.mean(axis=0), kind="stable")[:shown]
        for order, (finding, size) in enumerate(zip(group, sizes, strict=True)):
            offset = (order - (len(group) - 1) / 2) / (len(group) + 1)
            places = np.arange(shown) + offset
            colour, label = PALETTE[order % len(PALETTE)], tick(finding, group).replace("\n", " ")
            axes.barh(places, size[ranked], height=1 / (len(group) + 1), color=chosen(label, colour), label=label)
            add_rows(axes, "bar", label, x=size[ranked], y=range(shown), label=[names[place] for place in ranked])
        axes.set_yticks(range(shown), [fill(names[place], FEATURE_LETTERS) for place in ranked], fontsize=6)
        axes.invert_yaxis()
        axes.set_title(explainer_label(key[0]))
        axes.set_xlabel("mean size of the share")
    shared_legend(figure, panels)
    return figure


def _heading(finding: Finding, group: Sequence[Finding]) -> str:
    """Return a setting's name, wrapped to the width of a map."""
    name = tick(finding, group)
    if len(name) <= LETTERS:
        return name.replace("\n", " ")
    return "\n".join(fill(line, LETTERS) for line in name.splitlines())


ATTACKS = {"outputs": ("0.1", "s"), "explanations": ("0.5", "D"), "both": ("0.7", "^")}
"""Shade and marker of the channels; colours are the explainers'."""


@figure(
    "explanation_metrics",
    once("explanation_metrics", lambda spec: spec.explanation_metrics and spec.groups),
    "Test accuracy, similarity of explanations and AUC of attacks in every setting, with intervals. Similarity is with "
    "the model without DP that has the same training set; hollow: between two models without DP with different training sets.",
)
def explanation_metrics(results: Results, findings: Findings, subject: tuple[str, str] | None = None) -> Figure | str:
    """Draw accuracy, similarity of explanations and leakage over the settings, a column of panels per group, or for one group."""
    interpreted = interpretations(results)
    groups = [(group, interpreted[place]) for place, group in findings.groups(subject).items() if place in interpreted]
    if not groups:
        return "No setting whose explanations would be shown here was trained to the end."
    figure, rows = panel_grid(3, len(groups), height=1.5, names=max(len(group) for group, _ in groups))
    for column, (group, interpretation) in enumerate(groups):
        accuracy, similar, leakage = (row[column] for row in rows)
        names = [tick(finding, group) for finding in group]
        known = [(x, one.test_accuracy, names[x]) for x, one in enumerate(group) if one.test_accuracy]
        errorbars(accuracy, known, "0.1", "o", "test accuracy")
        _similarity(similar, group, interpretation, explainer_series(group, findings.settings, interpretation))
        low, high = similar.get_ylim()
        similar.set_ylim(max(low, -1.05), min(high, 1.05))  # intervals may exceed the range of a similarity
        for offset, (channel, (shade, marker)) in zip((-0.1, 0.1, 0.0), ATTACKS.items(), strict=True):
            strongest = [(x, finding.strongest.get(channel)) for x, finding in enumerate(group)]
            values = [(x, leak.auc_estimate, names[x]) for x, leak in strongest if leak]
            errorbars(leakage, values, shade, marker, f"attack on {CHANNELS[channel]}", shift=offset)
        leakage.axhline(0.5, **GUESSING)
        name_places(leakage, names)
        accuracy.set_title(group[0].setting.place)
        for axes, quantity in ((accuracy, "test accuracy"), (similar, "similarity"), (leakage, "AUC of attacks")):
            axes.set_label(f"{group[0].setting.place}: {quantity}")
        if headline := interpretation.headline:
            label = f"{measure_label(headline)}\nwith no DP"
            label_lines([similar], label)
            if column and headline != groups[column - 1][1].headline:
                similar.set_ylabel(label)
    label_lines(rows[0], "test accuracy")
    label_lines(rows[2], "AUC of attacks")
    shared_legend(figure, rows)
    return figure


def _similarity(
    axes: Axes, group: list[Finding], interpretation: Interpretation, looks: Mapping[Explained, Series]
) -> None:
    """Draw the similarity to the reference's models, and that between two reference models as hollow markers and lines."""
    base = reference(group)
    drawn = interpretation.drawn
    known = [(x, finding, similarity(finding, base, interpretation)) for x, finding in enumerate(group)]
    for slot, one in enumerate(drawn):
        offset = (slot - (len(drawn) - 1) / 2) * 0.7 / max(len(drawn), 1)
        colour, marker = chosen(one.label, looks[one].colour), looks[one].marker
        for start, face, of_base in (("", colour, False), ("_", "white", True)):
            placed = [(x, values[one], finding) for x, finding, values in known if one in values]
            points = [(x, value, tick(finding, group)) for x, value, finding in placed if (finding is base) == of_base]
            errorbars(axes, points, colour, marker, f"{start}{one.label}", shift=offset, markerfacecolor=face)
        for _, value, _ in points:
            axes.axhline(value.mean, color=colour, linewidth=0.6, alpha=0.5, linestyle=(0, (1, 2)), zorder=1)
    axes.plot([], [], "o", color="0.4", markerfacecolor="white", markersize=3.4, label="hollow: two models with no DP")


@figure(
    "curves",
    once_for("curves", lambda spec: spec.measured_groups if spec.curves else []),
    "Probability of the class when the most important pixels or columns are removed (deletion) or inserted (insertion) first. "
    "Bands: intervals over models.",
)
def curves(results: Results, findings: Findings, place: tuple[str, str]) -> Figure | str:
    """Draw a panel per explainer and measure, a line per setting, with intervals over shadow models as bands."""
    group = findings.groups().get(place, [])
    known = list(curves_of(results, group, results.spec.confidence)) if group else []
    if not known:
        return "No setting whose explanations would be shown here was trained to the end."
    explained = list({curve.explained.explainer: curve.explained for curve in reversed(known)}.values())[::-1]
    kinds = list(dict.fromkeys(curve.measure for curve in known))
    figure, panels = panel_grid(len(kinds), len(explained), height=1.6)
    for row, measure in enumerate(kinds):
        for column, one in enumerate(explained):
            axes = panels[row][column]
            for curve in known:
                if (curve.measure, curve.explained) == (measure, one):
                    order = group.index(curve.finding)
                    colour, dash = PALETTE[order % len(PALETTE)], DASHES[order % len(DASHES)]
                    name = titled(curve.finding.setting)
                    draw_line(axes, curve.shares, curve.heights, colour, name, dashes=dash or (None, None))
            axes.set(xlim=(0, 1), ylim=(0, 1), label=f"{one.label}: {measure}")
            if row == 0:
                axes.set_title(one.label)
            if row == len(kinds) - 1:
                axes.set_xlabel("share of pixels or columns")
        label_lines(panels[row], f"{measure}\nprobability")
    shared_legend(figure, panels)
    return figure


@figure(
    "releases",
    once_for("releases", lambda spec: spec.measured_groups if spec.releases else []),
    "AUC of the strongest attack on every form in which explanations are released, over what the form keeps: similarity to "
    "the full map, and measures of faithfulness. Means with intervals over models.",
)
def releases(results: Results, findings: Findings, place: tuple[str, str]) -> Figure | str:
    """Draw a panel per measure and a line of panels per setting: a point per release, its shape that of the explainer."""
    group = [finding for finding in findings.groups().get(place, []) if finding.setting.measured]
    interpretation = interpretations(results).get(place)
    if not group or interpretation is None:
        return "No setting whose explanations would be shown here was trained to the end."
    names = list(dict.fromkeys(release_of(one.explainer)[0] for one in interpretation.drawn))
    forms = list(dict.fromkeys(release_of(one.explainer)[1] for one in interpretation.drawn))
    shown = [name for name in interpretation.measures if measures[name].compares or measures[name].probes]
    if not shown:
        return "No measure of similarity or faithfulness was asked for."
    figure, panels = panel_grid(len(group), len(shown), height=1.6)
    for row, finding in enumerate(group):
        leaks = strongest(finding)
        for column, measure in enumerate(shown):
            axes = panels[row][column]
            axes.set_label(f"{titled(finding.setting)}: {measure_label(measure)}")
            against = FULL_MAP if measures[measure].compares else None
            for one in interpretation.drawn:
                name, form = release_of(one.explainer)
                cost = interpretation.estimate(finding.setting, one, measure, against)
                at = 1.0 if against and form == FULL else cost.mean if cost else None
                if at is None or (leak := leaks.get(explainer_label(one.explainer))) is None:
                    continue
                turn, number = divmod(forms.index(form), len(PALETTE))
                colour, marker = PALETTE[number], MARKERS[(names.index(name) + turn) % len(MARKERS)]
                errorbars(axes, [(at, leak.auc_estimate)], colour, marker, explainer_label(one.explainer))
            axes.axhline(0.5, **GUESSING)
            if row == len(group) - 1:
                axes.set_xlabel(measure_label(measure) + ("\nto the full map" if against else ""))
        panels[row][0].set_title(titled(finding.setting))
        label_lines(panels[row], "AUC")
    shared_legend(figure, panels)
    return figure


def _explained_by_several(spec: ReportedAudit) -> list[str]:
    """Name the data sets whose records are explained by several models; sweeps are left out."""
    shown = set(spec.measured_groups if spec.explanation_maps else ())
    known = (one for one in spec.settings if one.group in shown and not one.swept)
    return with_several((one.dataset, one.model or one.architecture) for one in known)


@figure(
    "side_by_side",
    once_for("side_by_side", _explained_by_several),
    "Explanations of the same records by the first model of every architecture and setting, relative to the largest absolute "
    "value of each: the explanation that only one architecture has, or else all. Orange counts for the class explained, blue "
    "against it.",
)
def side_by_side(results: Results, findings: Findings, dataset: str) -> Figure | str:
    """Draw the maps of explanations.parquet of all architectures of a data set; UserError if they are of different records."""
    measured = results.spec.measured_groups
    groups = {
        place: group
        for place, group in findings.groups().items()
        if place[0] == dataset and place in measured and not group[0].setting.swept
    }
    maps = {place[1]: results.maps(place) for place in groups}
    explained = strips(maps, {place[1]: [one.setting for one in group] for place, group in groups.items()})
    if not explained:
        return "No setting whose explanations would be shown here was trained to the end."
    numbers, *others = (table["record"].unique(maintain_order=True).to_list() for table in maps.values())
    if any(other != numbers for other in others):
        raise UserError(
            f"{results.root / dataset}: the files explanations.parquet of the architectures hold different records; run their"
            " explanation metrics again"
        )
    metadata = results.pool_metadata(dataset) or {}
    if metadata.get("kind") != "image":
        return table_figure(explained, numbers, metadata)
    stored = np.load(results.root / "pools" / dataset / "records.npy", mmap_mode="r")
    return image_figure(explained, stored[numbers], metadata)


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


def strips(maps: Mapping[str, pl.DataFrame], settings: Mapping[str, Sequence[AuditedSetting]]) -> list[Strip]:
    """Choose each architecture's first explainer that no other one has, or all of its explainers if there is none.

    Explanations that belong to a model (its filters) are those of the logit, others those of the first quantity explained.
    `maps` are the architectures' explanations.parquet, of the same records; `settings`, those of each, in the order in
    which they are drawn.
    """
    explainers = {name: table["explainer"].unique(maintain_order=True).to_list() for name, table in maps.items()}
    chosen_strips = []
    for name, table in maps.items():
        others = {explainer for other, known in explainers.items() if other != name for explainer in known}
        chosen = [explainer for explainer in explainers[name] if explainer not in others][:1] or explainers[name]
        for setting in settings[name]:
            for explainer in chosen:
                rows = table.filter(**setting.within_group, explainer=explainer)
                if len(rows):
                    own = intrinsic(explainer) and "logit" in rows["quantity"]
                    rows = rows.filter(quantity="logit" if own else rows["quantity"][0])
                    pixels = np.array(rows["map"].to_list()).reshape(len(rows), rows["height"][0], rows["width"][0])
                    chosen_strips.append(Strip(titled(setting), name, explainer, pixels, rows["class"].to_numpy()))
    order = list(dict.fromkeys(titled(setting) for known in settings.values() for setting in known))
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
    width = drawn[0].maps.shape[2]
    features = metadata.get("features") or list(range(width))
    height = (0.13 * len(drawn) + 0.2) * len(numbers) + 1.2
    figure = blank(0.14 * width + 2.6, height, w_pad=0.15)
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


CELL = 0.46
"""Side of a filter in inches."""
HEADING = 0.32
"""Height of two lines of headings."""
TITLE_LETTERS = 11
"""Letters in a line of a title above a filter."""


EVEN = 1.2
"""If the top map's mean share is below this multiple of an even share, no map decides: the mixture is one linear map."""


@dataclass(frozen=True)
class Filters:
    """One setting: its heading, the records' top maps, every class's leading filter, and the mean share of the top map.

    The top maps of a record are those with the largest shares for the class that the model predicts. `top_share` is the
    largest share that any of the `maps` maps has for the predicted class, averaged over a sample of records.
    """

    heading: str
    classes: Int[np.ndarray, " R"]
    shares: Float[np.ndarray, "R T"]
    filters: Float[np.ndarray, "R T D"]
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


def column(heading: str, model: LocallyLinearMaps, shown: Tensor, sample: Tensor, count: int) -> Filters:
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
    shown_maps = classes.numpy(), top.values.numpy(), chosen.numpy()
    return Filters(heading, *shown_maps, leading.numpy(), float(largest), mixture.shape[1])


def record_sheet(
    columns: Sequence[Filters], records: np.ndarray, metadata: Mapping[str, Any], labels: Sequence[str]
) -> Figure:
    """Draw a row per record: the record, then its top maps in every setting with the predicted class and their shares.

    Every filter has its own scale: blue counts against the class, orange for it (Harder et al. 2020, Figures 2 and 3).
    """
    shape = tuple(metadata["shape"])
    most = [one.shares.shape[1] for one in columns]
    wide = 1 if len(shape) == 3 else 3
    ratios = [1.0] + [part for count in most for part in [0.25, *[1.0] * count]]
    size = (CELL * wide * sum(ratios) + 0.2, (CELL + 0.25) * len(records) + HEADING)
    figure = tight(size, 1 - HEADING / size[1])
    grid = figure.subplots(len(records), len(ratios), squeeze=False, width_ratios=ratios)
    for row, record in enumerate(records):
        draw_cell(grid[row][0], record, record.shape, None)
        grid[row][0].set_title(
            fill(labels[row], TITLE_LETTERS, break_on_hyphens=False), fontsize=6, loc="center", pad=2
        )
        position = 1
        for one, count in zip(columns, most, strict=True):
            grid[row][position].set_axis_off()  # a gap between settings
            for rank in range(count):
                axes = grid[row][position + 1 + rank]
                values = one.filters[row, rank]
                draw_cell(axes, values, shape, float(np.abs(values).max()))
                share = f"{one.shares[row, rank]:.2f}"
                named = f"{metadata['classes'][one.classes[row]]} {share}" if rank == 0 else share
                axes.set_title(fill(named, TITLE_LETTERS, break_on_hyphens=False), fontsize=5.5, loc="center", pad=2)
                if row == 0 and rank == 0:
                    heading = axes.annotate(
                        fill(one.title, max(20, 9 * count)), (0, 1), (0, 18),
                        xycoords="axes fraction", textcoords="offset points", fontsize=7,
                    )  # fmt: skip
                    heading.set_in_layout(False)  # it may be wider than its first filter
            position += 1 + count
    return figure


def class_sheet(columns: Sequence[Filters], metadata: Mapping[str, Any]) -> Figure:
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
                grid[row][k].set_title(
                    fill(str(name), TITLE_LETTERS, break_on_hyphens=False), fontsize=6, loc="center", pad=2
                )
        grid[row][0].set_ylabel(one.title, rotation=0, ha="right", va="center", fontsize=7)
    return figure


def tight(size: tuple[float, float], top: float) -> Figure:
    """Return a figure without padding whose panels fill a share of its height."""
    return blank(*size, rect=(0, 0, 1, top), w_pad=0.01, h_pad=0.01, wspace=0.0, hspace=0.0)
