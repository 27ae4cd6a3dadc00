"""Attacks on private explanations, and on the explanation sets of fixed black boxes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mia_audit.explain.catalogue import private_epsilon
from mia_audit.report.data.findings import Estimate, Findings
from mia_audit.report.data.series import PALETTE
from mia_audit.report.figures.catalogue import figure, once
from mia_audit.report.figures.layout import COLUMN, GUESSING, errorbars
from mia_audit.report.text.formatting import protection
from mia_audit.signals.name import read_signal

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results
    from mia_audit.report.data.spec import Setting

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
    from mia_audit.report.data.find import headline_unit

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
            epsilon = private_epsilon(signal.explainer)
            place = -1 / epsilon if epsilon else {"local_linear": 1.0}.get(signal.explainer, 2.0)
            name = f"private, ε = {epsilon:g}" if epsilon else NAMED.get(signal.explainer, signal.explainer_label)
            rows[place, name] = row
    return [(name, rows[place, name]) for place, name in sorted(rows)]
