"""Figures of private explanations: losses and ε by protocol, disjoint parts, models by their training, and attacks on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.explain.catalogue import explainer_label, private_epsilon
from mia_audit.explain.release import FULL, release_of
from mia_audit.report.figures.catalogue import (
    COLUMN,
    GUESSING,
    FigureKind,
    add_rows,
    attribution_pixels,
    attribution_scale,
    blank,
    draw_band,
    draw_line,
    errorbars,
    figure,
    once,
    once_for,
)
from mia_audit.report.findings import Estimate, Findings
from mia_audit.report.formatting import protection
from mia_audit.report.series import PALETTE
from mia_audit.report.spec import AuditedSetting, ReportedAudit
from mia_audit.signals.name import read_signal

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.results import Results, Rows, Studied

    Panel = Callable[[Axes, Studied], None]

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
MARKERS = "os^Dv"
ATTACKS = {"var-lrt": "VAR-LRT", "l1-lrt": "L1-LRT", "l2-lrt": "L2-LRT", "threshold": "threshold"}
NAMED = {"local_linear": "no noise"}
"""Names of explainers, where they differ from those elsewhere in a report."""
SET_ATTACKS = {"lrt": "how well it fits the record", "var-lrt": "VAR-LRT", "l1-lrt": "L1-LRT", "l2-lrt": "L2-LRT"}


def of_protocol(name: str) -> Rows:
    """Select the answers of one protocol where protocols are compared."""
    return lambda one: one.protocol(name)


def of_experiment(name: str) -> Rows:
    """Select the answers of one experiment."""
    return lambda one: one.experiment(name)


def panels(
    name: str,
    x: str,
    y: str,
    caption: str,
    key: str = "",
    nothing: str = "",
    note: Callable[[Studied], str | None] = lambda one: "",
) -> Callable[[Panel], FigureKind]:
    """Register the decorated drawing as a figure with a panel per black box of all studies that have `key`, or of one study.

    `note` follows a panel's title; black boxes for which it is None are left out, and `nothing` is said if all are.
    """

    def draw(panel: Panel, results: Results, dataset: str | None) -> Figure | str:
        known = [one for one in results.studied if dataset in (None, one.dataset) and _has(one.study, key)]
        notes = {id(one): said for one in known if (said := note(one)) is not None}
        studied = [one for one in known if id(one) in notes]
        if not studied:
            return nothing
        columns = 2 if len(studied) == 4 else min(3, len(studied))
        rows = -(-len(studied) // columns)
        drawn = blank(max(COLUMN, 2.35 * columns), 1.9 * rows + 0.4)
        grid = drawn.subplots(rows, columns, squeeze=False)
        for axes, one in zip(grid.flat, studied, strict=False):
            panel(axes, one)
            axes.set_label(f"{one.dataset_name}, {one.label}")
            axes.set_title(f"{axes.get_label()}{notes[id(one)]}")
        for axes in grid.flat[len(studied) :]:
            axes.set_axis_off()
        for axes in grid[:, 0]:
            axes.set_ylabel(y)
        for axes in grid[-1]:
            axes.set_xlabel(x)
        labelled = grid[0, 0].get_legend_handles_labels()
        if labelled[0]:
            drawn.legend(*labelled, loc="outside lower center", ncols=4 if columns == 3 else 2)
        return drawn

    subjects = once(name, lambda spec: any(_has(study, key) for study in spec.studies.values()))
    return lambda panel: figure(name, subjects, caption)(
        lambda results, findings, dataset: draw(panel, results, dataset)
    )


def _has(study: Mapping[str, Any], key: str) -> bool:
    """Whether a study has what `key` names; its number of parts is 1 if it has none."""
    return not key or (study.get(key, 1) > 1 if key == "parts" else bool(study.get(key)))


def draw_spending(axes: Axes, one: Studied, rows: Rows, colour: str, label: str) -> None:
    """Draw the ε spent over the number of answered queries, at about `POINTS` of them, with a band over repetitions."""
    from mia_audit.privacy.gaussian import epsilon_of_gdp

    last = min(len(rows(again)) for again in one.repetitions)
    places = [place for place in range(last) if place % max(1, last // POINTS) == 0 or place == last - 1]

    def of_places(again: Studied) -> Iterable[float]:
        costs = rows(again)["mu_squared_spent"].to_numpy()[places]
        return [epsilon_of_gdp(math.sqrt(cost), one.study["delta"]) for cost in costs]

    if places:
        spent, queries = one.estimates(of_places), [place + 1 for place in places]
        draw_line(axes, queries, spent, colour, label, alpha=0.25)


def draw_histogram(axes: Axes, one: Studied, column: str, protocols: Iterable[str]) -> None:
    """Draw the share of queries in bins over losses (logarithmic) or steps, by protocol, with a band over repetitions."""

    def values(again: Studied, name: str) -> np.ndarray:
        return again.protocol(name)[column].clip(LEAST).to_numpy()

    known = [name for name in protocols if all(len(again.protocol(name)) for again in one.repetitions)]
    if column == "excess_loss":
        logs = np.log10(np.concatenate([values(again, name) for name in known for again in one.repetitions]))
        edges = 10 ** np.linspace(np.floor(logs.min()), np.ceil(logs.max()), BINS + 1)
        axes.set_xscale("log")
    else:
        edges = np.linspace(0, one.study["steps"] + 1e-9, BINS + 1)
    for name in known:

        def in_bins(again: Studied, name: str = name) -> np.ndarray:
            own = values(again, name)
            return np.histogram(own, edges)[0] / len(own)

        shares = one.estimates(in_bins)
        label, colour = PROTOCOLS[name]
        axes.stairs([share.mean for share in shares], edges, color=colour, label=label, linewidth=1.1)
        draw_band(axes, edges, [*shares, shares[-1]], colour, 0.25, step="post")
        add_rows(axes, "bin", label, x_low=edges[:-1], x_high=edges[1:], y=shares)


@panels(
    "private_loss",
    "ε of one explanation",
    "approximation loss",
    "Mean approximation loss over the ε of one explanation, with exactly calibrated and with the published noise (Table 3).",
)
def loss(axes: Axes, one: Studied) -> None:
    """Draw mean approximation losses over the ε of one explanation."""
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


@panels(
    "private_spending",
    "queries answered",
    "ε spent",
    "ε spent over the number of queries answered, by protocol (Figures 2 and 3).",
)
def spending(axes: Axes, one: Studied) -> None:
    """Draw the ε spent over the number of queries, by protocol."""
    for protocol in SPENDING:
        label, colour = PROTOCOLS[protocol]
        draw_spending(axes, one, of_protocol(protocol), colour, label)
    axes.set_ylim(bottom=0)


@panels(
    "private_losses",
    "approximation loss",
    "share of queries",
    "Distribution of approximation losses over queries, by protocol (Figures 2 and 3).",
)
def losses(axes: Axes, one: Studied) -> None:
    """Draw a histogram of approximation losses, by protocol."""
    draw_histogram(axes, one, "excess_loss", PROTOCOLS)


@panels(
    "private_steps",
    "noisy steps of a query",
    "share of queries",
    "Distribution of noisy steps per query (Figure 5); a reused answer takes none.",
)
def steps(axes: Axes, one: Studied) -> None:
    """Draw a histogram of noisy steps per query, one for each adaptive protocol."""
    draw_histogram(axes, one, "steps", ("adaptive", "enhanced"))


@panels(
    "private_queries",
    "queries answered",
    "ε spent",
    "ε spent by the adaptive protocol on queries of dense, sparse and overfitted regions, and on random ones (Figure 9).",
)
def queries(axes: Axes, one: Studied) -> None:
    """Draw the ε spent on queries of every region; that where two forests differ is drawn if both were studied."""
    for name, colour in REGIONS.items():
        if len(one.experiment(name)):
            draw_spending(axes, one, of_experiment(name), colour, f"{name} queries")
    axes.set_ylim(bottom=0)


@panels(
    "private_iterations",
    "noisy step",
    "approximation loss",
    "Approximation loss over the iterations of queries of the adaptive protocol that start closer to the minimum than the norm of "
    "a step's noise (Figure 4): a line per query.",
    "traced",
)
def iterations(axes: Axes, one: Studied) -> None:
    """Draw the losses of the queries whose iterations were recorded, or a note that no query started this close to the minimum."""
    paths = one.answers["path"].drop_nulls().to_list()
    for place, path in enumerate(paths):
        losses, colour = [max(loss, LEAST) for loss in path], PALETTE[place % len(PALETTE)]
        draw_line(axes, range(len(path)), losses, colour, f"_query {place + 1}", linewidth=0.7)
    if not paths:
        axes.text(0.5, 0.5, "no query started this close", ha="center", va="center", transform=axes.transAxes)
    else:
        axes.set(yscale="log")


def in_parts(one: Studied, protocol: str) -> tuple[Estimate, Estimate] | None:
    """Return the largest ε spent by any of the disjoint parts, and the mean loss of their answers.

    None if the data set was not divided.
    """

    def spent_and_loss(again: Studied) -> tuple[float, ...]:
        numbers = range(1, one.study.get("parts", 1) + 1)
        known = (again.experiment(f"part {number}").filter(protocol=protocol) for number in numbers)
        if not (rows := [part for part in known if len(part)]):
            return ()
        loss = sum(float(part["excess_loss"].sum()) for part in rows) / sum(len(part) for part in rows)
        return max(again.epsilon_of(part) for part in rows), loss

    found = one.estimates(spent_and_loss)
    return (found[0], found[1]) if found else None


@panels(
    "private_parts",
    "ε spent",
    "approximation loss",
    "Approximation loss over the ε spent on all queries, by protocol: answered from the whole data set (filled), and from disjoint "
    "parts of it side by side, each with a part of the queries (open; section 6.2).",
    "parts",
)
def parts(axes: Axes, one: Studied) -> None:
    """Draw two points per protocol: the whole data set, and its disjoint parts."""
    for protocol in SPENDING:
        label, colour = PROTOCOLS[protocol]
        rows, divided = of_protocol(protocol), in_parts(one, protocol)
        whole = one.spent(rows), one.mean(rows, "excess_loss")
        plain: Any = dict.fromkeys(("elinewidth", "capsize", "capthick", "markeredgewidth"))
        for pair, filled, name in ((whole, colour, label), (divided, "white", f"_{label}, in parts")):
            if pair is not None:
                errorbars(axes, [pair], colour, "o", name, **plain, markerfacecolor=filled, markersize=4)
    axes.set(xscale="log", yscale="log")


def correlation(one: Studied) -> Estimate | None:
    """Return Spearman's correlation of the loss with the misclassification around a query; None if one of the two is constant."""

    def of_ranks(again: Studied) -> float | None:
        rows = again.protocol("non-adaptive")
        if "misclassified" not in rows.columns or rows["misclassified"].n_unique() < 2:
            return None
        ranks = np.stack([rows[name].rank().to_numpy() for name in ("misclassified", "excess_loss")])
        return float(np.corrcoef(ranks)[0, 1])

    return one.over(of_ranks)


