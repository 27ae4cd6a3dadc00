"""The answer in plain words: what outputs and explanations leak, what each ε buys and what it costs.

Every sentence follows the sign and the interval of what was found; an interval that includes guessing is never a leak.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from mia_audit.report.findings import (
    Estimate,
    Finding,
    Findings,
    Leak,
    accuracy_difference,
    difference,
    reference,
)
from mia_audit.report.signals import read_signal
from mia_audit.report.statements import no_guarantee_sentence
from mia_audit.report.words import (
    capital,
    count,
    fixed,
    interval,
    joined,
    percent,
    percent_interval,
    points,
    protected,
    protection,
    rate,
)

NAMES = {
    "outputs": "the model's outputs",
    "explanations": "its explanations",
    "both": "the two together",
    "other": "the signals given",
}
SUBJECTS = {
    "outputs": "the outputs",
    "explanations": "the explanations",
    "both": "both together",
    "other": "the signals",
}
TITLES = {"outputs": "Outputs", "explanations": "Explanations", "both": "Both together", "other": "Signals"}


@dataclass(frozen=True)
class Judged:
    """How members and the other records are called."""

    pair: str
    members: str
    others: str


TRAINED = Judged(
    "a record that was trained on above one that was not",
    "the training records",
    "the records that were not trained on",
)
EXPLAINED = Judged(
    "a record of the explanation set above one that is not in it",
    "the records of the explanation set",
    "the other records",
)


@dataclass(frozen=True)
class Item:
    """One point of the answer: what it is about, and the sentences."""

    term: str
    text: str


@dataclass(frozen=True)
class Answer:
    """The answer for one group of settings: its conclusion in a sentence or two, then point by point."""

    dataset: str
    architecture: str
    conclusion: str
    items: list[Item]


def answer(group: list[Finding], findings: Findings, confidence: float) -> Answer:
    """Put what was found for one data set and architecture into words."""
    base = reference(group) or group[0]
    items = [Item(*pair) for pair in _items(group, base, findings.fpr, confidence)]
    dataset, architecture = base.setting.group
    return Answer(dataset, architecture, " ".join(_conclusion(group, base, confidence)), items)


def _conclusion(group: list[Finding], base: Finding, confidence: float) -> Iterator[str]:
    leaking = {channel: leak for channel, leak in base.strongest.items() if leak.beats_guessing}
    silent = [channel for channel in base.strongest if channel not in leaking]
    start = _capital(protected(base.setting))
    where = "the explanation set" if base.setting.explained else "the training set"
    if not leaking:
        yield f"{start}, no leak could be measured: no attack that was tried tells better than guessing who was in {where}."
        return
    sentence = f"{start}, {_amounts(leaking)} give away who was in {where}"
    yield sentence + (f"; {_channels(silent)} do not, as far as the attacks tried can tell." if silent else ".")
    for found in group:
        if (found.setting.private or found.setting.no_guarantee) and found is not base:
            yield f"{_capital(protected(found.setting))}, {_remaining(found)}{_cost(found, base, confidence)}."


def _amounts(leaking: dict[str, Leak]) -> str:
    """Name the leaking channels, each with its points of AUC above guessing."""
    words = [f"{NAMES[channel]} ({points(leak.auc_estimate.mean - 0.5)} points)" for channel, leak in leaking.items()]
    words[0] = words[0].replace(" points)", " points of AUC above guessing)")
    return joined(words) if "outputs" in leaking else joined(words).replace("its", "the model's", 1)


def _channels(channels: list[str]) -> str:
    return joined([NAMES[channel] for channel in channels])


def _remaining(found: Finding) -> str:
    """Say what is left to leak, in points above guessing."""
    if not any(leak.beats_guessing for leak in found.strongest.values()):
        return "no attack that was tried does better than guessing"
    amounts = [
        (
            SUBJECTS[channel],
            f"{points(leak.auc_estimate.mean - 0.5)} points" if leak.beats_guessing else "nothing measurable",
        )
        for channel, leak in found.strongest.items()
    ]
    (first, amount), *others = amounts
    return joined([f"{first} leak {amount}", *(f"{name} {amount}" for name, amount in others)])


def _cost(found: Finding, base: Finding, confidence: float) -> str:
    gap = accuracy_difference(base, found, confidence)
    if gap is None:
        return ""
    if gap.low > 0:
        return f", at a cost of {points(gap.mean)} points of accuracy"
    return ", at no measurable cost in accuracy"


def _items(group: list[Finding], base: Finding, fpr: float | None, confidence: float) -> Iterator[tuple[str, str]]:
    outputs = base.strongest.get("outputs")
    for channel, leak in base.strongest.items():
        told = EXPLAINED if base.setting.explained else TRAINED
        sentences = [_strength(leak, confidence, told), *_recognised(leak, fpr, told)]
        if outputs is not None and channel != "outputs":
            sentences.append(_against_outputs(leak, outputs, channel))
        yield TITLES[channel], " ".join(sentences)
    for found in group:
        if found is not base:
            why = [f"{no_guarantee_sentence(found)}."] if found.setting.no_guarantee else []
            yield _term(found), " ".join([*why, *_bought(found, base, confidence)])


def _term(found: Finding) -> str:
    setting = found.setting
    if setting.explained:
        return capital(protection(setting))
    return f"ε = {setting.epsilon} ({setting.mechanism})" if setting.private else protection(setting)


def _strength(leak: Leak, confidence: float, told: Judged) -> str:
    found = leak.auc_estimate
    tried = "The attack" if leak.tried == 1 else f"The strongest of {count(leak.tried, 'attack')}"
    subject = f"{tried} ({leak.attack} on {_signal(leak)})"
    if math.isnan(found.low):
        return (
            f"{subject} reaches an AUC of {fixed(found.mean)} on its one target, which says nothing about the next one."
        )
    numbers = f"AUC {fixed(found.mean)}, {confidence * 100:g}\u00a0% interval {interval(found)}"
    if leak.beats_guessing:
        share = f"ranks {told.pair} {percent(found.mean)} of the time ({numbers})"
        return f"{subject} {share}. Guessing would be 50\u00a0%: this is a leak of {points(found.mean - 0.5)} points."
    if found.high < 0.5:
        return f"{subject} is worse than guessing ({numbers}): its score points the wrong way, which is no protection."
    if found.low > 0.5:
        chance = (
            f"no more than {'an attack' if leak.tried == 1 else 'the strongest of so many attacks'} reaches by chance"
        )
        return f"{subject} reaches {numbers}. That is {chance}: not distinguishable from guessing."
    return f"{subject} is not distinguishable from guessing ({numbers})."


def _signal(leak: Leak) -> str:
    return read_signal(leak.signal).label


def _recognised(leak: Leak, fpr: float | None, judged: Judged) -> Iterator[str]:
    if fpr is None:
        yield "The pool is too small to resolve the true-positive rate at any of the false-positive rates asked for."
        return
    found = leak.tpr_estimate
    recognised = f"{percent(found.mean)} of {judged.members} ({percent_interval(found)})"
    told = f"Allowed to be wrong about {rate(fpr)} of {judged.others}, it recognises {recognised}"
    if found.low > fpr:
        yield f"{told}, {points(found.mean - fpr)} points more than guessing."
    elif found.high < fpr:
        yield f"{told}, fewer than guessing would."
    else:
        yield f"{told}, which is not distinguishable from guessing."


def _against_outputs(leak: Leak, outputs: Leak, channel: str) -> str:
    gap = difference(leak, outputs)
    who = SUBJECTS[channel]
    if gap.low > 0:
        return f"Over the same models, {who} leak {_points_with_interval(gap)} of AUC more than the outputs."
    if gap.high < 0:
        return f"Over the same models, {who} leak {_points_with_interval(gap)} of AUC less than the outputs."
    return f"Over the same models, what {who} leak is not distinguishable from what the outputs leak ({_signed_interval(gap)} points of AUC)."


def _bought(found: Finding, base: Finding, confidence: float) -> Iterator[str]:
    """What a setting changes against its reference, channel by channel, and what it costs in accuracy."""
    parts = [
        _change(channel, leak, base.strongest[channel])
        for channel, leak in found.strongest.items()
        if channel in base.strongest
    ]
    if parts:
        yield f"{_capital('; '.join(parts))}."
    gap = accuracy_difference(base, found, confidence)
    if gap is None or found.test_accuracy is None or base.test_accuracy is None:
        return
    pair = f"{percent(found.test_accuracy.mean)} instead of {percent(base.test_accuracy.mean)}"
    if gap.low > 0:
        yield f"It costs {_points_with_interval(gap)} of test accuracy: {pair}."
    elif gap.high < 0:
        yield f"Test accuracy is {_points_with_interval(gap)} higher: {pair}."
    else:
        yield f"No cost in test accuracy could be measured: {pair} ({_signed_interval(gap)} points)."


def _change(channel: str, leak: Leak, before: Leak) -> str:
    gap = difference(before, leak)
    name = {
        "outputs": "the outputs",
        "explanations": "the explanations",
        "both": "both together",
        "other": "the signals",
    }[channel]
    after = f"AUC {fixed(leak.auc_estimate.mean)} ({interval(leak.auc_estimate)})"
    rest = after if leak.beats_guessing else f"{after}, not distinguishable from guessing"
    if gap.low > 0:
        return f"{name} leak {_points_with_interval(gap)} less, leaving {rest}"
    if gap.high < 0:
        return f"{name} leak {_points_with_interval(gap)} more: {rest}"
    return f"no change could be measured in what {name} leak: {rest}"


def _points_with_interval(gap: Estimate) -> str:
    low, high = sorted((abs(gap.low), abs(gap.high)))
    return f"{points(gap.mean)} points ({points(low)} to {points(high)})"


def _signed_interval(gap: Estimate) -> str:
    return interval(gap, 100, 1)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
