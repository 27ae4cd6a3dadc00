"""The page's section on private explanations: their loss, their cost, and attacks on them."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from mia_audit.explain.black_boxes import OVERFITTED
from mia_audit.report.figures.catalogue import paper_style, png_uri
from mia_audit.report.figures.private import (
    ATTACKS,
    PROTOCOLS,
    attacked,
    auc_of,
    correlation,
    in_parts,
    of_experiment,
    of_protocol,
    pictures,
)
from mia_audit.report.findings import Estimate
from mia_audit.report.formatting import (
    at_most,
    capital,
    count,
    fixed,
    joined,
    power,
    significant,
    significant_interval,
    titled,
    with_interval,
)
from mia_audit.report.results import Rows, Studied
from mia_audit.report.statements import explained_adjacency
from mia_audit.report.tables.catalogue import Cell, Column, Layout, estimate_cell, text
from mia_audit.report.tables.explanations import private_published

if TYPE_CHECKING:
    from mia_audit.report.findings import Findings
    from mia_audit.report.results import Results


def epsilon(spent: Estimate) -> str:
    """Format an ε, rounded up, with its interval where there is one."""
    return with_interval(spent, at_most(spent.mean))


def saved(one: Studied, rows: Rows) -> str:
    """Say how much less some of the answers spend than queries from scratch with the same mean loss; empty if unknown."""
    share, instead = one.saved(rows), one.instead(rows)
    if share is None or instead is None:
        return ""
    return f": {change(share)} than queries from scratch with the same loss would ({epsilon(instead)})"


def change(saved: Estimate) -> str:
    """Say how much less or more is spent, with the interval of that share."""
    less = saved.mean > 0
    ends = sorted((saved.low, saved.high) if less else (-saved.low, -saved.high))
    within = "" if math.isnan(saved.low) else f" ({' to '.join(fixed(100 * end, 0) for end in ends)})"
    return f"{fixed(100 * abs(saved.mean), 0)}\u00a0%{within} {'less' if less else 'more'}"


def findings_of(boxes: Sequence[Studied]) -> Iterator[tuple[str, str]]:
    """Yield the findings on black boxes that were fitted to the pool; the tables and the last finding list the others too."""
    every, boxes = boxes, [one for one in boxes if one.setting is None] or boxes[:1]
    said = {
        "Noise": _noise,
        "Past answers": _adapting,
        "History alone": _history,
        "Where queries lie": _density,
        "Disjoint parts": _parts,
    }
    for term, sentence in said.items():
        if sentences := [text for one in boxes if (text := sentence(one))]:
            yield term, " ".join(sentences)
    named = {one.name: one for one in boxes}
    pairs = [(named[plain], named[over]) for plain, over in OVERFITTED.items() if {plain, over} <= set(named)]
    if pairs:
        yield "Overfitting", " ".join(_overfitting(*pair) for pair in pairs)
    known = [(one.label, value) for one in every if (value := correlation(one))]
    if values := [f"{label} {with_interval(value, significant(value.mean, 2))}" for label, value in known]:
        rank = "Rank correlation of a query's loss with the misclassification around it"
        yield "Misclassification", f"{rank}: {joined(values)}."


def cost(one: Studied, rows: Rows) -> tuple[str, str]:
    """Return the ε that some of the answers spend, and their mean loss, in words."""
    return epsilon(one.spent(rows)), with_interval(one.mean(rows, "excess_loss"))


def _noise(one: Studied) -> str:
    means = one.losses()
    middle = one.study["epsilons"][len(one.study["epsilons"]) // 2]
    ratio = one.estimated(lambda each: each.over_epsilon["sigma", middle] / each.over_epsilon["", middle])
    return (
        f"{capital(one.label)}: at ε = {middle:g} for one explanation the mean loss is {with_interval(means['', middle])} with exactly"
        f" calibrated noise and {with_interval(means['sigma', middle])} with the published σ,"
        f" {with_interval(ratio, significant(ratio.mean, 2))} times as much."
    )


def _adapting(one: Studied) -> str:
    spent, loss = cost(one, scratch := of_protocol("non-adaptive"))
    sentences = [f"from scratch ε = {spent} at {loss}"]
    for protocol in ("adaptive", "enhanced"):
        spent, loss = cost(one, rows := of_protocol(protocol))
        sentences.append(f"{PROTOCOLS[protocol][0]} ε = {spent} at a mean loss of {loss}{saved(one, rows)}")
    queries = count(len(scratch(one.repetitions[0])), "query", "queries")
    return f"{capital(one.label)}, {queries}: {'; '.join(sentences)}."


def _history(one: Studied) -> str:
    rows = of_protocol("non-interactive")
    if not all(len(rows(each)) for each in one.repetitions):
        return ""
    loss, zero = (one.mean(rows, name) for name in ("excess_loss", "excess_loss_of_zero"))
    gap = one.mean(lambda each: rows(each).select(gap=pl.col("excess_loss") - pl.col("excess_loss_of_zero")), "gap")
    known = math.isnan(gap.low) or gap.excludes(0)
    verdict = ("better than" if gap.mean < 0 else "worse than") if known else "not distinguishable from"
    return (
        f"{capital(one.label)}: {count(len(rows(one.repetitions[0])), 'further query', 'further queries')} answered from past"
        f" explanations alone cost nothing and miss the best fit by {with_interval(loss)} on average, {verdict} no explanation"
        f" ({with_interval(zero)})."
    )


def _density(one: Studied) -> str:
    parts = []
    for name in ("random", "dense", "sparse"):
        spent, loss = cost(one, of_experiment(name))
        parts.append(f"{name} ones ε = {spent} (mean loss {loss})")
    queries = count(len(one.repetitions[0].experiment("dense")), "query", "queries")
    return f"{capital(one.label)}, {queries} each by the adaptive protocol: {joined(parts)}."


def _parts(one: Studied) -> str:
    """Compare the whole data set with disjoint parts of it, each of which answers a part of the queries with the full ε (section 6.2)."""
    if (divided := in_parts(one, "non-adaptive")) is None:
        return ""
    (spent, loss), (whole, lost) = divided, cost(one, of_protocol("non-adaptive"))
    return (
        f"{capital(one.label)}, from scratch: {one.study['parts']} disjoint parts side by side spend ε = {epsilon(spent)} at a mean loss"
        f" of {with_interval(loss)}, the whole data set {whole} at {lost}."
    )


def _overfitting(plain: Studied, overfitted: Studied) -> str:
    (less, fewer), (spent, lost) = (cost(one, of_experiment("overfitted")) for one in (plain, overfitted))
    return (
        f"Where the accuracies of the two differ most, the same queries to the adaptive protocol spend ε = {spent} on"
        f" {overfitted.label} (mean loss {lost}) and {less} on {plain.label} ({fewer})."
    )


CHOICES = {
    "": "none of them",
    "sigma": "the published σ",
    "weight": "the published weights",
    "uncentred": "the published fit without centring",
    "beta": "the published β, without noise",
}
PLACE = ("dataset", "architecture", "mechanism", "epsilon")
SPREAD = (0.05, 0.95)
"""The quantiles between which nine queries in ten lie."""


def over_seeds_section(results: Results) -> list[dict[str, Any]]:
    """Return of every study's part of the section what has means over seeds."""
    parts = []
    for (dataset, study), (name, conclusion) in zip(results.spec.studies.items(), conclusions(results), strict=True):
        boxes = [one for one in results.studied if one.dataset == dataset]
        by_person = (results.every[0].pool_metadata(dataset) or {}).get("unit") == "person"
        said = {"name": name, "conclusion": conclusion, "terms": _terms(study, by_person)}
        parts.append(said | {"losses": _losses(boxes, study), "protocols": _protocols(boxes)})
    return parts


