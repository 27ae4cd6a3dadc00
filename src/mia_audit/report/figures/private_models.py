"""Private explanations of models by their training: distances, losses, pictures, and misclassification.

Attacks on private explanations, and on the explanation sets of fixed black boxes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.explain.catalogue import explainer_label, private_epsilon
from mia_audit.explain.release import FULL, release_of
from mia_audit.report.data.findings import Estimate, Findings, estimate
from mia_audit.report.data.series import PALETTE
from mia_audit.report.data.spec import Spec
from mia_audit.report.figures.catalogue import figure, once, once_for
from mia_audit.report.figures.private import draw_panels, of_protocol
from mia_audit.report.figures.style import COLUMN, GUESSING, draw_explained, errorbars
from mia_audit.report.text.formatting import protection
from mia_audit.signals.name import read_signal

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.data.private import Studied
    from mia_audit.report.data.results import Results
    from mia_audit.report.data.spec import Setting


@figure(
    "private_training",
    once("private_training", lambda spec: any(study["settings"] for study in spec.studies.values())),
    "Distance to the exact explanations of the model without DP (Dist), and approximation loss, by the training of the model "
    "(Figure 7). Boxes: quartiles over queries; whiskers: 5 % and 95 %; diamonds: means with intervals over repetitions.",
    private=True,
)
def training(results: Results, findings: Findings, subject: None = None) -> Figure:
    """Draw Dist and approximation loss of private explanations, by the training of the model."""
    from matplotlib.figure import Figure

    models = [one for one in results.studied if one.setting is not None]
    groups = list(dict.fromkeys((one.dataset, str((one.setting or {})["architecture"])) for one in models))
    figure = Figure(figsize=(2 * COLUMN, 2.0 * len(groups)), layout="constrained")
    for row, group in zip(figure.subplots(len(groups), 2, squeeze=False), groups, strict=True):
        mine = [one for one in models if (one.dataset, str((one.setting or {})["architecture"])) == group]
        names = [one.training for one in mine]
        for axes, column, label in zip(row, ("distance", "excess_loss"), ("Dist", "approximation loss"), strict=True):
            values = [one.from_scratch[column].to_numpy() for one in mine]
            axes.boxplot(values, tick_labels=names, whis=(5, 95), showfliers=False, medianprops={"color": PALETTE[1]})
            means = [one.mean(of_protocol("non-adaptive"), column) for one in mine]
            if not math.isnan(means[0].low):
                errorbars(axes, list(enumerate(means, start=1)), PALETTE[0], "D", "mean over repetitions")
            axes.set(ylabel=label, xlabel="training of the model")
            axes.set_title(
                f"{mine[0].dataset_name}, {mine[0].architecture_name}: explanations at ε = {mine[0].study['epsilon']:g} each"
            )
    return figure


def _pictured(spec: Spec) -> list[str]:
    return [name for name, study in spec.studies.items() if study["pictures"] and study["settings"]]


@figure(
    "private_models",
    once_for("private_models", _pictured),
    "Images and their private explanations by the training of the model (Figure 6); those that every model misclassifies come "
    "first. Orange counts for the class explained, blue against it.",
    private=True,
)
def models(results: Results, findings: Findings, dataset: str) -> Figure:
    """Draw images of a pool and their explanations of every model."""
    return draw_models(results, dataset)


def draw_models(results: Results, dataset: str) -> Figure:
    """Draw a row per image: the image, then its explanation of every model, each on its own scale."""
    from matplotlib.figure import Figure

    from mia_audit.pools.store import read_records

    stored = read_records(results.root / "pools" / dataset)
    mine = [one for one in results.studied if one.dataset == dataset and one.setting is not None]
    answers = [one.repetitions[0].protocol("non-adaptive") for one in mine]
    asked = answers[0]["record"].to_numpy()
    wrong = np.all([own["class"].to_numpy() != stored.labels[asked] for own in answers], axis=0)
    drawn = np.argsort(~wrong, kind="stable")[: mine[0].study["pictures"]]
    figure = Figure(figsize=(1.0 * (len(mine) + 1), 0.95 * len(drawn) + 0.3), layout="constrained")
    panels = figure.subplots(len(drawn), len(mine) + 1, squeeze=False)
    for place, (line, number) in enumerate(zip(panels, drawn, strict=True)):
        draw_explained(line, stored.data[asked[number]], [own["explanation"][int(number)] for own in answers])
        line[0].set_title(f"a {stored.labels[asked[number]]}", fontsize=6)
        for axes, one, own in zip(line[1:], mine, answers, strict=True):
            training = "" if place else f"{one.training}\n"
            axes.set_title(f"{training}class {own['class'][int(number)]}", fontsize=6)
    return figure


def correlation(one: Studied) -> Estimate | None:
    """Return Spearman's correlation of the loss with the misclassification around a query; None if one of the two is constant."""
    from scipy.stats import rankdata

    each = []
    for again in one.repetitions:
        rows = again.protocol("non-adaptive")
        if "misclassified" not in rows.columns or rows["misclassified"].n_unique() < 2:
            return None
        ranks = [rankdata(rows[name].to_numpy()) for name in ("misclassified", "excess_loss")]
        each.append(float(np.corrcoef(*ranks)[0, 1]))
    return estimate(each, one.confidence)


