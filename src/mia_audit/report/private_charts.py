"""The page's charts of private explanations: losses over ε, what protocols spend, how many steps they take, what attacks find."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from mia_audit.report.charts import by_setting, choice, colour, finish, guessing, short
from mia_audit.report.private_figures import ATTACKS, PROTOCOLS, attacked, trained_as
from mia_audit.report.private_results import mean_of
from mia_audit.report.series import BASELINE, PALETTE, Series

if TYPE_CHECKING:
    from mia_audit.report.private_results import Studied
    from mia_audit.report.results import Results

POINTS = 200
"""Of a line over queries so many points are drawn."""
BINS = 24
LEAST = 1e-9
"""Losses below are drawn as this: they are rounding."""
HEIGHT = 260
EXACT, PUBLISHED, NONE = (
    Series("noise as needed", PALETTE[0], ()),
    Series("published σ", PALETTE[1], ()),
    Series("no explanation", BASELINE, ()),
)
LOSS = (
    "How much worse an explanation fits than the best there is, over the ε that it alone costs: means over queries, with the noise that is"
    " needed and with the published. Grey: an explanation that says nothing."
)
SPENDING = "ε of all explanations so far, over the number of queries answered, by protocol."
LOSSES = "How losses are distributed over queries, by protocol. Losses on a logarithmic axis."
STEPS = "How many noisy steps a query takes; an answer that is reused takes none."
QUERIES = "ε spent by the adaptive protocol on queries at random, in the densest cluster, and as far apart as can be."
LEAKAGE = (
    "AUC of attacks on explanations that are fitted to the model's own training records, with intervals: private ones by the ε of each,"
    " the same fit without noise, gradients, and the model's outputs. Dashed: guessing."
)

Described = tuple[str, str, str, dict[str, Any]]


def study_charts(boxes: Sequence[Studied]) -> Iterator[Described]:
    """Yield id, label, caption and specification of the charts of one study."""
    yield "loss", "Loss over ε", LOSS, _loss_chart(boxes)
    adapting = [Series(label, shade, ()) for name, (label, shade) in PROTOCOLS.items() if name != "non-interactive"]
    spending = [
        row
        for one in boxes
        for name, (label, _) in PROTOCOLS.items()
        if name != "non-interactive"
        for row in _spent(one, one.protocol(name), label)
    ]
    axes = {"x": "Queries answered", "y": "ε spent"}
    yield (
        "spending",
        "ε spent over queries",
        SPENDING,
        _line_chart(spending, adapting, axes, [one.label for one in boxes]),
    )
    everyone = [Series(label, shade, ()) for label, shade in PROTOCOLS.values()]
    yield "losses", "Histogram of losses", LOSSES, _histogram(boxes, everyone, "excess_loss", "Approximation loss")
    yield "steps", "Histogram of steps", STEPS, _histogram(boxes, adapting[1:], "steps", "Noisy steps of a query")
    places = [
        Series(f"{name} queries", shade, ())
        for name, shade in (("random", PALETTE[0]), ("dense", PALETTE[2]), ("sparse", PALETTE[1]))
    ]
    rows = [
        row
        for one in boxes
        for name in ("random", "dense", "sparse")
        for row in _spent(one, one.experiment(name), f"{name} queries")
    ]
    yield (
        "queries",
        "ε spent by where queries lie",
        QUERIES,
        _line_chart(rows, places, axes, [one.label for one in boxes]),
    )


def attacks_chart(results: Results, dataset: str) -> Iterator[Described]:
    """Yield the chart of attacks on a model's explanations from its own training records, where there are any."""
    found = attacked(results, dataset)
    if not found:
        return
    rows = [
        {"panel": title, "setting": name, "series": trained_as(setting), **_interval(row)}
        for attack, title in ATTACKS.items()
        for setting, by_name in found.items()
        for name, row in by_name[attack].items()
    ]
    drawn = [Series(trained_as(setting), shade, ()) for setting, shade in zip(found, PALETTE, strict=False)]
    dots = by_setting(rows, drawn, "AUC", [], panel=True)
    described = "AUC of attacks on explanations by their ε, with and without private training, with intervals."
    chart = _chosen(guessing(0.5) + dots, list(ATTACKS.values()))
    yield "leakage", "Attacks on private explanations", LEAKAGE, finish(chart, described, HEIGHT)


