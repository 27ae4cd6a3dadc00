"""The answer: in prose, as answer.json, and for a terminal.

Every sentence follows from the sign and the interval of an estimate; if the interval includes guessing, no leak is stated.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.errors import UserError, first_line
from mia_audit.foreign_json import read_object
from mia_audit.report.findings import (
    SILENT,
    SUBJECTS,
    TITLES,
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
from mia_audit.report.formatting import (
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
from mia_audit.report.statements import no_guarantee_sentence
from mia_audit.sanitise import visible_lines
from mia_audit.signals.name import PROBES, read_signal

if TYPE_CHECKING:
    from mia_audit.report.results import Results

NAMES = {
    "outputs": "the model's outputs",
    "explanations": "its explanations",
    "both": "the two together",
    "other": "the signals given",
}
WHOSE = {
    (False, False): "training records",
    (False, True): "persons in the training set",
    (True, False): "records of the explanation set",
    (True, True): "persons in the explanation set",
}
"""The units that an attack recognises, by whether explanation sets are attacked, and whether the unit is the person."""


MEMBERS = {
    "record": (
        "a record that was trained on above one that was not",
        "the training records",
        "the records that were not trained on",
    ),
    "person": (
        "a person who was trained on above one who was not",
        "the persons in the training set",
        "the persons who are not in it",
    ),
    "explained": (
        "a record of the explanation set above one that is not in it",
        "the records of the explanation set",
        "the other records",
    ),
}
"""A member above another record or person, the members, and the others."""


def answer(group: list[Finding], findings: Findings) -> dict[str, Any]:
    """Return the answer for one data set and architecture: its conclusion in a sentence or two, then sentences by term."""
    base = reference(group) or group[0]
    return {
        "conclusion": " ".join(_conclusion(group, base, findings.confidence)),
        "sentences": [
            {"term": term, "text": text} for term, text in _items(group, base, findings.fpr, findings.confidence)
        ],
    }


def _conclusion(group: list[Finding], base: Finding, confidence: float) -> Iterator[str]:
    leaking = base.leaking
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
    silent = joined([_tried(base, channel) for channel in base.strongest if channel not in leaking], "or")
    rest = f"; no attack on {silent} did better than guessing" if silent else ""
    yield f"{start}, {_amounts(leaking)} reveal who was in {where}{rest}."
    for finding in group:
        setting = finding.setting
        if (setting.private or setting.no_guarantee or setting.given_name) and finding is not base:
            yield f"{upper_first(protected(setting))}, {_remaining(finding)}{_cost(finding, base, confidence)}."


def _amounts(leaking: dict[str, Leak]) -> str:
    """List the leaking channels with their points of AUC above guessing."""
    above = {channel: points(leak.auc_estimate.mean - 0.5) for channel, leak in leaking.items()}
    words = [f"{NAMES[channel]}{_read_by(leak)} ({above[channel]} points)" for channel, leak in leaking.items()]
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
    if not finding.leaking:
        if not finding.learned:
            return "the models have learned nothing, so that no leak was measured says little"
        return "no attack that was tried does better than guessing"
    words: list[str] = []
    for channel, leak in finding.strongest.items():
        amount = f"{points(leak.auc_estimate.mean - 0.5)} points" if leak.beats_guessing else "nothing measurable"
        words.append(f"{SUBJECTS[channel]} {'' if words else 'leak '}{amount}")
    return joined(words)


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
        unit = "explained" if base.setting.explained else "person" if base.by_person else "record"
        pair, *names = MEMBERS[unit]
        sentences = [_strength(leak, confidence, pair), *_recognised(leak, fpr, *names)]
        if outputs is not None and channel != "outputs":
            sentences.append(_against_outputs(leak, outputs, channel))
        yield TITLES[channel], " ".join(sentences)
    for finding in group:
        if finding is not base:
            why = [f"{no_guarantee_sentence(finding)}."] if finding.setting.no_guarantee else []
            setting, term = finding.setting, protection(finding.setting)
            if setting.explained or setting.label:
                term = titled(setting)
            elif setting.private:
                term = f"ε = {setting.epsilon} ({setting.mechanism_name})"
            yield term, " ".join([*why, *_bought(finding, base, confidence)])


def _strength(leak: Leak, confidence: float, pair: str) -> str:
    auc = leak.auc_estimate
    tried = "The attack" if leak.tried == 1 else f"The strongest of {count(leak.tried, 'attack')}"
    subject = f"{tried} ({leak.attack} on {read_signal(leak.signal).label})"
    if math.isnan(auc.low):
        return (
            f"{subject} reaches an AUC of {fixed(auc.mean)} on its one target, which says nothing about other targets."
        )
    numbers = f"AUC {fixed(auc.mean)}, {confidence * 100:g}\u00a0% interval {interval(auc)}"
    if leak.beats_guessing:
        share = f"ranks {pair} {percent(auc.mean)} of the time ({numbers})"
        amount = f"Guessing would be 50\u00a0%: this is a leak of {points(auc.mean - 0.5)} points."
        low, high = auc.future
        if auc.targets == 1:
            return f"{subject} {share}. {amount} The interval is that of this one model, over its records."
        return f"{subject} {share}. {amount} The AUC of one further model would lie between {fixed(low)} and {fixed(high)}."
    if silence(auc) == WORSE:
        return f"{subject} is worse than guessing ({numbers}): its score points the wrong way, which is no protection."
    return f"{subject} is {SILENT} ({numbers})."


def _recognised(leak: Leak, fpr: float | None, members: str, others: str) -> Iterator[str]:
    if fpr is None:
        yield "The pool is too small to resolve the true-positive rate at any of the false-positive rates asked for."
        return
    tpr = leak.tpr_estimate
    sentence = f"Allowed to be wrong about {rate(fpr)} of {others}, it recognises {percent(tpr.mean)} of {members}"
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
    measured = f"no difference could be measured between what {who} and what the outputs leak"
    return f"Over the same models, {measured} ({interval(gap, 100, 1)} points of AUC)."


def _bought(finding: Finding, base: Finding, confidence: float) -> Iterator[str]:
    """State how a setting's leakage differs from its reference, by channel, and the cost in accuracy."""
    shared = [channel for channel in finding.strongest if channel in base.strongest]
    if parts := [_change(channel, finding.strongest[channel], base.strongest[channel]) for channel in shared]:
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


