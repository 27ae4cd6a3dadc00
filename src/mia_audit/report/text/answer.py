"""The answer in prose: the leakage of outputs and explanations, and the effect and cost of each ε.

Every sentence follows from the sign and the interval of an estimate; if the interval includes guessing, no leak is stated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from mia_audit.report.data.findings import (
    SILENT,
    WORSE,
    Estimate,
    Finding,
    Findings,
    Leak,
    accuracy_difference,
    difference,
    reference,
    silence,
)
from mia_audit.report.text.formatting import (
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
    titled,
    upper_first,
)
from mia_audit.report.text.statements import no_guarantee_sentence
from mia_audit.signals.name import PROBES, read_signal

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
"""Headings of the channels."""
WHOSE = {
    (False, False): "training records",
    (False, True): "persons in the training set",
    (True, False): "records of the explanation set",
    (True, True): "persons in the explanation set",
}
"""The units that an attack recognises, by whether explanation sets are attacked, and whether the unit is the person."""


class Members(NamedTuple):
    """The names of members and of the other records."""

    pair: str
    members: str
    others: str


TRAINED = Members(
    "a record that was trained on above one that was not",
    "the training records",
    "the records that were not trained on",
)
PERSONS = Members(
    "a person who was trained on above one who was not",
    "the persons in the training set",
    "the persons who are not in it",
)
EXPLAINED = Members(
    "a record of the explanation set above one that is not in it",
    "the records of the explanation set",
    "the other records",
)


class Item(NamedTuple):
    """One point of the answer: its subject and its sentences."""

    term: str
    text: str


class Answer(NamedTuple):
    """The answer for one group of settings: its conclusion in a sentence or two, then point by point."""

    conclusion: str
    items: list[Item]


def answer(group: list[Finding], findings: Findings) -> Answer:
    """Return the answer for one data set and architecture."""
    base = reference(group) or group[0]
    items = [Item(*pair) for pair in _items(group, base, findings.fpr, findings.confidence)]
    return Answer(" ".join(_conclusion(group, base, findings.confidence)), items)


def _conclusion(group: list[Finding], base: Finding, confidence: float) -> Iterator[str]:
    leaking = {channel: leak for channel, leak in base.strongest.items() if leak.beats_guessing}
    silent = [_tried(base, channel) for channel in base.strongest if channel not in leaking]
    start = upper_first(protected(base.setting))
    where = "the explanation set" if base.setting.explained else "the training set"
    if not leaking and not base.learned:
        yield (
            f"{start}, the models have learned nothing about their training records, so that no leak was measured says"
            " nothing about models that learn."
        )
        return
    if not leaking:
        yield f"{start}, no leak could be measured: no attack that was tried does better than guessing who was in {where}."
        return
    sentence = f"{start}, {_amounts(leaking)} reveal who was in {where}"
    yield sentence + (f"; no attack on {joined(silent, 'or')} did better than guessing." if silent else ".")
    for finding in group:
        setting = finding.setting
        if (setting.private or setting.no_guarantee or setting.given_name) and finding is not base:
            yield f"{upper_first(protected(finding.setting))}, {_remaining(finding)}{_cost(finding, base, confidence)}."


def _amounts(leaking: dict[str, Leak]) -> str:
    """List the leaking channels with their points of AUC above guessing."""
    words = [
        f"{NAMES[channel]}{_read_by(leak)} ({points(leak.auc_estimate.mean - 0.5)} points)"
        for channel, leak in leaking.items()
    ]
    words[0] = words[0].replace(" points)", " points of AUC above guessing)")
    return joined(words) if "outputs" in leaking else joined(words).replace("its", "the model's", 1)


def _read_by(leak: Leak) -> str:
    """Name what of an explanation an attack read."""
    signal = read_signal(leak.signal.partition("+")[0])
    if signal.summary is None:
        return ""
    if signal.summary in PROBES:
        return " by how the model reacts to it"
    return f" by the {'whole map' if signal.is_vector else 'variance' if signal.summary == 'variance' else 'norm'}"


def _tried(finding: Finding, channel: str) -> str:
    """Name what the attacks on a channel read, in the plural."""
    if channel != "explanations":
        return NAMES[channel]
    maps = any(read_signal(leak.signal.partition("+")[0]).is_vector for leak in finding.leaks[channel])
    return "norms or maps" if maps else "norms"


def _remaining(finding: Finding) -> str:
    """State the remaining leaks, in points of AUC above guessing."""
    if not any(leak.beats_guessing for leak in finding.strongest.values()):
        if not finding.learned:
            return "the models have learned nothing, so that no leak was measured says little"
        return "no attack that was tried does better than guessing"
    amounts = [
        (
            SUBJECTS[channel],
            f"{points(leak.auc_estimate.mean - 0.5)} points" if leak.beats_guessing else "nothing measurable",
        )
        for channel, leak in finding.strongest.items()
    ]
    (first, amount), *others = amounts
    return joined([f"{first} leak {amount}", *(f"{name} {amount}" for name, amount in others)])


def _cost(finding: Finding, base: Finding, confidence: float) -> str:
    gap = accuracy_difference(base, finding, confidence)
    if gap is None:
        return ""
    if math.isnan(gap.low):
        return f", with {points(gap.mean)} points {'less' if gap.mean >= 0 else 'more'} accuracy (one number each, no interval)"
    if gap.low > 0:
        return f", at a cost of {points(gap.mean)} points of accuracy"
    return ", at no measurable cost in accuracy"


def _items(group: list[Finding], base: Finding, fpr: float | None, confidence: float) -> Iterator[tuple[str, str]]:
    outputs = base.strongest.get("outputs")
    for channel, leak in base.strongest.items():
        names = EXPLAINED if base.setting.explained else PERSONS if base.by_person else TRAINED
        sentences = [_strength(leak, confidence, names), *_recognised(leak, fpr, names)]
        if outputs is not None and channel != "outputs":
            sentences.append(_against_outputs(leak, outputs, channel))
        yield TITLES[channel], " ".join(sentences)
    for finding in group:
        if finding is not base:
            why = [f"{no_guarantee_sentence(finding)}."] if finding.setting.no_guarantee else []
            yield _term(finding), " ".join([*why, *_bought(finding, base, confidence)])


def _term(finding: Finding) -> str:
    setting = finding.setting
    if setting.explained or setting.label:
        return titled(setting)
    return f"ε = {setting.epsilon} ({setting.mechanism_name})" if setting.private else protection(setting)


def _strength(leak: Leak, confidence: float, names: Members) -> str:
    auc = leak.auc_estimate
    tried = "The attack" if leak.tried == 1 else f"The strongest of {count(leak.tried, 'attack')}"
    subject = f"{tried} ({leak.attack} on {read_signal(leak.signal).label})"
    if math.isnan(auc.low):
        return (
            f"{subject} reaches an AUC of {fixed(auc.mean)} on its one target, which says nothing about other targets."
        )
    numbers = f"AUC {fixed(auc.mean)}, {confidence * 100:g}\u00a0% interval {interval(auc)}"
    if leak.beats_guessing:
        share = f"ranks {names.pair} {percent(auc.mean)} of the time ({numbers})"
        amount = f"Guessing would be 50\u00a0%: this is a leak of {points(auc.mean - 0.5)} points."
        low, high = auc.future
        if auc.targets == 1:
            return f"{subject} {share}. {amount} The interval is that of this one model, over its records."
        return f"{subject} {share}. {amount} The AUC of one further model would lie between {fixed(low)} and {fixed(high)}."
    if silence(auc) == WORSE:
        return f"{subject} is worse than guessing ({numbers}): its score points the wrong way, which is no protection."
    return f"{subject} is {SILENT} ({numbers})."


def _recognised(leak: Leak, fpr: float | None, names: Members) -> Iterator[str]:
    if fpr is None:
        yield "The pool is too small to resolve the true-positive rate at any of the false-positive rates asked for."
        return
    tpr = leak.tpr_estimate
    sentence = (
        f"Allowed to be wrong about {rate(fpr)} of {names.others}, it recognises {percent(tpr.mean)} of {names.members}"
    )
    if math.isnan(tpr.low):
        yield f"{sentence}."
        return
    sentence = f"{sentence} ({percent_interval(tpr)})"
    if tpr.low > fpr:
        yield f"{sentence}, {points(tpr.mean - fpr)} points more than guessing."
    elif tpr.high < fpr:
        yield f"{sentence}, fewer than guessing would."
    else:
        yield f"{sentence}, which is not distinguishable from guessing."


def _against_outputs(leak: Leak, outputs: Leak, channel: str) -> str:
    who = SUBJECTS[channel]
    if leak.key == outputs.key:
        return "It reads only the outputs: no attack that reads both is stronger."
    gap = difference(leak, outputs)
    if gap.low > 0:
        return f"Over the same models, {who} leak {_points_with_interval(gap)} of AUC more than the outputs."
    if gap.high < 0:
        return f"Over the same models, {who} leak {_points_with_interval(gap)} of AUC less than the outputs."
    gaps = f"{interval(gap, 100, 1)} points of AUC"
    return (
        f"Over the same models, no difference could be measured between what {who} and what the outputs leak ({gaps})."
    )


def _bought(finding: Finding, base: Finding, confidence: float) -> Iterator[str]:
    """State how a setting's leakage differs from its reference, by channel, and the cost in accuracy."""
    parts = [
        _change(channel, leak, base.strongest[channel])
        for channel, leak in finding.strongest.items()
        if channel in base.strongest
    ]
    if parts:
        yield f"{upper_first('; '.join(parts))}."
    gap = accuracy_difference(base, finding, confidence)
    if gap is None or finding.test_accuracy is None or base.test_accuracy is None:
        return
    pair = f"{percent(finding.test_accuracy.mean)} instead of {percent(base.test_accuracy.mean)}"
    if math.isnan(gap.low):
        yield f"Test accuracy, one number each: {pair}."
    elif gap.low > 0:
        yield f"It costs {_points_with_interval(gap)} of test accuracy: {pair}."
    elif gap.high < 0:
        yield f"Test accuracy is {_points_with_interval(gap)} higher: {pair}."
    else:
        yield f"No cost in test accuracy could be measured: {pair} ({interval(gap, 100, 1)} points)."


def _change(channel: str, leak: Leak, before: Leak) -> str:
    gap = difference(before, leak)
    name = SUBJECTS[channel]
    after = f"AUC {fixed(leak.auc_estimate.mean)} ({interval(leak.auc_estimate)})"
    rest = after if leak.beats_guessing else f"{after}, {silence(leak.auc_estimate)}"
    if gap.low > 0:
        return f"{name} leak {_points_with_interval(gap)} less, leaving {rest}"
    if gap.high < 0:
        return f"{name} leak {_points_with_interval(gap)} more: {rest}"
    return f"no change could be measured in what {name} leak: {rest}"


def _points_with_interval(gap: Estimate) -> str:
    low, high = sorted((abs(gap.low), abs(gap.high)))
    return f"{points(gap.mean)} points ({points(low)} to {points(high)})"


def base_rate_sentence(base_rate: float | None) -> str:
    """State the accuracy of guessing, beside which the models' accuracies are read; empty where it is not known."""
    if base_rate is None:
        return ""
    return f"Always predicting the most frequent class has an accuracy of {percent(base_rate)}."
