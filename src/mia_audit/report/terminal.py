"""The report's answer for a terminal, read from the HTML page itself, so that both always agree."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from mia_audit.errors import UserError, first_line
from mia_audit.sanitise import visible_lines

WIDTH = 100
CELLS = ("h3", "p", "caption", "th", "td")
"""The HTML elements of the answer whose text is collected."""
INTERVAL, NOTE = "\x1e", "\x1f"
"""Separators in the text of a cell, before its interval and before its note."""


@dataclass
class Part:
    """The answer for one data set and architecture, or for one study of private explanations."""

    name: str = ""
    conclusion: str = ""
    caption: str = ""
    note: str = ""
    rows: list[list[str]] = field(default_factory=list)


def answer_text(results: Path, width: int = WIDTH) -> str:
    """Return a report's cautions, its opening sentences, its table of settings, and the path of the page.

    Raises UserError if `results` has no report.
    """
    page = results / "report.html"
    if not page.is_file():
        raise UserError(f"{page}: no such file; expected the results of a finished audit, results/NAME")
    answer = _Answer()
    try:
        answer.feed(page.read_text(encoding="utf-8"))
        lines = [answer.title, ""]
        for caution in answer.cautions:
            lines += [textwrap.fill(f"Caution: {caution}", width), ""]
        for part in answer.parts:
            lines += _lines(part, width, named=len(answer.parts) > 1)
    except (OSError, ValueError, LookupError, AssertionError) as error:  # the parser asserts too
        raise UserError(f"{page}: damaged, or not the report of an audit ({first_line(error)})") from None
    others = [name for name in ("tables", "figures") if (results / name).is_dir()]
    beside = f" (beside it: {' and '.join(f'{name}/' for name in others)})" if others else ""
    return visible_lines("\n".join([*lines, f"Report: {page}{beside}"]))


def _lines(part: Part, width: int, named: bool) -> Iterator[str]:
    if named and part.name:
        yield part.name
    yield textwrap.fill(part.conclusion.replace(" = ", "\u00a0=\u00a0"), width)
    yield ""
    if part.rows:
        widths = [max(map(len, column)) for column in zip(*part.rows, strict=True)]
        for number, row in enumerate(part.rows):
            yield "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip()
            if number == 0:
                yield "  ".join("-" * size for size in widths)
        yield ""
        if part.note:
            yield f"* {part.note}"
        yield textwrap.fill(part.caption, width)
        yield ""


class _Answer(HTMLParser):
    """Collects the title and the section `answer` of a report."""

    def __init__(self) -> None:
        super().__init__()
        self.title = ""
        self.parts: list[Part] = []
        self.cautions: list[str] = []
        self.caution = False
        self.name = ""
        self.inside = False
        self.text: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "section":
            self.inside = attributes.get("id") == "answer"
        elif tag == "br" and self.text is not None:
            self.text.append(NOTE)
        elif self.text and ("class", "quiet") in attrs:
            self.text.append(INTERVAL)
        elif tag == "h1" or (self.inside and tag in CELLS):
            self.text = []
        elif tag == "p" and ("class", "caution") in attrs:
            self.text, self.caution = [], True
        if self.inside and tag == "p":
            self.parts.append(Part(self.name))
        elif self.inside and tag == "tr":
            self.parts[-1].rows.append([])

    def handle_data(self, data: str) -> None:
        if self.text is not None:
            self.text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "section":
            self.inside = False
        if self.text is None or tag not in ("h1", *CELLS):
            return
        text, self.text = re.sub(r"[ \n]+", " ", "".join(self.text)).strip(" "), None
        if tag == "h1":
            self.title = text
        elif self.caution:
            self.cautions.append(text)
            self.caution = False
        elif tag == "h3":
            self.name = text
        elif tag == "p":
            self.parts[-1].conclusion = text
        elif tag == "caption":
            self.parts[-1].caption = f"{text.split('. ')[0].rstrip('.')}. Guessing has an AUC of 0.5."
        else:
            self._cell(text)

    def _cell(self, text: str) -> None:
        part = self.parts[-1]
        text, _, note = text.partition(NOTE)
        value, _, interval = (words.strip(" ") for words in text.partition(INTERVAL))
        part.note = note or part.note
        cell = f"{value} ({interval})" if value and interval else value or interval
        part.rows[-1].append(f"{cell} *" if note else cell)