WIDTH = 100
ONE_SEED = "Intervals do not contain how results differ between seeds: other samples of records and other start models."
ANSWER = "answer.json"


def answer_content(results: Results, findings: Findings) -> dict[str, Any]:
    """Return the content of answer.json: cautions, then for every group its sentences and a row per setting."""
    from mia_audit.report.advice import cautions

    spec, studies = results.spec, []
    if spec.studies and not findings.settings:
        from mia_audit.report.private import conclusions  # and the privacy accounting with it

        studies = [{"name": name, "conclusion": text} for name, text in conclusions(results)]
    return {
        "title": spec.title or spec.audit,
        "confidence": findings.confidence,
        "fpr": findings.fpr,
        "cautions": list(cautions(results, findings)),
        "groups": [_group_content(results, group, findings) for group in findings.groups().values()] or studies,
    }


def _group_content(results: Results, group: list[Finding], findings: Findings) -> dict[str, Any]:
    first = group[0]
    guessing = results.guessing(first.setting)
    return {
        "name": first.setting.place,
        **answer(group, findings),
        "members": WHOSE[first.setting.explained is not None, first.by_person],
        "base_rate": guessing.accuracy if guessing else None,
        "rows": [
            {
                "setting": titled(finding.setting),
                "epsilon": finding.setting.epsilon,
                "attacks": {
                    channel: {"attack": leak.attack, "signal": leak.signal, "beats_guessing": leak.beats_guessing}
                    | {"auc": leak.auc_estimate.numbers}
                    for channel, leak in finding.strongest.items()
                },
                "test_accuracy": finding.test_accuracy.numbers if finding.test_accuracy else None,
                "train_accuracy": finding.train_accuracy.numbers if finding.train_accuracy else None,
            }
            for finding in group
        ],
    }