def _correlated(one: Studied) -> str | None:
    if (value := correlation(one)) is None:
        return None
    within = "" if math.isnan(value.low) else f" ({value.low:.2f} to {value.high:.2f})"
    return f"\nrank correlation {value.mean:.2f}{within}"


@panels(
    "private_misclassified",
    "share misclassified nearby",
    "approximation loss",
    caption="Approximation loss of a private explanation over the misclassification of the records nearest to the query (Figure 8), with "
    "Spearman's correlation and its interval over repetitions.",
    key="nearest",
    nothing="No black box misclassifies any of the records near the queries.",
    note=_correlated,
)
def misclassified(axes: Axes, one: Studied) -> None:
    """Draw a point per query of every repetition, for a black box that misclassifies any of the records near them."""
    rows = one.from_scratch
    axes.scatter(rows["misclassified"], rows["excess_loss"], s=3, color=PALETTE[0], linewidths=0, alpha=0.5)
    add_rows(axes, "point", None, x=rows["misclassified"], y=rows["excess_loss"])
    axes.set(yscale="log", xlim=(-0.03, 1.03))


def _explained(
    images: Sequence[np.ndarray], explanations: Sequence[Sequence[Any]], width: float, height: float
) -> tuple[Figure, Any]:
    """Draw a row per image [C, H, W]: the image, then its explanations, each on its own scale."""
    drawn = blank(width * (len(explanations[0]) + 1), height * len(images) + 0.3)
    grid = drawn.subplots(len(images), len(explanations[0]) + 1, squeeze=False)
    for line, image, several in zip(grid, images, explanations, strict=True):
        line[0].imshow(image.transpose(1, 2, 0).squeeze(), cmap="gray")
        for axes, values in zip(line[1:], several, strict=True):
            explanation = np.asarray(values, dtype=float).reshape(image.shape)
            axes.imshow(attribution_pixels(explanation, attribution_scale([explanation])))
        for axes in line:
            axes.set_axis_off()
    return drawn, grid


