"""Private explanations of models by their training: distances, losses, pictures, and misclassification."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.report.data.findings import Estimate, Findings, estimate
from mia_audit.report.data.series import PALETTE
from mia_audit.report.data.spec import Spec
from mia_audit.report.figures.catalogue import figure, once, once_for
from mia_audit.report.figures.layout import COLUMN, errorbars
from mia_audit.report.figures.pictures import draw_explained
from mia_audit.report.figures.private_studies import draw_panels, of_protocol

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.data.private import Studied
    from mia_audit.report.data.results import Results


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
