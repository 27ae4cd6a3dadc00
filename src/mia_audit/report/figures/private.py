"""Private explanations: losses over ε, the ε spent by protocols, and images explained at every ε.

The convergence of one query, and the total ε and loss of disjoint parts of the data set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mia_audit.report.data.findings import Estimate, Findings, estimate
from mia_audit.report.data.series import PALETTE
from mia_audit.report.data.spec import Spec
from mia_audit.report.figures.catalogue import figure, once, once_for
from mia_audit.report.figures.style import COLUMN, GUESSING, draw_explained, errorbars

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.data.private import Rows, Studied
    from mia_audit.report.data.results import Results

PROTOCOLS = {
    "non-adaptive": ("every query from scratch", PALETTE[0]),
    "adaptive": ("adaptive", PALETTE[1]),
    "enhanced": ("enhanced adaptive", PALETTE[2]),
    "non-interactive": ("history alone", PALETTE[3]),
}
SPENDING = ("non-adaptive", "adaptive", "enhanced")
"""The protocols that spend ε."""
REGIONS = {"random": PALETTE[0], "dense": PALETTE[2], "sparse": PALETTE[1], "overfitted": PALETTE[3]}
BINS = 24
POINTS = 200
"""Number of points that are drawn of a line over queries."""
LEAST = 1e-9
"""Losses below this are rounding errors, and are drawn as if they had this value."""


def of_protocol(name: str) -> Rows:
    """Select the answers of one protocol where protocols are compared."""
    return lambda one: one.protocol(name)


def of_experiment(name: str) -> Rows:
    """Select the answers of one experiment."""
    return lambda one: one.experiment(name)


def of_dataset(results: Results, dataset: str | None) -> list[Studied]:
    """Return the black boxes of one data set, or of all."""
    return [one for one in results.studied if dataset in (None, one.dataset)]


def _once(name: str) -> Callable[[Spec], Mapping[str, Any]]:
    return once(name, lambda spec: spec.studies)


def histograms(one: Studied, column: str, protocols: Mapping[str, Any]) -> tuple[np.ndarray, dict[str, list[Estimate]]]:
    """Return the edges of bins over losses (logarithmic) or steps, and the share of queries in each by protocol."""
    values: dict[str, list[np.ndarray]] = {}
    for name in protocols:
        each = [rows[column].to_numpy() for again in one.repetitions if len(rows := again.protocol(name))]
        if each:
            values[name] = [np.maximum(known, LEAST) for known in each]
    if column == "excess_loss":
        logs = np.log10(np.concatenate([known for each in values.values() for known in each]))
        edges = 10 ** np.linspace(np.floor(logs.min()), np.ceil(logs.max()), BINS + 1)
    else:
        edges = np.linspace(0, one.study["steps"] + 1e-9, BINS + 1)
    shares = {
        name: np.stack([np.histogram(known, edges)[0] / len(known) for known in each]) for name, each in values.items()
    }
    return edges, {name: [estimate(bins, one.confidence) for bins in each.T] for name, each in shares.items()}


def spending_curve(one: Studied, rows: Rows, points: int) -> tuple[list[int], list[Estimate]]:
    """Return about `points` evenly spaced numbers of answered queries, and the ε spent on each."""
    from mia_audit.privacy.gaussian import epsilon_of_gdp

    each = [rows(again)["mu_squared_spent"].to_numpy() for again in one.repetitions]
    last = min(map(len, each))
    if not last:
        return [], []
    places = [place for place in range(last) if place % max(1, last // points) == 0 or place == last - 1]
    spent = [
        estimate([epsilon_of_gdp(math.sqrt(costs[place]), one.study["delta"]) for costs in each], one.confidence)
        for place in places
    ]
    return [place + 1 for place in places], spent


def draw_spending(axes: Axes, one: Studied, rows: Rows, colour: str, label: str) -> None:
    """Draw the ε spent over the number of queries, with a band over repetitions."""
    places, spent = spending_curve(one, rows, POINTS)
    if places:
        axes.plot(places, [value.mean for value in spent], color=colour, label=label)
        draw_band(axes, places, spent, colour)


def draw_band(
    axes: Axes, places: Any, values: Sequence[Estimate], colour: str, step: Literal["post"] | None = None
) -> None:
    """Shade the intervals of a line, which exist only if there are repetitions."""
    if values and not math.isnan(values[0].low):
        low, high = [value.low for value in values], [value.high for value in values]
        axes.fill_between(places, low, high, color=colour, alpha=0.25, linewidth=0, step=step)


@figure(
    "private_loss",
    _once("private_loss"),
    "Mean approximation loss over the ε of one explanation, with exactly calibrated and with the published noise (Table 3).",
    private=True,
)
def loss(results: Results, findings: Findings, dataset: str | None = None) -> Figure:
    """Draw mean approximation losses over the ε of one explanation."""

    def panel(axes: Axes, one: Studied) -> None:
        means = one.losses()
        for published, label, colour, marker in (
            ("", "exact calibration", PALETTE[0], "o"),
            ("sigma", "published σ", PALETTE[1], "s"),
        ):
            line = sorted((epsilon, mean) for (choice, epsilon), mean in means.items() if choice == published)
            axes.plot(*zip(*((at, value.mean) for at, value in line), strict=True), color=colour)
            errorbars(axes, line, colour, marker, label)
        zero = one.mean(of_experiment("epsilon"), "excess_loss_of_zero")
        axes.axhline(zero.mean, **GUESSING, label="no explanation (φ = 0)")
        axes.set(xscale="log", yscale="log")

    return draw_panels(of_dataset(results, dataset), panel, "ε of one explanation", "approximation loss")


@figure(
    "private_spending",
    _once("private_spending"),
    "ε spent over the number of queries answered, by protocol (Figures 2 and 3).",
    private=True,
)
def spending(results: Results, findings: Findings, dataset: str | None = None) -> Figure:
    """Draw the ε spent over the number of queries, by protocol."""
    return draw_panels(of_dataset(results, dataset), draw_protocols, "queries answered", "ε spent")


def draw_protocols(axes: Axes, one: Studied) -> None:
    """Draw the ε spent by every protocol that spends any."""
    for protocol in SPENDING:
        label, colour = PROTOCOLS[protocol]
        draw_spending(axes, one, of_protocol(protocol), colour, label)
    axes.set_ylim(bottom=0)


@figure(
    "private_losses",
    _once("private_losses"),
    "Distribution of approximation losses over queries, by protocol (Figures 2 and 3).",
    private=True,
)
def losses(results: Results, findings: Findings, dataset: str | None = None) -> Figure:
    """Draw a histogram of approximation losses, by protocol."""
    return draw_panels(
        of_dataset(results, dataset), stairs("excess_loss", PROTOCOLS, "log"), "approximation loss", "share of queries"
    )


@figure(
    "private_steps",
    _once("private_steps"),
    "Distribution of noisy steps per query (Figure 5); a reused answer takes none.",
    private=True,
)
def steps(results: Results, findings: Findings, dataset: str | None = None) -> Figure:
    """Draw a histogram of noisy steps per query, one for each adaptive protocol."""
    adaptive = {name: PROTOCOLS[name] for name in ("adaptive", "enhanced")}
    return draw_panels(
        of_dataset(results, dataset), stairs("steps", adaptive, "linear"), "noisy steps of a query", "share of queries"
    )


@figure(
    "private_queries",
    _once("private_queries"),
    "ε spent by the adaptive protocol on queries of dense, sparse and overfitted regions, and on random ones (Figure 9).",
    private=True,
)
def queries(results: Results, findings: Findings, dataset: str | None = None) -> Figure:
    """Draw the ε spent over the number of queries, by their region."""
    return draw_panels(of_dataset(results, dataset), draw_regions, "queries answered", "ε spent")


def draw_regions(axes: Axes, one: Studied) -> None:
    """Draw the ε spent on queries of every region; that where two forests differ is drawn if both were studied."""
    for name, colour in REGIONS.items():
        if len(one.experiment(name)):
            draw_spending(axes, one, of_experiment(name), colour, f"{name} queries")
    axes.set_ylim(bottom=0)


@figure(
    "private_pictures",
    once_for("private_pictures", lambda spec: (name for name, study in spec.studies.items() if study["pictures"])),
    "Images and their private explanations at every ε (Figure 1): orange counts for the class explained, blue against it.",
    private=True,
)
def pictures(results: Results, findings: Findings, dataset: str) -> Figure:
    """Draw images of a pool and their explanations at every ε."""
    return draw_pictures(results, dataset)


def draw_pictures(results: Results, dataset: str) -> Figure:
    """Draw a row per image: the image, then its explanations by increasing ε, each on its own scale."""
    from matplotlib.figure import Figure

    images = np.load(results.root / "pools" / dataset / "records.npy", mmap_mode="r")
    one = [one for one in results.studied if one.dataset == dataset][-1]
    rows = one.repetitions[0].experiment("epsilon").filter(as_published="").sort("epsilon", "number")
    by_query = rows.group_by("number", "record", maintain_order=True).agg("epsilon", "explanation")
    drawn = by_query.sort("number").head(one.study["pictures"])
    epsilons = drawn["epsilon"][0].to_list()
    figure = Figure(figsize=(0.8 * (len(epsilons) + 1), 0.8 * len(drawn) + 0.3), layout="constrained")
    panels = figure.subplots(len(drawn), len(epsilons) + 1, squeeze=False)
    for line, query in zip(panels, drawn.iter_rows(named=True), strict=True):
        draw_explained(line, images[query["record"]], query["explanation"])
    for axes, title in zip(panels[0], ["image", *(f"ε = {epsilon:g}" for epsilon in epsilons)], strict=True):
        axes.set_title(title, loc="center")
    return figure


def stairs(column: str, protocols: Mapping[str, tuple[str, str]], scale: str) -> Callable[[Axes, Studied], None]:
    """Return a function that draws a histogram of a column, by protocol, over an axis of this scale."""

    def panel(axes: Axes, one: Studied) -> None:
        draw_histograms(axes, one, column, protocols)
        axes.set_xscale(scale)

    return panel


def draw_histograms(axes: Axes, one: Studied, column: str, protocols: Mapping[str, tuple[str, str]]) -> None:
    """Draw shares of queries by protocol, given their labels and colours, with a band over repetitions."""
    edges, heights = histograms(one, column, protocols)
    for name, shares in heights.items():
        label, colour = protocols[name]
        axes.stairs([share.mean for share in shares], edges, color=colour, label=label, linewidth=1.1)
        draw_band(axes, edges, [*shares, shares[-1]], colour, step="post")


def draw_panels(
    studied: Sequence[Studied],
    panel: Callable[[Axes, Studied], None],
    x: str,
    y: str,
    note: Callable[[Studied], str] = lambda one: "",
) -> Figure:
    """Draw a panel per black box, with one legend below all."""
    from matplotlib.figure import Figure

    columns = 2 if len(studied) == 4 else min(3, len(studied))
    rows = -(-len(studied) // columns)
    figure = Figure(figsize=(max(COLUMN, 2.35 * columns), 1.9 * rows + 0.4), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes, one in zip(panels.flat, studied, strict=False):
        panel(axes, one)
        axes.set_title(f"{one.dataset_name}, {one.label}{note(one)}")
    for axes in panels.flat[len(studied) :]:
        axes.set_axis_off()
    for axes in panels[:, 0]:
        axes.set_ylabel(y)
    for axes in panels[-1]:
        axes.set_xlabel(x)
    labelled = panels[0, 0].get_legend_handles_labels()
    if labelled[0]:
        figure.legend(*labelled, loc="outside lower center", ncols=4 if columns == 3 else 2)
    return figure


@figure(
    "private_iterations",
    once("private_iterations", lambda spec: any(study.get("traced") for study in spec.studies.values())),
    "Approximation loss over the iterations of queries of the adaptive protocol that start closer to the minimum than the norm of "
    "a step's noise (Figure 4): a line per query.",
    private=True,
)
def iterations(results: Results, findings: Findings, subject: None = None) -> Figure:
    """Draw a line per query whose iterations were recorded."""
    studied = [one for one in results.studied if one.study.get("traced")]
    return draw_panels(studied, draw_iterations, "noisy step", "approximation loss")


def draw_iterations(axes: Axes, one: Studied) -> None:
    """Draw the losses of the queries whose iterations were recorded, or a note that no query started this close to the minimum."""
    paths = one.answers["path"].drop_nulls().to_list()
    for place, path in enumerate(paths):
        axes.plot([max(loss, LEAST) for loss in path], color=PALETTE[place % len(PALETTE)], linewidth=0.7)
    if not paths:
        axes.text(0.5, 0.5, "no query started this close", ha="center", va="center", transform=axes.transAxes)
    else:
        axes.set(yscale="log")


def in_parts(one: Studied, protocol: str) -> tuple[Estimate, Estimate] | None:
    """Return the largest ε spent by any of the disjoint parts, and the mean loss of their answers.

    None if the data set was not divided.
    """
    spent, losses = [], []
    for again in one.repetitions:
        rows = part_rows(again, protocol)
        if not rows:
            return None
        spent.append(max(again.epsilon_of(part) for part in rows))
        total = sum(len(part) for part in rows)
        losses.append(sum(float(part["excess_loss"].sum()) for part in rows) / total)
    return estimate(spent, one.confidence), estimate(losses, one.confidence)


def part_rows(one: Studied, protocol: str) -> list[pl.DataFrame]:
    """Return the answers of every part by one protocol, of one repetition."""
    parts = range(1, one.study.get("parts", 1) + 1)
    known = (one.experiment(f"part {number}").filter(protocol=protocol) for number in parts)
    return [rows for rows in known if len(rows)]


@figure(
    "private_parts",
    once("private_parts", lambda spec: any(study.get("parts", 1) > 1 for study in spec.studies.values())),
    "Approximation loss over the ε spent on all queries, by protocol: answered from the whole data set (filled), and from disjoint "
    "parts of it side by side, each with a part of the queries (open; section 6.2).",
    private=True,
)
def parts(results: Results, findings: Findings, subject: None = None) -> Figure:
    """Draw two points per protocol: the whole data set, and its disjoint parts."""
    studied = [one for one in results.studied if one.study.get("parts", 1) > 1]

    def panel(axes: Axes, one: Studied) -> None:
        for protocol in SPENDING:
            label, colour = PROTOCOLS[protocol]
            rows = of_protocol(protocol)
            divided = in_parts(one, protocol)
            whole = one.spent(rows), one.mean(rows, "excess_loss")
            for pair, filled, name in ((whole, colour, label), (divided, "white", None)):
                if pair is not None:
                    spent, loss = pair
                    errors: Any = {"xerr": [[spent.below], [spent.above]], "yerr": [[loss.below], [loss.above]]}
                    axes.errorbar(
                        spent.mean, loss.mean, **errors, fmt="o", color=colour, mfc=filled, markersize=4, label=name
                    )
        axes.set(xscale="log", yscale="log")

    return draw_panels(studied, panel, "ε spent", "approximation loss")
