"""Make untrusted text safe for its destination: terminals and logs, TeX, CSV and HTML. All written text passes through here.

Names of classes and columns, paths, error messages and titles come from other people's configs, data and results.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Characters that have an effect but no glyph: control characters, line breaks, direction marks, tags, lone surrogates."""
_HIDDEN_IN_LINES = re.compile(HIDDEN.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))

TEX = str.maketrans(
    {
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
        "×": r"$\times$",
        "·": r"$\cdot$",
        "ε": r"$\varepsilon$",
        "δ": r"$\delta$",
        "σ": r"$\sigma$",
        "−": "$-$",
        "±": r"$\pm$",
        "≥": r"$\geq$",
        "∞": r"$\infty$",
        "½": r"$\frac12$",
        "–": "--",
        "\u00a0": "~",
        "\u202f": r"\,",
    }
)
_DIGITS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
FORMULA = tuple("=+-@\t\r\n＝＋－＠|%")
"""First characters of a cell that a spreadsheet may read as a formula (OWASP, CSV injection)."""


def announce(text: str) -> None:
    """Say on stderr, if that is a terminal, what takes the time until a command's next output."""
    if sys.stderr.isatty():
        print(f"{visible(text)} …", file=sys.stderr)


def visible(text: str) -> str:
    """Return text as one line, with hidden characters as Python's escape sequences."""
    return HIDDEN.sub(_written_out, text)


def visible_lines(text: str) -> str:
    """Return text with line breaks and tabs unchanged, and all other hidden characters escaped."""
    return _HIDDEN_IN_LINES.sub(_written_out, text)


def _written_out(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode("ascii")


def tex(text: str) -> str:
    """Return text escaped for LaTeX, as one line."""
    escaped = visible(text).translate(TEX)
    return re.sub("[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda match: f"$^{{{match[0].translate(_DIGITS)}}}$", escaped)


def tex_comment(text: str) -> str:
    """Return text as one line of LaTeX comment."""
    return f"% {visible(text)}"


def csv(frame: pl.DataFrame) -> str:
    """Return a table as CSV in which an apostrophe before each formula makes a spreadsheet read it as text."""
    import polars as pl

    texts = [name for name, kind in frame.schema.items() if kind in (pl.String, pl.Categorical) or kind == pl.Enum]
    safe = frame.with_columns(pl.col(name).cast(pl.String).map_elements(csv_cell, pl.String) for name in texts)
    return safe.rename({name: csv_cell(name) for name in frame.columns}).write_csv()


def csv_cell(text: str) -> str:
    """Return the text of a cell; numbers are unchanged."""
    shown = visible(text)
    return f"'{shown}" if text.lstrip(" ").startswith(FORMULA) and not _is_number(text) else shown


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text and text.isascii() and not HIDDEN.search(text)


def html(value: Any) -> Any:
    """Return text without hidden characters, and other values unchanged; for jinja2's `finalize`."""
    return visible_lines(value) if type(value) is str else value


class _Safe:
    """A text stream that escapes hidden characters other than line breaks and tabs."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write text and return its length."""
        self.stream.write(visible_lines(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write several lines."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def safe_streams() -> Iterator[None]:
    """Escape all output in this context, so that it cannot move the cursor, colour text or reorder text."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Safe(before[0]), _Safe(before[1])  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def console(stream: TextIO, **options: Any) -> Console:
    """Return a rich console for a stream that passes its own control codes but escapes those in its text."""
    from rich.console import Console
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(self, renderable: Any, options: Any = None) -> Any:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else visible_lines(text), style, control)

    below = stream.stream if isinstance(stream, _Safe) else stream
    return SafeConsole(file=below, markup=False, emoji=False, **options)