def _interval(row: Mapping[str, Any]) -> dict[str, float | None]:
    values = {part: row[f"auc_{part}"] for part in ("mean", "low", "high")}
    return {part: None if value is None else short(value) for part, value in values.items()}


def _loss_chart(boxes: Sequence[Studied]) -> dict[str, Any]:
    rows = []
    for one in boxes:
        zero = mean_of(one.answers, "excess_loss_of_zero")
        for (published, epsilon), loss in sorted(one.over_epsilon().items()):
            name = PUBLISHED.name if published else EXACT.name
            rows.append({"panel": one.label, "series": name, "x": epsilon, "y": short(loss)})
            if not published:
                rows.append({"panel": one.label, "series": NONE.name, "x": epsilon, "y": short(zero)})
    axes = {"x": "ε of one explanation", "y": "Approximation loss"}
    names = [one.label for one in boxes]
    return _line_chart(rows, (EXACT, PUBLISHED, NONE), axes, names, logarithmic=("x", "y"), points=True)


def _spent(one: Studied, rows: pl.DataFrame, name: str) -> Iterator[dict[str, Any]]:
    step = max(1, len(rows) // POINTS)
    for row in range(len(rows)):
        if row % step == 0 or row == len(rows) - 1:
            yield {"panel": one.label, "series": name, "x": row + 1, "y": short(one.epsilon_of(rows[: row + 1]))}


def _histogram(boxes: Sequence[Studied], drawn: Sequence[Series], column: str, title: str) -> dict[str, Any]:
    """Draw shares of queries by protocol, as steps: losses on a logarithmic axis, steps on an even one."""
    logarithmic = column == "excess_loss"
    rows = []
    for one in boxes:
        shown = {label: one.protocol(name) for name, (label, _) in PROTOCOLS.items()}
        values = {each.name: shown[each.name][column].to_numpy() for each in drawn if len(shown[each.name])}
        if logarithmic:
            values = {name: np.log10(np.maximum(found, LEAST)) for name, found in values.items()}
            together = np.concatenate(list(values.values()))
            edges = np.linspace(np.floor(together.min()), np.ceil(together.max()), BINS + 1)
        else:
            edges = np.linspace(0, one.study["steps"] + 1e-9, BINS + 1)
        for name, found in values.items():
            heights = np.histogram(found, edges)[0] / len(found)
            places = 10**edges if logarithmic else edges
            for place, height in zip(places, [*heights, 0.0], strict=True):
                rows.append({"panel": one.label, "series": name, "x": short(place), "y": short(height)})
    axes = {"x": title, "y": "Share of queries"}
    names = [one.label for one in boxes]
    return _line_chart(rows, drawn, axes, names, logarithmic=("x",) if logarithmic else (), interpolate="step-after")


def _line_chart(
    rows: list[dict[str, Any]],
    drawn: Sequence[Series],
    axes: Mapping[str, str],
    panels: Sequence[str],
    logarithmic: Sequence[str] = (),
    points: bool = False,
    interpolate: Literal["linear", "step-after"] = "linear",
) -> dict[str, Any]:
    """Draw lines of every series, one black box at a time."""
    import altair as alt

    def encoded(kind: Any, name: str) -> Any:
        scale = {"type": "log"} if name in logarithmic else {"zero": name == "y"}
        return kind(f"{name}:Q").scale(**scale).title(axes[name])

    tooltip = [
        alt.Tooltip("series:N", title=" "),
        *(alt.Tooltip(f"{name}:Q", title=axes[name], format=".3~g") for name in ("x", "y")),
    ]
    base = alt.Chart(alt.InlineData(values=rows)).transform_filter("datum.panel === panel")
    line = base.mark_line(
        interpolate=interpolate, strokeWidth=2, point={"filled": True, "size": 40} if points else False
    )
    line = line.encode(encoded(alt.X, "x"), encoded(alt.Y, "y"), colour(drawn, lines=True), tooltip=tooltip)
    described = f"{axes['y']} over {axes['x']}, for one black box at a time."
    return finish(_chosen(line, list(panels)), described, HEIGHT)


def _chosen(chart: Any, panels: list[str]) -> Any:
    import altair as alt

    bound = {"bind": choice(panels)} if len(panels) > 1 else {}
    return chart.add_params(alt.param(name="panel", value=panels[0], **bound))