def _pictured(spec: ReportedAudit, of_models: bool) -> list[str]:
    studies = spec.studies.items()
    return [name for name, study in studies if study["pictures"] and (study["settings"] or not of_models)]


@figure(
    "private_pictures",
    once_for("private_pictures", lambda spec: _pictured(spec, of_models=False)),
    "Images and their private explanations at every ε (Figure 1): orange counts for the class explained, blue against it.",
)
def pictures(results: Results, findings: Findings, dataset: str) -> Figure:
    """Draw a row per image of a pool: the image, then its explanations by increasing ε."""
    images = np.load(results.root / "pools" / dataset / "records.npy", mmap_mode="r")
    one = [one for one in results.studied if one.dataset == dataset][-1]
    rows = one.repetitions[0].experiment("epsilon").filter(as_published="").sort("epsilon", "number")
    by_query = rows.group_by("number", "record", maintain_order=True).agg("epsilon", "explanation")
    shown = by_query.sort("number").head(one.study["pictures"])
    drawn, grid = _explained([images[record] for record in shown["record"]], shown["explanation"].to_list(), 0.8, 0.8)
    titles = ["image", *(f"ε = {epsilon:g}" for epsilon in shown["epsilon"][0].to_list())]
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title, loc="center")
    return drawn


@figure(
    "private_models",
    once_for("private_models", lambda spec: _pictured(spec, of_models=True)),
    "Images and their private explanations by the training of the model (Figure 6); those that every model misclassifies come "
    "first. Orange counts for the class explained, blue against it.",
)
def models(results: Results, findings: Findings, dataset: str) -> Figure:
    """Draw a row per image of a pool: the image, then its explanation of every model."""
    from mia_audit.pools.store import read_records

    stored = read_records(results.root / "pools" / dataset)
    mine = [one for one in results.studied if one.dataset == dataset and one.setting is not None]
    answers = [one.repetitions[0].protocol("non-adaptive") for one in mine]
    asked = answers[0]["record"].to_numpy()
    wrong = np.all([own["class"].to_numpy() != stored.labels[asked] for own in answers], axis=0)
    shown = [int(number) for number in np.argsort(~wrong, kind="stable")[: mine[0].study["pictures"]]]
    explanations = [[own["explanation"][number] for own in answers] for number in shown]
    drawn, grid = _explained([stored.data[asked[number]] for number in shown], explanations, 1.0, 0.95)
    for place, (line, number) in enumerate(zip(grid, shown, strict=True)):
        line[0].set_title(f"a {stored.labels[asked[number]]}", fontsize=6)
        for axes, one, own in zip(line[1:], mine, answers, strict=True):
            training = "" if place else f"{one.training}\n"
            axes.set_title(f"{training}class {own['class'][number]}", fontsize=6)
    return drawn