@figure(
    "private_misclassified",
    once("private_misclassified", lambda spec: any(study.get("nearest") for study in spec.studies.values())),
    "Approximation loss of a private explanation over the misclassification of the records nearest to the query (Figure 8), with "
    "Spearman's correlation and its interval over repetitions.",
    private=True,
)
def misclassified(results: Results, findings: Findings, subject: None = None) -> Figure | str:
    """Draw a point per query, a panel per black box that misclassifies any of these records."""
    known = {id(one): value for one in results.studied if (value := correlation(one)) is not None}
    if not known:
        return "No black box misclassifies any of the records near the queries."

    def note(one: Studied) -> str:
        value = known[id(one)]
        within = "" if math.isnan(value.low) else f" ({value.low:.2f} to {value.high:.2f})"
        return f"\nrank correlation {value.mean:.2f}{within}"

    drawn = [one for one in results.studied if id(one) in known]
    return draw_panels(drawn, draw_misclassified, "share misclassified nearby", "approximation loss", note)


def draw_misclassified(axes: Axes, one: Studied) -> None:
    """Draw a point per query of every repetition."""
    rows = one.from_scratch
    axes.scatter(rows["misclassified"], rows["excess_loss"], s=3, color=PALETTE[0], linewidths=0, alpha=0.5)
    axes.set(yscale="log", xlim=(-0.03, 1.03))


MARKERS = "os^Dv"
ATTACKS = {"var-lrt": "VAR-LRT", "l1-lrt": "L1-LRT", "l2-lrt": "L2-LRT", "threshold": "threshold"}
NAMED = {"local_linear": "no noise"}
"""Names of explainers, where they differ from those elsewhere in a report."""
SET_ATTACKS = {
    "lrt": "how well it fits the record",
    "var-lrt": "VAR-LRT",
    "l1-lrt": "L1-LRT",
    "l2-lrt": "L2-LRT",
}


@figure(
    "private_attacks",
    once("private_attacks", lambda spec: spec.attacks_private_explainers),
    "AUC of attacks on private explanations by the ε of each, and on the same fit without noise, on gradients and on outputs, for "
    "every training, with intervals. Dashed: guessing.",
    private=True,
)
def attacks(results: Results, findings: Findings, dataset: str | None = None) -> Figure | str:
    """Draw the AUC of every attack on every explanation of the models' own training records, for every training."""
    from matplotlib.figure import Figure

    by_setting = attacked(results, dataset)
    if not by_setting:
        return "No private explanation of this data set was attacked."
    figure = Figure(figsize=(2 * COLUMN + 0.2, 3.9), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for axes, (attack, title) in zip(panels.flat, ATTACKS.items(), strict=True):
        names = list(dict.fromkeys(name for by_name in by_setting.values() for name in by_name[attack]))
        for slot, (setting, by_name) in enumerate(by_setting.items()):
            places = [place for place, name in enumerate(names) if name in by_name[attack]]
            offset = (slot - (len(by_setting) - 1) / 2) * 0.16
            values = [(place + offset, auc_of(by_name[attack][names[place]])) for place in places]
            errorbars(axes, values, PALETTE[slot % 6], MARKERS[slot % 5], trained_as(setting))
        axes.axhline(0.5, **GUESSING)
        axes.set_xticks(range(len(names)), names, rotation=35, ha="right")
        axes.set_title(title)
    for line in panels:
        line[0].set_ylabel("AUC")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


@figure(
    "private_sets",
    once("private_sets", lambda spec: any(study["attacked"] for study in spec.studies.values())),
    "AUC of attacks on the explanation set of a fixed black box, over the ε of one explanation, with intervals. "
    "Dashed: guessing.",
    private=True,
)
def sets(results: Results, findings: Findings, subject: None = None) -> Figure:
    """Draw the AUC of attacks on explanation sets, a panel per black box."""
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
                real = _headline_summary(results, setting)
                row = real.filter(attack=attack, likelihood=results.spec.likelihood).row(0, named=True)
                values.append((place + offset, auc_of(row)))
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


def auc_of(row: Mapping[str, Any]) -> Estimate:
    """Return the AUC of a row of the summary."""
    low, high = (math.nan if row[end] is None else row[end] for end in ("auc_low", "auc_high"))
    return Estimate(row["auc_mean"], row["auc_sd"], low, high, row["targets"])


def trained_as(setting: Setting) -> str:
    """Return how a model was trained, in prose."""
    bare = not setting.private and not setting.no_guarantee
    return "trained without DP" if bare else protection(setting)


def attacked(results: Results, dataset: str | None = None) -> dict[Setting, dict[str, dict[str, dict[str, Any]]]]:
    """Return rows of the summary by training, attack and explanation, for settings whose private explanations are attacked."""
    by_setting = {}
    for setting, metrics in zip(results.spec.settings, results.metrics, strict=True):
        explainers = {read_signal(signal).explainer or "" for signal in metrics["signal"].unique()}
        if setting.trained and dataset in (None, setting.dataset) and any(map(private_epsilon, explainers)):
            real = _headline_summary(results, setting)
            by_setting[setting] = {attack: dict(_attacked(real, attack, results.spec.likelihood)) for attack in ATTACKS}
    return by_setting


def _headline_summary(results: Results, setting: Setting) -> pl.DataFrame:
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
