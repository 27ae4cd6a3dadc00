"""The figures of private explanations: losses over ε, what protocols spend, and what the explanations give away."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from mia_audit.evaluation.summary import NULL_WIDENING, summarise
from mia_audit.explain.catalogue import PRIVATE_LOCAL
from mia_audit.explain.private_local.budget import epsilon_of_rho
from mia_audit.report.findings import Estimate
from mia_audit.report.panels import COLUMN, GUESSING, errorbars
from mia_audit.report.pictures import attribution_pixels, attribution_scale
from mia_audit.report.series import PALETTE
from mia_audit.report.signals import read_signal
from mia_audit.report.words import protection

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.private_results import PrivateResults, Studied
    from mia_audit.report.results import Results, Setting

PROTOCOLS = {
    "non-adaptive": ("every query from scratch", PALETTE[0]),
    "adaptive": ("adaptive", PALETTE[1]),
    "enhanced": ("enhanced adaptive", PALETTE[2]),
    "non-interactive": ("history alone", PALETTE[3]),
}
DENSITIES = {"random": PALETTE[0], "dense": PALETTE[2], "sparse": PALETTE[1]}
MARKERS = "os^Dv"
ATTACKS = {"var-lrt": "VAR-LRT", "l1-lrt": "L1-LRT", "l2-lrt": "L2-LRT", "threshold": "threshold"}
NAMED = {"local_linear": "no noise"}
"""Explanations beside private ones that are not called as elsewhere."""
SET_ATTACKS = {
    "lrt": "how well it fits the record",
    "var-lrt": "VAR-LRT",
    "l1-lrt": "L1-LRT",
    "l2-lrt": "L2-LRT",
}
BINS = 24


def loss_figure(results: PrivateResults) -> Figure:
    """Mean approximation loss over the ε of one explanation, with exact noise and with the published (Table 3)."""

    def draw(axes: Axes, one: Studied) -> None:
        table = one.answers.filter(pl.col("experiment") == "epsilon").group_by("as_published", "epsilon")
        means = table.agg(pl.col("excess_loss", "excess_loss_of_zero").mean(), pl.col("excess_loss").std().alias("sd"))
        for published, label, colour, marker in (
            ("", "exact calibration", PALETTE[0], "o"),
            ("sigma", "published σ", PALETTE[1], "s"),
        ):
            line = means.filter(pl.col("as_published") == published).sort("epsilon")
            axes.plot(line["epsilon"], line["excess_loss"], color=colour, marker=marker, markersize=3, label=label)
        zero = float(means["excess_loss_of_zero"].mean() or 0.0)  # type: ignore[arg-type]
        axes.axhline(zero, **GUESSING, label="no explanation (φ = 0)")
        axes.set(xscale="log", yscale="log")

    return _panels(results.studied, draw, "ε of one explanation", "approximation loss")


def spending_figure(results: PrivateResults) -> Figure:
    """ε spent over the number of queries answered, by protocol (Figures 2 and 3)."""

    def draw(axes: Axes, one: Studied) -> None:
        for protocol, (label, colour) in PROTOCOLS.items():
            rows = one.answers.filter(pl.col("experiment") == "protocols", pl.col("protocol") == protocol).sort(
                "number"
            )
            if protocol != "non-interactive" and len(rows):
                axes.plot(rows["number"] + 1, _epsilons(rows, one), color=colour, label=label)
        axes.set_ylim(bottom=0)

    return _panels(results.studied, draw, "queries answered", "ε spent")


def losses_figure(results: PrivateResults) -> Figure:
    """Histogram of approximation losses by protocol (Figures 2 and 3)."""

    def draw(axes: Axes, one: Studied) -> None:
        rows = one.answers.filter(pl.col("experiment") == "protocols")
        logs = np.log10(np.maximum(rows["excess_loss"].to_numpy(), 1e-9))
        edges = np.linspace(np.floor(logs.min()), np.ceil(logs.max()), BINS + 1)
        _histograms(axes, one, 10**edges, lambda rows: np.maximum(rows["excess_loss"].to_numpy(), 1e-9), PROTOCOLS)
        axes.set_xscale("log")

    return _panels(results.studied, draw, "approximation loss", "share of queries")


def steps_figure(results: PrivateResults) -> Figure:
    """Histogram of noisy steps a query (Figure 5); answers that were reused took none."""

    def draw(axes: Axes, one: Studied) -> None:
        edges = np.linspace(0, one.study["steps"] + 1e-9, BINS + 1)
        adapting = {name: PROTOCOLS[name] for name in ("adaptive", "enhanced")}
        _histograms(axes, one, edges, lambda rows: rows["steps"].to_numpy(), adapting)

    return _panels(results.studied, draw, "noisy steps of a query", "share of queries")


def queries_figure(results: PrivateResults) -> Figure:
    """ε spent by the adaptive protocol on dense, sparse and random queries (Figure 9)."""

    def draw(axes: Axes, one: Studied) -> None:
        for name, colour in DENSITIES.items():
            rows = one.answers.filter(pl.col("experiment") == name).sort("number")
            axes.plot(rows["number"] + 1, _epsilons(rows, one), color=colour, label=f"{name} queries")
        axes.set_ylim(bottom=0)

    return _panels(results.studied, draw, "queries answered", "ε spent")


def training_figure(results: PrivateResults) -> Figure:
    """Dist to the non-private model's exact explanations, and approximation loss, over the training's ε (Figures 6 to 8)."""
    from matplotlib.figure import Figure

    models = [one for one in results.studied if one.setting is not None]
    groups = list(dict.fromkeys((one.dataset, str((one.setting or {})["architecture"])) for one in models))
    figure = Figure(figsize=(2 * COLUMN, 2.0 * len(groups)), layout="constrained")
    for row, group in zip(figure.subplots(len(groups), 2, squeeze=False), groups, strict=True):
        mine = [one for one in models if (one.dataset, str((one.setting or {})["architecture"])) == group]
        names = [one.label.partition(", ")[2] for one in mine]
        for axes, column, label in zip(row, ("distance", "excess_loss"), ("Dist", "approximation loss"), strict=True):
            values = [
                one.answers.filter(pl.col("experiment") == "protocols", pl.col("protocol") == "non-adaptive")[
                    column
                ].to_numpy()
                for one in mine
            ]
            axes.boxplot(values, tick_labels=names, whis=(5, 95), showfliers=False, medianprops={"color": PALETTE[1]})
            axes.set(ylabel=label, xlabel="training of the model")
            axes.set_title(f"{group[0]}, {group[1]}: explanations at ε = {mine[0].study['epsilon']:g} each")
    return figure


def pictures_figure(results: PrivateResults, dataset: str, images: np.ndarray) -> Figure:
    """Images [N, C, H, W] and their explanations at every ε (Figure 1): orange speaks for the class explained, blue against."""
    from matplotlib.figure import Figure

    one = [one for one in results.studied if one.dataset == dataset][-1]
    rows = one.answers.filter(pl.col("experiment") == "epsilon", pl.col("as_published") == "").sort("epsilon", "number")
    by_query = rows.group_by("number", maintain_order=True).agg("epsilon", "explanation", pl.col("record").first())
    shown = by_query.sort("number").head(one.study["pictures"])
    epsilons = shown["epsilon"][0].to_list()
    figure = Figure(figsize=(0.8 * (len(epsilons) + 1), 0.8 * len(shown) + 0.3), layout="constrained")
    panels = figure.subplots(len(shown), len(epsilons) + 1, squeeze=False)
    for line, query in zip(panels, shown.iter_rows(named=True), strict=True):
        image = images[query["record"]]
        line[0].imshow(image.transpose(1, 2, 0).squeeze(), cmap="gray")
        for axes, values in zip(line[1:], query["explanation"], strict=True):
            explanation = np.asarray(values, dtype=float).reshape(image.shape)
            axes.imshow(attribution_pixels(explanation, attribution_scale([explanation])))
        for axes in line:
            axes.set_axis_off()
    for axes, title in zip(panels[0], ["image", *(f"ε = {epsilon:g}" for epsilon in epsilons)], strict=True):
        axes.set_title(title, loc="center")
    return figure


def attacks_figure(results: Results) -> Figure:
    """AUC of attacks on private explanations over their ε, beside the plain fit, gradients and outputs, for every training."""
    from matplotlib.figure import Figure

    found = attacked(results)
    figure = Figure(figsize=(2 * COLUMN + 0.2, 3.9), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for axes, (attack, title) in zip(panels.flat, ATTACKS.items(), strict=True):
        names = list(dict.fromkeys(name for by_name in found.values() for name in by_name[attack]))
        for slot, (setting, by_name) in enumerate(found.items()):
            places = [place for place, name in enumerate(names) if name in by_name[attack]]
            offset = (slot - (len(found) - 1) / 2) * 0.16
            values = [(place + offset, _auc(by_name[attack][names[place]])) for place in places]
            errorbars(axes, values, PALETTE[slot % 6], MARKERS[slot % 5], trained_as(setting))
        axes.axhline(0.5, **GUESSING)
        axes.set_xticks(range(len(names)), names, rotation=35, ha="right")
        axes.set_title(title)
    for line in panels:
        line[0].set_ylabel("AUC")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def sets_figure(results: Results) -> Figure:
    """AUC of attacks on the explanation set of one fixed black box, over the ε of each explanation.

    Next to nothing leaks there, so intervals are as wide as those of the null control: targets err together.
    """
    from matplotlib.figure import Figure

    groups: dict[tuple[str, str], list[Setting]] = {}
    for setting in results.spec.settings:
        if setting.mechanism in ("private-local", "local-linear") and not setting.trained:
            groups.setdefault(setting.group, []).append(setting)
    columns = min(3, len(groups))
    figure = Figure(figsize=(max(COLUMN, 2.35 * columns), 2.3 * -(-len(groups) // columns)), layout="constrained")
    panels = figure.subplots(-(-len(groups) // columns), columns, squeeze=False, sharey=True)
    for axes, (group, settings) in zip(panels.flat, groups.items(), strict=False):
        ordered = sorted(settings, key=lambda setting: float(setting.epsilon))
        for slot, (attack, label) in enumerate(SET_ATTACKS.items()):
            offset = (slot - (len(SET_ATTACKS) - 1) / 2) * 0.16
            values = []
            for place, setting in enumerate(ordered):
                summary = summarise(results.metrics[results.spec.settings.index(setting)], results.spec.confidence)
                real = summary.filter(~pl.col("null_control"), pl.col("attack") == attack)
                row = real.filter(pl.col("variance") == results.spec.variance).row(0, named=True)
                values.append((place + offset, _auc(row, NULL_WIDENING)))
            errorbars(axes, values, PALETTE[slot % 6], MARKERS[slot % 5], label)
        axes.axhline(0.5, **GUESSING)
        names = ["no noise" if setting.epsilon == "inf" else setting.epsilon for setting in ordered]
        axes.set_xticks(range(len(names)), names)
        axes.set(xlabel="ε of one explanation", title=", ".join(group))
    for axes in panels.flat[len(groups) :]:
        axes.set_axis_off()
    panels[0, 0].set_ylabel("AUC")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _auc(row: dict[str, Any], widening: float = 1.0) -> Estimate:
    """Return the AUC that a row of the summary tells, its interval widened."""
    mean = row["auc_mean"]
    low, high = (
        math.nan if row[end] is None else mean + widening * (row[end] - mean) for end in ("auc_low", "auc_high")
    )
    return Estimate(mean, row["auc_sd"], low, high, row["targets"])


def trained_as(setting: Setting) -> str:
    """Name how a model was trained."""
    bare = not setting.private and not setting.no_guarantee
    return "trained without DP" if bare else protection(setting)


def attacked(results: Results, dataset: str | None = None) -> dict[Setting, dict[str, dict[str, dict[str, Any]]]]:
    """Return a row of the summary by training, attack and explanation, where private local explanations of models are attacked."""
    found = {}
    for setting, metrics in zip(results.spec.settings, results.metrics, strict=True):
        explainers = {read_signal(signal).explainer or "" for signal in metrics["signal"].unique()}
        if not setting.trained or dataset not in (None, setting.dataset):
            continue
        if any(PRIVATE_LOCAL.fullmatch(name) for name in explainers):
            real = summarise(metrics, results.spec.confidence).filter(~pl.col("null_control"))
            found[setting] = {attack: dict(_attacked(real, attack, results.spec.variance)) for attack in ATTACKS}
    return found


def _attacked(summary: pl.DataFrame, attack: str, variance: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the AUC of an attack on every explanation there is, the most private first; of outputs by loss-LiRA."""
    found: dict[tuple[float, str], dict[str, Any]] = {}
    for row in summary.filter(pl.col("variance").is_in([variance, "none"])).iter_rows(named=True):
        signal = read_signal(row["signal"])
        if row["signal"] in ("confidence", "loss"):
            if row["attack"] == ("threshold" if attack == "threshold" else "loss-lira"):
                found[3.0, "outputs"] = row
        elif row["attack"] == attack and signal.channel == "explanations" and signal.explainer:
            if attack == "threshold" and signal.summary != "l2":
                continue
            match = PRIVATE_LOCAL.fullmatch(signal.explainer)
            epsilon = float(match["epsilon"]) if match else 0.0
            place = -1 / epsilon if match else {"local_linear": 1.0}.get(signal.explainer, 2.0)
            name = f"private, ε = {epsilon:g}" if match else NAMED.get(signal.explainer, signal.explainer_label)
            found[place, name] = row
    return [(name, found[place, name]) for place, name in sorted(found)]