@figure(
    "private_training",
    once("private_training", lambda spec: any(study["settings"] for study in spec.studies.values())),
    "Distance to the exact explanations of the model without DP (Dist), and approximation loss, by the training of the model "
    "(Figure 7). Boxes: quartiles over queries; whiskers: 5 % and 95 %; diamonds: means with intervals over repetitions.",
)
def training(results: Results, findings: Findings, subject: None = None) -> Figure:
    """Draw Dist and approximation loss of private explanations, by the training of the model."""
    from matplotlib.cbook import boxplot_stats

    groups: dict[tuple[str, str], list[Studied]] = {}
    for one in results.studied:
        if one.setting is not None:
            groups.setdefault((one.dataset, str(one.setting["architecture"])), []).append(one)
    drawn = blank(2 * COLUMN, 2.0 * len(groups))
    for row, mine in zip(drawn.subplots(len(groups), 2, squeeze=False), groups.values(), strict=True):
        for axes, column, label in zip(row, ("distance", "excess_loss"), ("Dist", "approximation loss"), strict=True):
            names, places = [one.training for one in mine], range(1, len(mine) + 1)
            boxes = boxplot_stats([one.from_scratch[column].to_numpy() for one in mine], whis=(5, 95), labels=names)
            axes.bxp(boxes, showfliers=False, medianprops={"color": PALETTE[1]})
            for kind, low, high in (("quartiles", "q1", "q3"), ("whiskers", "whislo", "whishi")):
                spread = [Estimate(box["med"], math.nan, box[low], box[high], 0) for box in boxes]
                add_rows(axes, kind, None, x=places, y=spread, label=names)
            means = [one.mean(of_protocol("non-adaptive"), column) for one in mine]
            if not math.isnan(means[0].low):
                points = list(zip(places, means, names, strict=True))
                errorbars(axes, points, PALETTE[0], "D", "mean over repetitions")
            place = f"{mine[0].dataset_name}, {mine[0].architecture_name}"
            axes.set(ylabel=label, xlabel="training of the model")
            axes.set_label(f"{place}: {label}")
            axes.set_title(f"{place}: explanations at ε = {mine[0].study['epsilon']:g} each")
    return drawn


