"""answer.json, the report's answer for machines, and the same answer for a terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.errors import UserError, first_line
from mia_audit.foreign_json import read_object
from mia_audit.report.data.findings import SILENT, WORSE, Estimate, silence
from mia_audit.sanitise import visible_lines

if TYPE_CHECKING:
    from mia_audit.report.data.findings import Finding, Findings
    from mia_audit.report.data.results import Results

WIDTH = 100
ONE_SEED = "Intervals do not contain how results differ between seeds: other samples of records and other start models."
ANSWER = "answer.json"


def answer_content(results: Results, findings: Findings) -> dict[str, Any]:
    """Return the content of answer.json: cautions, then for every group its sentences and a row per setting."""
    from mia_audit.report.text.cautions import cautions

    spec, studies = results.spec, []
    if spec.studies and not findings.settings:
        from mia_audit.report.page.private import conclusions  # and the privacy accounting with it

        studies = [{"name": name, "conclusion": text} for name, text in conclusions(results)]
    return {
        "title": spec.title or spec.audit,
        "confidence": findings.confidence,
        "fpr": findings.fpr,
        "cautions": list(cautions(results, findings)),
        "groups": [_group(results, group, findings) for group in findings.groups().values()] or studies,
    }


def _group(results: Results, group: list[Finding], findings: Findings) -> dict[str, Any]:
    from mia_audit.report.text.answer import WHOSE, answer
    from mia_audit.report.text.formatting import titled

    said, first = answer(group, findings), group[0]
    guessing = results.guessing(first.setting)
    return {
        "name": first.setting.place,
        "conclusion": said.conclusion,
        "sentences": [{"term": item.term, "text": item.text} for item in said.items],
        "members": WHOSE[first.setting.explained is not None, first.by_person],
        "base_rate": guessing.accuracy if guessing else None,
        "rows": [
            {
                "setting": titled(finding.setting),
                "epsilon": finding.setting.epsilon,
                "attacks": {
                    channel: {"attack": leak.attack, "signal": leak.signal, "beats_guessing": leak.beats_guessing}
                    | {"auc": _numbers(leak.auc_estimate)}
                    for channel, leak in finding.strongest.items()
                },
                "test_accuracy": _numbers(finding.test_accuracy) if finding.test_accuracy else None,
                "train_accuracy": _numbers(finding.train_accuracy) if finding.train_accuracy else None,
            }
            for finding in group
        ],
    }


def _numbers(value: Estimate) -> dict[str, float | None]:
    """Return a mean and the ends of its interval, null where unknown."""
    ends = {name: getattr(value, name) for name in ("mean", "low", "high")}
    return {name: None if math.isnan(end) else float(end) for name, end in ends.items()}


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
            lines += _lines(group, content["confidence"], width, named=len(content["groups"]) > 1)
        if len(content.get("seeds", ())) < 2 and any(group.get("rows") for group in content["groups"]):
            lines += [textwrap.fill(ONE_SEED, width), ""]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: damaged, or not the answer of an audit ({first_line(error)})") from None
    others = [name for name in ("tables", "figures") if (results / name).is_dir()]
    beside = f" (beside it: {' and '.join(f'{name}/' for name in others)})" if others else ""
    return visible_lines("\n".join([*lines, f"Report: {results / 'report.html'}{beside}"]))


def _lines(group: Mapping[str, Any], confidence: float, width: int, named: bool) -> Iterator[str]:
    from mia_audit.report.text.answer import base_rate_sentence

    if named and group["name"]:
        yield group["name"]
    yield textwrap.fill(group["conclusion"].replace(" = ", "\u00a0=\u00a0"), width)
    yield ""
    rows = list(_table(group.get("rows", [])))
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        yield "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip()
        if number == 0:
            yield "  ".join("-" * size for size in widths)
    yield ""
    for note, mark in MARKS.items():
        if any(cell.endswith(f" {mark}") for row in rows for cell in row):
            yield f"{mark} {note}"
    whose = " and on ".join(what for title, what in ACCURACIES.items() if title in rows[0])
    sentences = (
        f"How well the strongest attack distinguishes {group['members']} from others (AUC, {confidence * 100:g}\u00a0% interval)"
        f"{f', and the accuracy on {whose}' if whose else ''}.",
        base_rate_sentence(group.get("base_rate")) if whose else "",
        "Guessing has an AUC of 0.5.",
    )
    yield textwrap.fill(" ".join(filter(None, sentences)), width)
    yield ""


ACCURACIES = {"Train accuracy": "training records", "Test accuracy": "others"}
MARKS = {SILENT: "*", WORSE: "†"}


def _table(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yield the head of the table of settings, and a line per setting."""
    from mia_audit.report.text.answer import TITLES

    if not rows:
        return
    channels = [channel for channel in TITLES if any(channel in row["attacks"] for row in rows)]
    known = {title: title.lower().replace(" ", "_") for title in ACCURACIES}
    known = {title: name for title, name in known.items() if any(row[name] for row in rows)}
    yield ["Setting", *(TITLES[channel] for channel in channels), *known]
    for row in rows:
        attacks = [_attack(row["attacks"].get(channel)) for channel in channels]
        yield [row["setting"], *attacks, *(_accuracy(row[name]) for name in known.values())]


def _attack(attack: Mapping[str, Any] | None) -> str:
    from mia_audit.report.text.formatting import fixed, interval

    if attack is None:
        return "not attacked"
    value = _estimate(attack["auc"])
    mark = MARKS.get(silence(value))
    return _with(fixed(value.mean), interval(value)) + (f" {mark}" if mark else "")


def _accuracy(numbers: Mapping[str, Any] | None) -> str:
    from mia_audit.report.text.formatting import percent, percent_interval

    value = _estimate(numbers) if numbers else None
    return _with(percent(value.mean), percent_interval(value)) if value else "unknown"


def _with(value: str, within: str) -> str:
    return f"{value} ({within})" if within else value


def _estimate(numbers: Mapping[str, Any]) -> Estimate:
    mean, low, high = (math.nan if numbers[name] is None else float(numbers[name]) for name in ("mean", "low", "high"))
    return Estimate(mean, math.nan, low, high, 0)