def private_section(results: Results, findings: Findings) -> list[dict[str, Any]]:
    """Return every study's part of the section, without its figures."""
    published = private_published(results, findings)
    parts = []
    for (dataset, study), shared in zip(results.spec.studies.items(), over_seeds_section(results), strict=True):
        boxes = [one for one in results.studied if one.dataset == dataset]
        part = {
            **shared,
            "terms": shared["terms"] + _repeated(study),
            "items": [{"term": term, "text": text} for term, text in findings_of(boxes)],
            "training": _training(boxes, results),
            "attacks": _attacks(results, dataset),
            "published": _published(published, dataset),
            "pictures": _pictures(results, findings, dataset) if study["pictures"] else "",
        }
        parts.append(part)
    return parts


def conclusions(results: Results) -> Iterator[tuple[str, str]]:
    """Yield the name of every study's data set, and its conclusion."""
    for dataset in results.spec.studies:
        boxes = [one for one in results.studied if one.dataset == dataset]
        yield boxes[0].dataset_name, " ".join(_conclusion(boxes))


def _conclusion(boxes: Sequence[Studied]) -> Iterator[str]:
    """State the loss of explanations of the first black box, and what the adaptive protocol saves at the same loss."""
    one = boxes[0]
    scratch, adaptive = of_protocol("non-adaptive"), of_protocol("adaptive")
    loss, zero = (one.mean(scratch, name) for name in ("excess_loss", "excess_loss_of_zero"))
    yield (
        f"Explanations of {one.label} at ε = {one.study['epsilon']:g} each (δ = {power(one.study['delta'])}) miss the best fit by"
        f" {with_interval(loss)} on average; an empty one misses it by {with_interval(zero)}."
    )
    queries = count(len(scratch(one.repetitions[0])), "query", "queries")
    spending = f"{queries} from scratch spend ε = {epsilon(one.spent(scratch))} together, the adaptive protocol"
    yield f"{spending} {epsilon(one.spent(adaptive))}{saved(one, adaptive)}."
    shares = [(other, other.saved(adaptive)) for other in boxes[1:]]
    if known := [f"{other.label} {change(share)}" for other, share in shares if share]:
        yield f"For the others: {joined(known)}."