def _side_by_side(axes: Axes, lines: Sequence[tuple[str, list[tuple[int, Estimate]]]], names: Sequence[str]) -> None:
    """Draw AUCs at named places, those of the lines beside each other, and guessing."""
    for slot, (label, values) in enumerate(lines):
        offset = (slot - (len(lines) - 1) / 2) * 0.16
        placed = [(place, value, names[place]) for place, value in values]
        errorbars(axes, placed, PALETTE[slot % 6], MARKERS[slot % 5], label, shift=offset)
    axes.axhline(0.5, **GUESSING)
    axes.set_xticks(range(len(names)), names)


@figure(
    "private_attacks",
    once("private_attacks", lambda spec: spec.attacks_private_explainers),
    "AUC of attacks on private explanations by the ε of each, and on the same fit without noise, on gradients and on outputs, for "
    "every training, with intervals. Dashed: guessing.",
)
def attacks(results: Results, findings: Findings, dataset: str | None = None) -> Figure | str:
    """Draw the AUC of every attack on every explanation of the models' own training records, for every training."""
    by_setting = attacked(results, dataset)
    if not by_setting:
        return "No private explanation of this data set was attacked."
    drawn = blank(2 * COLUMN + 0.2, 3.9)
    grid = drawn.subplots(2, 2, sharex=True, sharey=True)
    for axes, (attack, title) in zip(grid.flat, ATTACKS.items(), strict=True):
        names = list(dict.fromkeys(name for by_name in by_setting.values() for name in by_name[attack]))
        lines = []
        for setting, by_name in by_setting.items():
            title_of = protection(setting) if setting.private or setting.no_guarantee else "trained without DP"
            known = {names.index(name): auc_of(row) for name, row in by_name[attack].items()}
            lines.append((title_of, sorted(known.items())))
        _side_by_side(axes, lines, names)
        axes.set_xticks(range(len(names)), names, rotation=35, ha="right")
        axes.set_title(title)
    for line in grid:
        line[0].set_ylabel("AUC")
    drawn.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return drawn


