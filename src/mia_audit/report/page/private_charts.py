"""The page's charts of private explanations: losses over ε, ε spent by protocols, steps, and attacks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from mia_audit.report.data.findings import Estimate, estimate
from mia_audit.report.data.series import BASELINE, MARKERS, PALETTE, Series
from mia_audit.report.figures.private_attacks import ATTACKS, attacked, auc_of, trained_as
from mia_audit.report.figures.private_studies import (
    DENSITIES,
    POINTS,
    PROTOCOLS,
    SPENDING,
    histograms,
    of_experiment,
    of_protocol,
    spending_curve,
)
from mia_audit.report.page.charts import Chart, by_setting, choice, colour, ends, finish, guessing, short

if TYPE_CHECKING:
    from mia_audit.report.data.private import Rows, Studied
    from mia_audit.report.data.results import Results

HEIGHT = 260
EXACT, PUBLISHED, NONE = (
    Series("exact noise", PALETTE[0], ()),
    Series("published σ", PALETTE[1], ()),
    Series("no explanation", BASELINE, ()),
)
LOSS = (
    "How much worse an explanation fits than the best one, over its own ε: means over queries, with exactly calibrated noise"
    " and with the published noise. Grey: an empty explanation."
)
SPENT = "ε of all explanations so far, over the number of queries answered, by protocol."
LOSSES = "Distribution of losses over queries, by protocol, on a logarithmic axis."
STEPS = "How many noisy steps a query takes; a reused answer takes none."
QUERIES = (
    "ε spent by the adaptive protocol on queries that are random, in the densest cluster, or as far apart as possible."
)
LEAKAGE = (
    "AUC of attacks on explanations that are fitted to the model's own training records, with intervals: private ones by the ε of each,"
    " the same fit without noise, gradients, and the model's outputs. Dashed: guessing."
)


def study_charts(boxes: Sequence[Studied]) -> Iterator[Chart]:
    """Yield the charts of one study."""
    yield "loss", "Loss over ε", LOSS, _loss_chart(boxes)
    drawn = {name: Series(label, shade, ()) for name, (label, shade) in PROTOCOLS.items()}
    rows = [row for one in boxes for name in SPENDING for row in _spent(one, of_protocol(name), drawn[name].name)]
    axes = {"x": "Queries answered", "y": "ε spent"}
    yield "spending", "ε spent over queries", SPENT, _line_chart(rows, [drawn[name] for name in SPENDING], axes)
    adaptive = {name: drawn[name] for name in ("adaptive", "enhanced")}
    yield "losses", "Histogram of losses", LOSSES, _histogram(boxes, drawn, "excess_loss", "Approximation loss")
    yield "steps", "Histogram of steps", STEPS, _histogram(boxes, adaptive, "steps", "Noisy steps of a query")
    places = [Series(f"{name} queries", shade, ()) for name, shade in DENSITIES.items()]
    rows = [row for one in boxes for name in DENSITIES for row in _spent(one, of_experiment(name), f"{name} queries")]
    yield "queries", "ε spent by location of queries", QUERIES, _line_chart(rows, places, axes)


def attacks_chart(results: Results, dataset: str) -> Iterator[Chart]:
    """Yield the chart of attacks on models' explanations from their own training records, where there are any."""
    trainings = attacked(results, dataset)
    if not trainings:
        return
    rows = [
        {"panel": title, "setting": name, "series": trained_as(setting), **ends(auc_of(row))}
        for attack, title in ATTACKS.items()
        for setting, by_name in trainings.items()
        for name, row in by_name[attack].items()
    ]
    looks = zip(trainings, PALETTE, MARKERS, strict=False)
    drawn = [Series(trained_as(setting), shade, (), marker) for setting, shade, marker in looks]
    dots = by_setting(rows, drawn, "AUC", [], panel=True)
    described = "AUC of attacks on explanations by their ε, with and without private training, with intervals."
    chart = _chosen(guessing(0.5) + dots, list(ATTACKS.values()))
    yield "leakage", "Attacks on private explanations", LEAKAGE, finish(chart, described, HEIGHT)


def _loss_chart(boxes: Sequence[Studied]) -> dict[str, Any]:
    rows = []
    for one in boxes:
        zero = one.mean(lambda each: each.answers, "excess_loss_of_zero")
        for (published, epsilon), loss in sorted(one.losses().items(), key=lambda item: item[0]):
            name = PUBLISHED.name if published else EXACT.name
            rows.append({"panel": one.label, "series": name, "x": epsilon, **_y(loss, logarithmic=True)})
            if not published:
                rows.append({"panel": one.label, "series": NONE.name, "x": epsilon, **_y(zero, logarithmic=True)})
    axes = {"x": "ε of one explanation", "y": "Approximation loss"}
    return _line_chart(rows, (EXACT, PUBLISHED, NONE), axes, logarithmic=("x", "y"), points=True)


def _y(value: Estimate, logarithmic: bool = False) -> dict[str, float]:
    """Return a mean, and its interval if there is one that the axis can show."""
    if math.isnan(value.low) or (logarithmic and value.low <= 0):
        return {"y": short(value.mean)}
    return {"y": short(value.mean), "low": short(value.low), "high": short(value.high)}


def _spent(one: Studied, selected: Rows, name: str) -> Iterator[dict[str, Any]]:
    for place, spent in zip(*spending_curve(one, selected, POINTS), strict=True):
        yield {"panel": one.label, "series": name, "x": place, **_y(spent)}


def _histogram(boxes: Sequence[Studied], drawn: Mapping[str, Series], column: str, title: str) -> dict[str, Any]:
    """Draw shares of queries by protocol, as steps; losses on a logarithmic axis."""
    rows = []
    for one in boxes:
        edges, shares = histograms(one, column, drawn)
        for name, heights in shares.items():
            none = estimate([0.0] * len(one.repetitions), one.confidence)
            for place, height in zip(edges, [*heights, none], strict=True):
                rows.append({"panel": one.label, "series": drawn[name].name, "x": short(place), **_y(height)})
    axes, logarithmic = {"x": title, "y": "Share of queries"}, ("x",) if column == "excess_loss" else ()
    return _line_chart(rows, list(drawn.values()), axes, logarithmic, interpolate="step-after")


def _line_chart(
    rows: list[dict[str, Any]],
    drawn: Sequence[Series],
    axes: Mapping[str, str],
    logarithmic: Sequence[str] = (),
    points: bool = False,
    interpolate: Literal["linear", "step-after"] = "linear",
) -> dict[str, Any]:
    """Draw a line per series, for one black box at a time."""
    import altair as alt

    def encoded(kind: Any, name: str, field: str = "") -> Any:
        scale = {"type": "log"} if name in logarithmic else {"zero": name == "y"}
        return kind(f"{field or name}:Q").scale(**scale).title(axes[name])

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
    if any("low" in row for row in rows):
        described += " Bands: intervals over repetitions."
        band = base.mark_area(interpolate=interpolate, opacity=0.2)
        limits = {"y": encoded(alt.Y, "y", "low"), "y2": alt.Y2("high:Q")}
        line = band.encode(encoded(alt.X, "x"), **limits, color=colour(drawn, lines=True)) + line
    return finish(_chosen(line, list(dict.fromkeys(row["panel"] for row in rows))), described, HEIGHT)


def _chosen(chart: Any, panels: list[str]) -> Any:
    import altair as alt

    bound = {"bind": choice(panels)} if len(panels) > 1 else {}
    return chart.add_params(alt.param(name="panel", value=panels[0], **bound))
