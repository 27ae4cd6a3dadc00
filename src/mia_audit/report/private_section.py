"""The page's section on explanations that are private themselves: what they miss, what they cost, and what attacks find."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.pools.files import read_records
from mia_audit.report.private_charts import attacks_chart, study_charts
from mia_audit.report.private_figures import ATTACKS, PROTOCOLS, attacked, pictures_figure
from mia_audit.report.private_results import PrivateResults, Studied, mean_of
from mia_audit.report.statements import TAKEN
from mia_audit.report.words import (
    at_most,
    capital,
    count,
    fixed,
    joined,
    power,
    protection,
    significant,
)

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.results import Results

CHOICES = {
    "": "none of them",
    "sigma": "the published σ",
    "weight": "the published weights",
    "uncentred": "the published fit without centring",
    "beta": "the published β, without noise",
}
PLACE = ("dataset", "architecture", "mechanism", "epsilon")
SPREAD = (0.05, 0.95)
"""Quantiles between which losses of a trained model's explanations are said to lie."""


def private_section(results: Results, specifications: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Describe every study of an audit; its charts' specifications are added to `specifications` by their id."""
    studies = PrivateResults(results.root, {"studies": results.spec.studies})
    parts = []
    for index, (dataset, study) in enumerate(results.spec.studies.items()):
        boxes = [one for one in studies.studied if one.dataset == dataset]
        figures = []
        for name, label, caption, chart in [*study_charts(boxes), *attacks_chart(results, dataset)]:
            specifications[f"private-{index}-{name}"] = chart
            figures.append({"id": f"private-{index}-{name}", "label": label, "caption": caption})
        parts.append(
            {
                "name": dataset,
                "conclusion": " ".join(_conclusion(boxes)),
                "terms": _terms(study),
                "losses": _losses(boxes, study),
                "protocols": [row for one in boxes for row in _protocols(one)],
                "items": [{"term": term, "text": text} for term, text in _items(boxes)],
                "training": [_training(one, results) for one in boxes if one.setting is not None],
                "attacks": _attacks(results, dataset),
                "published": list(_published(studies, dataset)),
                "figures": figures,
                "pictures": _pictures(results, studies, dataset, study),
            }
        )
    return parts


def _conclusion(boxes: Sequence[Studied]) -> Iterator[str]:
    """Say of the first black box what an explanation misses, and what the adaptive protocol saves at the same loss."""
    one = boxes[0]
    scratch, adaptive = one.protocol("non-adaptive"), one.protocol("adaptive")
    loss, zero = (mean_of(scratch, name) for name in ("excess_loss", "excess_loss_of_zero"))
    yield (
        f"Explanations of {one.label} at ε = {one.study['epsilon']:g} each (δ = {power(one.study['delta'])}) miss the best fit by"
        f" {significant(loss)} on average; an empty one misses it by {significant(zero)}."
    )
    total, spent, instead = one.epsilon_of(scratch), one.epsilon_of(adaptive), one.scratch_at_equal_loss(adaptive)
    queries = count(len(scratch), "query", "queries")
    told = f"{queries} from scratch spend ε = {at_most(total)} together, the adaptive protocol {at_most(spent)}"
    yield f"{told}{_saved(spent, instead)}."
    others = [(other, other.protocol("adaptive")) for other in boxes[1:]]
    saved = [(other, other.epsilon_of(rows), other.scratch_at_equal_loss(rows)) for other, rows in others]
    if known := [f"{other.label} {_change(spent, instead)}" for other, spent, instead in saved if instead]:
        yield f"For the others: {joined(known)}."


def _saved(spent: float, instead: float | None) -> str:
    if instead is None:
        return ""
    return f": {_change(spent, instead)} than queries from scratch that miss as much would ({at_most(instead)})"


def _change(spent: float, instead: float) -> str:
    return f"{fixed(100 * abs(1 - spent / instead), 0)}\u00a0% {'less' if spent < instead else 'more'}"


def _terms(study: Any) -> str:
    accounting = (
        "the ε of one explanation is exact (Gaussian DP of its noisy steps); that of many is the sum of their zero-concentrated"
        " costs ρ, converted at the same δ"
    )
    who = "All are promises to the explanation set for a fixed black box; what the black box itself has learned by heart they do not cover"
    return (
        f"Every ε stands at δ = {power(study['delta'])}, for {TAKEN[study['adjacency']]}; {accounting}."
        f" {count(study['steps'], 'noisy step')} from scratch, {study['kernel']} weights, c = {study['c']:g}. {who}."
    )


def _losses(boxes: Sequence[Studied], study: Any) -> dict[str, Any]:
    """Return mean losses over the ε of one explanation, a row per black box."""
    rows = []
    for one in boxes:
        means = one.over_epsilon()
        cells = [
            {"main": significant(means["", epsilon]), "note": significant(means["sigma", epsilon])}
            for epsilon in study["epsilons"]
        ]
        zero = mean_of(one.answers, "excess_loss_of_zero")
        rows.append({"name": one.label, "cells": [*cells, {"main": significant(zero), "note": ""}]})
    return {"heads": [f"ε = {epsilon:g}" for epsilon in study["epsilons"]], "rows": rows}


def _protocols(one: Studied) -> Iterator[dict[str, Any]]:
    for protocol, (label, _) in PROTOCOLS.items():
        rows = one.protocol(protocol)
        if not len(rows):
            continue
        sources = rows["source"].to_list()
        free = sum(source in ("reused", "history") for source in sources) / len(sources)
        alone = protocol == "non-interactive"
        instead = None if alone else one.scratch_at_equal_loss(rows)
        yield {
            "black_box": one.label,
            "name": label,
            "cells": [
                f"{len(rows):,}".replace(",", "\u202f"),
                significant(mean_of(rows, "excess_loss")),
                significant(mean_of(rows, "steps")),
                f"{fixed(100 * free, 0)}\u00a0%",
                "0" if alone else at_most(one.epsilon_of(rows)),
                "–" if instead is None else at_most(instead),
            ],
        }


def _items(boxes: Sequence[Studied]) -> Iterator[tuple[str, str]]:
    """Put into words what was found on the black boxes that were made of the pool; the tables have all of them."""
    boxes = [one for one in boxes if one.setting is None] or boxes[:1]
    yield "Noise", " ".join(_noise(one) for one in boxes)
    yield "Past answers", " ".join(_adapting(one) for one in boxes)
    if told := [_history(one) for one in boxes if len(one.protocol("non-interactive"))]:
        yield "History alone", " ".join(told)
    yield "Where queries lie", " ".join(_density(one) for one in boxes)
    named = {one.name: one for one in boxes}
    if {"forest", "forest-overfitted"} <= set(named):
        yield "Overfitting", _overfitting(named["forest"], named["forest-overfitted"])


def _noise(one: Studied) -> str:
    means = one.over_epsilon()
    middle = one.study["epsilons"][len(one.study["epsilons"]) // 2]
    exact, published = means["", middle], means["sigma", middle]
    return (
        f"{capital(one.label)}: at ε = {middle:g} for one explanation the mean loss is {significant(exact)} with the noise that is needed"
        f" and {significant(published)} with the published σ, {significant(published / exact, 2)} times as much."
    )


def _adapting(one: Studied) -> str:
    told = []
    for protocol in ("adaptive", "enhanced"):
        rows = one.protocol(protocol)
        spent = one.epsilon_of(rows)
        loss = significant(mean_of(rows, "excess_loss"))
        saved = _saved(spent, one.scratch_at_equal_loss(rows))
        told.append(f"{PROTOCOLS[protocol][0]} ε = {at_most(spent)} at a mean loss of {loss}{saved}")
    scratch = one.protocol("non-adaptive")
    loss = significant(mean_of(scratch, "excess_loss"))
    queries = count(len(scratch), "query", "queries")
    return f"{capital(one.label)}, {queries}: from scratch ε = {at_most(one.epsilon_of(scratch))} at {loss}; {'; '.join(told)}."


def _history(one: Studied) -> str:
    rows = one.protocol("non-interactive")
    loss, zero = (mean_of(rows, name) for name in ("excess_loss", "excess_loss_of_zero"))
    verdict = "better than no explanation" if loss < zero else "worse than no explanation"
    return (
        f"{capital(one.label)}: {count(len(rows), 'further query', 'further queries')} answered from past explanations alone cost nothing"
        f" and miss {significant(loss)} on average, {verdict} ({significant(zero)})."
    )


def _density(one: Studied) -> str:
    parts = []
    for name in ("random", "dense", "sparse"):
        rows = one.experiment(name)
        loss = significant(mean_of(rows, "excess_loss"))
        parts.append(f"{name} ones ε = {at_most(one.epsilon_of(rows))} (mean loss {loss})")
    queries = count(len(one.experiment("dense")), "query", "queries")
    return f"{capital(one.label)}, {queries} each by the adaptive protocol: {joined(parts)}."


def _overfitting(plain: Studied, overfitted: Studied) -> str:
    spent = [one.epsilon_of(one.protocol("adaptive")) for one in (plain, overfitted)]
    losses = [significant(mean_of(one.protocol("adaptive"), "excess_loss")) for one in (plain, overfitted)]
    return (
        f"The same queries to the adaptive protocol spend ε = {at_most(spent[1])} on the overfitted forest (mean loss {losses[1]})"
        f" and {at_most(spent[0])} on the other one ({losses[0]})."
    )


def _training(one: Studied, results: Results) -> dict[str, Any]:
    rows, mine = one.protocol("non-adaptive"), one.setting or {}
    setting = next(found for found in results.spec.settings if all(getattr(found, key) == mine[key] for key in PLACE))
    promise = (
        f"δ = {power(setting.delta)}, {setting.accountant.upper()}" if setting.delta and setting.accountant else ""
    )
    return {"name": one.label, "note": promise, "cells": [_spread(rows[name]) for name in ("distance", "excess_loss")]}


def _spread(values: pl.Series) -> dict[str, str]:
    known = values.drop_nulls().to_numpy()
    if not len(known):
        return {"main": "–", "note": ""}
    low, high = np.quantile(known, SPREAD)
    return {"main": significant(float(known.mean())), "note": f"{significant(low)} to {significant(high)}"}


def _attacks(results: Results, dataset: str) -> dict[str, Any] | None:
    """Return the AUC of every attack on every explanation from a model's own training records, a column per training."""
    found = attacked(results, dataset)
    if not found:
        return None
    rows = []
    for attack, title in ATTACKS.items():
        for name in dict.fromkeys(name for by_name in found.values() for name in by_name[attack]):
            cells = []
            for by_name in found.values():
                row = by_name[attack].get(name)
                cells.append(_interval(row) if row else {"main": "–", "note": ""})
            rows.append({"attack": title, "name": name, "cells": cells})
    return {"heads": [capital(protection(setting)) for setting in found], "rows": rows}


def _interval(row: dict[str, Any]) -> dict[str, str]:
    known = row["auc_low"] is not None
    note = f"{fixed(row['auc_low'])} to {fixed(row['auc_high'])}" if known else ""
    return {"main": fixed(row["auc_mean"]), "note": note}


def _published(studies: PrivateResults, dataset: str) -> Iterator[dict[str, str]]:
    for row in studies.published().iter_rows(named=True):
        if row["dataset"] == dataset:
            yield {
                "choice": CHOICES[row["choice"]],
                "meaning": row["meaning"],
                "claimed": f"{row['epsilon_claimed']:g}",
                "zero_out": at_most(row["epsilon_zero_out"]),
                "replacement": at_most(row["epsilon_replacement"]),
            }


def _pictures(results: Results, studies: PrivateResults, dataset: str, study: Any) -> str:
    """Return the images and their explanations at every ε as a picture inside the page; nothing where none are shown."""
    from mia_audit.report.figures import paper_style

    if not study["pictures"]:
        return ""
    written = io.BytesIO()
    with paper_style():
        figure = pictures_figure(studies, dataset, read_records(results.root / "pools" / dataset).data)
        figure.savefig(written, format="png", dpi=150, metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(written.getvalue()).decode()