@figure(
    "private_sets",
    once("private_sets", lambda spec: any(study["attacked"] for study in spec.studies.values())),
    "AUC of attacks on the explanation set of a fixed black box, over the ε of one explanation, with intervals. "
    "Dashed: guessing.",
)
def sets(results: Results, findings: Findings, subject: None = None) -> Figure:
    """Draw the AUC of attacks on explanation sets, a panel per black box."""
    groups: dict[tuple[str, str], list[AuditedSetting]] = {}
    for setting in results.spec.settings:
        if setting.mechanism in ("private-local", "local-linear") and not setting.trained:
            groups.setdefault(setting.group, []).append(setting)
    columns = min(3, len(groups))
    rows = -(-len(groups) // columns)
    drawn = blank(max(COLUMN, 2.35 * columns), 2.3 * rows)
    grid = drawn.subplots(rows, columns, squeeze=False, sharey=True)
    for axes, (group, settings) in zip(grid.flat, groups.items(), strict=False):
        ordered = sorted(settings, key=lambda setting: float(setting.epsilon))
        known = [_headline_summary(results, one).filter(likelihood=results.spec.likelihood) for one in ordered]
        lines = [
            (label, [(place, auc_of(one.filter(attack=attack).row(0, named=True))) for place, one in enumerate(known)])
            for attack, label in SET_ATTACKS.items()
        ]
        _side_by_side(axes, lines, ["no noise" if setting.epsilon == "inf" else setting.epsilon for setting in ordered])
        axes.set(xlabel="ε of one explanation", title=", ".join(group))
    for axes in grid.flat[len(groups) :]:
        axes.set_axis_off()
    grid[0, 0].set_ylabel("AUC")
    drawn.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return drawn


def auc_of(row: Mapping[str, Any]) -> Estimate:
    """Return the AUC of a row of the summary."""
    return Estimate.from_numbers({end: row[f"auc_{end}"] for end in ("mean", "low", "high")})


def attacked(
    results: Results, dataset: str | None = None
) -> dict[AuditedSetting, dict[str, dict[str, dict[str, Any]]]]:
    """Return rows of the summary by training, attack and explanation, for settings whose private explanations are attacked."""
    by_setting = {}
    for setting, metrics in zip(results.spec.settings, results.metrics, strict=True):
        explainers = {read_signal(signal).explainer or "" for signal in metrics["signal"].unique()}
        if setting.trained and dataset in (None, setting.dataset) and any(map(private_epsilon, explainers)):
            real = _headline_summary(results, setting)
            by_setting[setting] = {attack: dict(_attacked(real, attack, results.spec.likelihood)) for attack in ATTACKS}
    return by_setting


def _headline_summary(results: Results, setting: AuditedSetting) -> pl.DataFrame:
    """Return the summary of a setting's headline unit on the true membership."""
    from mia_audit.evaluation.files import headline_unit

    index = results.spec.settings.index(setting)
    aggregate, _ = headline_unit(results.metrics[index])
    return results.summaries[index].filter(null_control=False, aggregate=aggregate)


def _attacked(summary: pl.DataFrame, attack: str, likelihood: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the summary rows of an attack on every explanation, the most private first, and of loss-LiRA on the outputs."""
    rows: dict[tuple[float, str], dict[str, Any]] = {}
    for row in summary.iter_rows(named=True):
        if row["likelihood"] not in (likelihood, "none"):
            continue
        signal = read_signal(row["signal"])
        if row["signal"] in ("confidence", "loss"):
            if row["attack"] == ("threshold" if attack == "threshold" else "loss-lira"):
                rows[3.0, "outputs"] = row
        elif row["attack"] == attack and signal.channel == "explanations" and signal.explainer:
            if attack == "threshold" and signal.summary != "l2":
                continue
            epsilon, (explainer, release) = private_epsilon(signal.explainer), release_of(signal.explainer)
            place = -1 / epsilon if epsilon else {"local_linear": 1.0}.get(explainer, 2.0)
            name = f"private, ε = {epsilon:g}" if epsilon else NAMED.get(explainer, explainer_label(explainer))
            name += "" if release == FULL else f", {release}"
            rows[place, name] = row
    return [(name, rows[place, name]) for place, name in sorted(rows)]
