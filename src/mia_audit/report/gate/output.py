"""The output of a gate: one line per criterion, JSON, JUnit's XML for continuous integration, and a table of the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from mia_audit.report.gate.verdicts import Judged, Verdict, overall
from mia_audit.report.tables.layout import Cell, Column, Layout, text
from mia_audit.report.text.formatting import capital, count
from mia_audit.sanitise import visible

CONCLUSIONS = {
    Verdict.PASS: "The policy is met: {passed}.",
    Verdict.FAIL: "The policy is not met: {failed} ({passed}, {undecided}).",
    Verdict.CANNOT_TELL: "The audit cannot tell whether the policy is met: {undecided} ({passed}).",
}
SCOPE = "A verdict is about these attacks, limits and models; a stronger attack may find more."


def conclusion(judged: Sequence[Judged]) -> str:
    """Return the sentence with the joint outcome of all criteria."""
    numbers = Counter(one.verdict for one in judged)
    words = {"passed": Verdict.PASS, "failed": Verdict.FAIL, "undecided": Verdict.CANNOT_TELL}
    counted = {word: f"{count(numbers[verdict], 'criterion', 'criteria')} {word}" for word, verdict in words.items()}
    return CONCLUSIONS[overall(judged)].format(**counted)


def lines(judged: Sequence[Judged]) -> Iterator[str]:
    """Yield a line per criterion with verdict, value, limit and remark, and the conclusion."""
    rows = [(one.verdict.value, one.name, one.value, one.limit) for one in judged]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, one in zip(rows, judged, strict=True):
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield visible(f"{cells}  {f'({one.note})' if one.note else ''}".rstrip())
    yield conclusion(judged)
    yield SCOPE


def as_json(judged: Sequence[Judged], **known: Any) -> dict[str, Any]:
    """Return the verdicts as JSON, together with the entries `known`."""
    names = ("criterion", "setting", "verdict", "value", "limit", "note")
    return {
        **known,
        "verdict": overall(judged).value,
        "conclusion": conclusion(judged),
        "criteria": [{name: str(getattr(one, name)) for name in names} for one in judged],
    }


def as_junit(judged: Sequence[Judged], suite: str) -> str:
    """Return the verdicts as JUnit's XML: one test per criterion; an undecided one is an error, not a failure."""
    numbers = Counter(one.verdict for one in judged)
    counts = {"tests": len(judged), "failures": numbers[Verdict.FAIL], "errors": numbers[Verdict.CANNOT_TELL]}
    attributes = {"name": visible(suite)} | {name: str(number) for name, number in counts.items()}
    root = ElementTree.Element("testsuite", attributes)
    elements = {Verdict.FAIL: "failure", Verdict.CANNOT_TELL: "error"}
    for one in judged:
        where = {"classname": visible(one.setting or suite), "name": visible(one.criterion)}
        case = ElementTree.SubElement(root, "testcase", where)
        said = visible(", ".join(filter(None, (one.value, one.limit, one.note))))
        if name := elements.get(one.verdict):
            ElementTree.SubElement(case, name, message=said)
        else:
            ElementTree.SubElement(case, "system-out").text = said
    ElementTree.indent(root)
    return f"{ElementTree.tostring(root, encoding='unicode', xml_declaration=True)}\n"


def layout(judged: Sequence[Judged]) -> Layout:
    """Return a table with a row per criterion."""
    columns = [*text("Criterion", "Setting"), Column("Value", number=False), *text("Limit", "Verdict")]
    rows = [
        [capital(one.criterion), one.setting or "all", Cell(one.value, (one.note,)), one.limit, one.verdict.value]
        for one in judged
    ]
    caption = "Values with their confidence intervals, over models where there are several."
    return Layout(columns, rows, caption, [SCOPE])
