"""The findings on private explanations, as sentences of the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import polars as pl

from mia_audit.report.data.findings import Estimate, estimate
from mia_audit.report.data.private import Rows, Studied
from mia_audit.report.figures.private_models import correlation
from mia_audit.report.figures.private_protocols import in_parts
from mia_audit.report.figures.private_studies import PROTOCOLS, of_experiment, of_protocol
from mia_audit.report.text.formatting import at_most, capital, count, fixed, joined, significant, with_interval


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
    """Yield the findings on black boxes that were fitted to the pool; the tables list the others too."""
    boxes = [one for one in boxes if one.setting is None] or boxes[:1]
    yield "Noise", " ".join(_noise(one) for one in boxes)
    yield "Past answers", " ".join(_adapting(one) for one in boxes)
    if sentences := [
        _history(one) for one in boxes if all(len(each.protocol("non-interactive")) for each in one.repetitions)
    ]:
        yield "History alone", " ".join(sentences)
    yield "Where queries lie", " ".join(_density(one) for one in boxes)
    if sentences := [_parts(one, divided) for one in boxes if (divided := in_parts(one, "non-adaptive"))]:
        yield "Disjoint parts", " ".join(sentences)
    named = {one.name: one for one in boxes}
    if {"forest", "forest-overfitted"} <= set(named):
        yield "Overfitting", _overfitting(named["forest"], named["forest-overfitted"])


def _noise(one: Studied) -> str:
    means = one.losses()
    middle = one.study["epsilons"][len(one.study["epsilons"]) // 2]
    ratio = estimate(
        [losses["sigma", middle] / losses["", middle] for losses in (each.over_epsilon() for each in one.repetitions)],
        one.confidence,
    )
    return (
        f"{capital(one.label)}: at ε = {middle:g} for one explanation the mean loss is {with_interval(means['', middle])} with exactly"
        f" calibrated noise and {with_interval(means['sigma', middle])} with the published σ,"
        f" {with_interval(ratio, significant(ratio.mean, 2))} times as much."
    )


def _adapting(one: Studied) -> str:
    sentences = []
    for protocol in ("adaptive", "enhanced"):
        rows = of_protocol(protocol)
        loss, spent = with_interval(one.mean(rows, "excess_loss")), epsilon(one.spent(rows))
        sentences.append(f"{PROTOCOLS[protocol][0]} ε = {spent} at a mean loss of {loss}{saved(one, rows)}")
    scratch = of_protocol("non-adaptive")
    loss = with_interval(one.mean(scratch, "excess_loss"))
    queries = count(len(scratch(one.repetitions[0])), "query", "queries")
    return f"{capital(one.label)}, {queries}: from scratch ε = {epsilon(one.spent(scratch))} at {loss}; {'; '.join(sentences)}."


def _history(one: Studied) -> str:
    rows = of_protocol("non-interactive")
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
        rows = of_experiment(name)
        loss = with_interval(one.mean(rows, "excess_loss"))
        parts.append(f"{name} ones ε = {epsilon(one.spent(rows))} (mean loss {loss})")
    queries = count(len(one.repetitions[0].experiment("dense")), "query", "queries")
    return f"{capital(one.label)}, {queries} each by the adaptive protocol: {joined(parts)}."


def _parts(one: Studied, divided: tuple[Estimate, Estimate]) -> str:
    """Compare the whole data set with disjoint parts of it, each of which answers a part of the queries with the full ε (section 6.2)."""
    rows, (spent, loss) = of_protocol("non-adaptive"), divided
    whole = with_interval(one.mean(rows, "excess_loss"))
    return (
        f"{capital(one.label)}, from scratch: {one.study['parts']} disjoint parts side by side spend ε = {epsilon(spent)} at a mean loss"
        f" of {with_interval(loss)}, the whole data set {epsilon(one.spent(rows))} at {whole}."
    )


def misclassification(boxes: Sequence[Studied]) -> Iterator[tuple[str, str]]:
    """Yield a sentence on how losses depend on the misclassification around queries, if a black box misclassifies any record there."""
    known = [(one.label, value) for one in boxes if (value := correlation(one))]
    if known:
        values = joined([f"{label} {with_interval(value, significant(value.mean, 2))}" for label, value in known])
        yield "Misclassification", f"Rank correlation of a query's loss with the misclassification around it: {values}."


def _overfitting(plain: Studied, overfitted: Studied) -> str:
    rows = of_protocol("adaptive")
    spent = [epsilon(one.spent(rows)) for one in (plain, overfitted)]
    losses = [with_interval(one.mean(rows, "excess_loss")) for one in (plain, overfitted)]
    return (
        f"The same queries to the adaptive protocol spend ε = {spent[1]} on the overfitted forest (mean loss {losses[1]})"
        f" and {spent[0]} on the other one ({losses[0]})."
    )