def _terms(study: Any, by_person: bool) -> str:
    accounting = (
        "the ε of one explanation is exact (Gaussian DP of its noisy steps); that of many is the sum of their zero-concentrated"
        " costs ρ, converted at the same δ"
    )
    who = "All protect the explanation set for a fixed black box; they do not cover what the black box itself has memorised"
    return (
        f"Every ε is at δ = {power(study['delta'])}, for {explained_adjacency(study['adjacency'], by_person)}; {accounting}."
        f" {count(study['steps'], 'noisy step')} from scratch, {study['kernel']} weights, c = {study['c']:g}. {who}."
    )


def _repeated(study: Any) -> str:
    """Say what a repetition is; empty if nothing was repeated."""
    if study.get("repetitions", 1) == 1:
        return ""
    return (
        f" Numbers are means over {study.get('repetitions')} repetitions with other queries and other noise, on the same black box, and"
        " intervals are Student's t over them."
    )


def _losses(boxes: Sequence[Studied], study: Any) -> Layout:
    """Return the table of mean losses over the ε of one explanation, a row per black box."""
    rows: list[list[Cell | str]] = []
    for one in boxes:
        means = one.losses()
        cells = [_cell(means["", at], published=with_interval(means["sigma", at])) for at in study["epsilons"]]
        rows.append([one.label, *cells, _cell(one.mean(lambda each: each.answers, "excess_loss_of_zero"))])
    caption = (
        "Mean approximation loss of one explanation, by its ε: how much worse it fits than the best explanation. In small print the "
        "same with the published noise."
    )
    heads = [Column(f"ε = {epsilon:g}") for epsilon in study["epsilons"]]
    return Layout([*text("Black box"), *heads, Column("no explanation")], rows, caption)


def _cell(value: Estimate, shown: str = "", published: str = "") -> Cell:
    """Return a mean, with its interval, if it has one, and the mean with published noise, if given, in small print."""
    notes = significant_interval(value), published
    return Cell(shown or significant(value.mean), tuple(filter(None, notes)))


def _protocols(boxes: Sequence[Studied]) -> Layout:
    """Return the table of ε spent, a row per black box and protocol."""
    known = [
        (one, name) for one in boxes for name in PROTOCOLS if all(len(each.protocol(name)) for each in one.repetitions)
    ]
    columns = ("queries", "mean loss", "mean steps", "free answers", "ε spent", "from scratch at equal loss")
    caption = (
        "ε spent by protocols on the same queries. The last column is what queries from scratch would spend at the same mean loss: "
        "the fair comparison. Answers from history cost nothing more."
    )
    heads = [*text("Black box", "Protocol"), *map(Column, columns)]
    return Layout(heads, [[one.label, *_protocol(one, name)] for one, name in known], caption)