def _epsilons(rows: pl.DataFrame, one: Studied) -> list[float]:
    return [epsilon_of_rho(rho, one.study["delta"]) for rho in rows["rho_spent"]]


def _histograms(
    axes: Axes,
    one: Studied,
    edges: np.ndarray,
    values: Callable[[pl.DataFrame], np.ndarray],
    protocols: dict[str, tuple[str, str]],
) -> None:
    for protocol, (label, colour) in protocols.items():
        rows = one.answers.filter(pl.col("experiment") == "protocols", pl.col("protocol") == protocol)
        if len(rows):
            heights = np.histogram(values(rows), edges)[0] / len(rows)
            axes.stairs(heights, edges, color=colour, label=label, linewidth=1.1)


def _panels(studied: Sequence[Studied], draw: Callable[[Any, Any], None], x: str, y: str) -> Figure:
    from matplotlib.figure import Figure

    columns = 2 if len(studied) == 4 else min(3, len(studied))
    rows = -(-len(studied) // columns)
    figure = Figure(figsize=(max(COLUMN, 2.35 * columns), 1.9 * rows + 0.4), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes, one in zip(panels.flat, studied, strict=False):
        draw(axes, one)
        axes.set_title(f"{one.dataset}, {one.label}")
    for axes in panels.flat[len(studied) :]:
        axes.set_axis_off()
    for axes in panels[:, 0]:
        axes.set_ylabel(y)
    for axes in panels[-1]:
        axes.set_xlabel(x)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4 if columns == 3 else 2)
    return figure