def answer_text(results: Path, width: int = WIDTH) -> str:
    """Return a report's cautions, its opening sentences, its table of settings, and the path of the page.

    Raises UserError if `results` has no report.
    """
    path = results / ANSWER
    content = read_object(path, "the results of a finished audit, results/NAME")
    try:
        lines = [str(content["title"]), ""]
        for caution in content["cautions"]:
            lines += [textwrap.fill(f"Caution: {caution}", width), ""]
        for group in content["groups"]:
            lines += _group_lines(group, content["confidence"], width, named=len(content["groups"]) > 1)
        if len(content.get("seeds", ())) < 2 and any(group.get("rows") for group in content["groups"]):
            lines += [textwrap.fill(ONE_SEED, width), ""]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: damaged, or not the answer of an audit ({first_line(error)})") from None
    others = [name for name in ("tables", "figures") if (results / name).is_dir()]
    beside = f" (beside it: {' and '.join(f'{name}/' for name in others)})" if others else ""
    return visible_lines("\n".join([*lines, f"Report: {results / 'report.html'}{beside}"]))


def present(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the channels that were attacked in some row of the answer, and the accuracies that are known in some."""
    channels = [channel for channel in TITLES if any(channel in row["attacks"] for row in rows)]
    return channels, [name for name in ACCURACIES if any(row[name] for row in rows)]


def _group_lines(group: Mapping[str, Any], confidence: float, width: int, named: bool) -> Iterator[str]:
    if named and group["name"]:
        yield group["name"]
    yield textwrap.fill(group["conclusion"].replace(" = ", "\u00a0=\u00a0"), width)
    yield ""
    if not group.get("rows"):
        return
    rows = list(_table_rows(group["rows"]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        yield "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip()
        if number == 0:
            yield "  ".join("-" * size for size in widths)
    yield ""
    for note, mark in MARKS.items():
        if any(cell.endswith(f" {mark}") for row in rows for cell in row):
            yield f"{mark} {note}"
    whose = " and on ".join(ACCURACIES[name] for name in present(group["rows"])[1])
    sentences = (
        f"How well the strongest attack distinguishes {group['members']} from others (AUC, {confidence * 100:g}\u00a0% interval)"
        f"{f', and the accuracy on {whose}' if whose else ''}.",
        base_rate_sentence(group["base_rate"]) if whose else "",
        "Guessing has an AUC of 0.5.",
    )
    yield textwrap.fill(" ".join(filter(None, sentences)), width)
    yield ""


ACCURACIES = {"train_accuracy": "training records", "test_accuracy": "others"}
"""The accuracies of the answer, each with the records that it is about."""
MARKS = {SILENT: "*", WORSE: "†"}


def _table_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yield the head of the table of settings, and a line per setting."""
    channels, accuracies = present(rows)
    yield [
        "Setting",
        *(TITLES[channel] for channel in channels),
        *(name.replace("_", " ").capitalize() for name in accuracies),
    ]
    for row in rows:
        attacks = [_attack_text(row["attacks"].get(channel)) for channel in channels]
        yield [row["setting"], *attacks, *(_accuracy_text(row[name]) for name in accuracies)]


def _attack_text(attack: Mapping[str, Any] | None) -> str:
    if attack is None:
        return "not attacked"
    value = Estimate.from_numbers(attack["auc"])
    return f"{fixed(value.mean)} ({interval(value)}) {MARKS.get(silence(value), '')}".rstrip()


def _accuracy_text(numbers: Mapping[str, Any] | None) -> str:
    if not numbers:
        return "unknown"
    value = Estimate.from_numbers(numbers)
    within = percent_interval(value)
    return percent(value.mean) + (f" ({within})" if within else "")