def _protocol(one: Studied, protocol: str) -> list[Cell | str]:
    rows = of_protocol(protocol)
    free = one.estimated(lambda each: float(rows(each)["source"].is_in(("reused", "history")).to_numpy().mean()))
    alone = protocol == "non-interactive"
    spent, instead = one.spent(rows), None if alone else one.instead(rows)
    within = "" if math.isnan(free.low) else f"{fixed(100 * free.low, 1)} to {fixed(100 * free.high, 1)}"
    return [
        PROTOCOLS[protocol][0],
        f"{len(rows(one.repetitions[0])):,}".replace(",", "\u202f"),
        _cell(one.mean(rows, "excess_loss")),
        _cell(one.mean(rows, "steps")),
        Cell(f"{fixed(100 * free.mean, 0)}\u00a0%", (within,) if within else ()),
        "0" if alone else _cell(spent, at_most(spent.mean)),
        "–" if instead is None else _cell(instead, at_most(instead.mean)),
    ]


def _training(boxes: Sequence[Studied], results: Results) -> Layout | None:
    """Return the table of distances and losses of private explanations of models, a row per training; None without models."""
    rows: list[list[Cell | str]] = []
    settings = {tuple(getattr(one, key) for key in PLACE): one for one in results.spec.settings}
    for one in boxes:
        if one.setting is None:
            continue
        setting = settings[tuple(one.setting[key] for key in PLACE)]
        notes = (
            [f"δ = {power(setting.delta)}, {setting.accountant.upper()}"]
            if setting.delta and setting.accountant
            else []
        )
        rows.append([Cell(one.label, notes), *(_spread(one, name) for name in ("distance", "excess_loss"))])
    caption = (
        "Private explanations of models, by their training: distance to the exact explanations of the model without protection "
        "(Dist, of weights whose squares sum to at most 1), and excess loss over the best fit to their own model. Means over "
        "queries, and the range of nine queries in ten."
    )
    return Layout([*text("Model"), Column("Dist"), Column("approximation loss")], rows, caption) if rows else None


def _spread(one: Studied, column: str) -> Cell:
    """Return a mean over queries, its interval over repetitions, and the range of nine queries in ten."""
    answers = one.from_scratch
    if answers[column].null_count():
        return Cell("–")
    low, high = np.quantile(answers[column].to_numpy(), SPREAD)
    mean = one.mean(of_protocol("non-adaptive"), column)
    return Cell(with_interval(mean), (f"{significant(low)} to {significant(high)}",))


def _attacks(results: Results, dataset: str) -> Layout | None:
    """Return the table of AUCs of every attack on every explanation from a model's own training records, a column per training."""
    trainings = attacked(results, dataset)
    rows: list[list[Cell | str]] = []
    for attack, title in ATTACKS.items():
        for name in dict.fromkeys(name for by_name in trainings.values() for name in by_name[attack]):
            known = [by_name[attack].get(name) for by_name in trainings.values()]
            rows.append([title, name, *(estimate_cell(auc_of(row) if row else None) for row in known)])
    caption = (
        f"AUC with {results.spec.confidence * 100:g}\u00a0% intervals, by attack and by what it reads. ε is that of one explanation; "
        "“no noise” is the same fit without privacy."
    )
    heads = [Column(titled(setting)) for setting in trainings]
    return Layout([*text("Attack", "Reads"), *heads], rows, caption) if trainings else None


def _published(published: pl.DataFrame, dataset: str) -> Layout:
    """Return the table of the actual ε of every published choice."""
    rows: list[list[Cell | str]] = [
        [
            Cell(CHOICES[row["choice"]], (row["meaning"],)),
            f"{row['epsilon_claimed']:g}",
            at_most(row["epsilon_zero_out"]),
            at_most(row["epsilon_replacement"]),
        ]
        for row in published.filter(dataset=dataset).iter_rows(named=True)
    ]
    caption = (
        "Actual ε of one explanation from scratch with each choice of the published method, which can be selected for comparison: "
        "for one record's term taken out, and for one record replaced."
    )
    columns = [*text("As published"), *map(Column, ("ε claimed", "term taken out", "record replaced"))]
    return Layout(columns, rows, caption)


def _pictures(results: Results, findings: Findings, dataset: str) -> str:
    """Return the images and their explanations at every ε as a data URI."""
    written = io.BytesIO()
    with paper_style():
        figure = pictures(results, findings, dataset)
        assert not isinstance(figure, str)
        figure.savefig(written, format="png", dpi=150, metadata={"Software": None})
    return png_uri(written.getvalue())
