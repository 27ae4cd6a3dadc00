"""Hostile text reaches no interpreter: not the terminal's, TeX's, a spreadsheet's or a browser's."""

import html as escaping
import io
import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mia_audit import cli, sanitise
from mia_audit.errors import UserError
from mia_audit.report.tables.catalogue import Cell, Column, Layout, latex


def test_what_takes_long_is_announced_on_a_terminal_alone(capsys, monkeypatch):
    sanitise.announce("reading a.csv")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    sanitise.announce("reading a.csv")
    assert capsys.readouterr().err == "reading a.csv …\n"


HOSTILE = [
    "a\n\\input{/etc/passwd}\\immediate\\write18{id}",
    "% \r\\write18{id}",
    "^^5cinput{x}",
    '=HYPERLINK("http://example.org?"&A1)',
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "+1-1",
    " =1+1",
    "＝1+1",
    "\t=1+1",
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b31mred",
    "invoice\u202egpj.exe",
    "a\u2028b\x00c",
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}",
    "half a \udce9 surrogate",
    "[red]markup[/red]",
]
TEXTS = st.one_of(
    st.sampled_from(HOSTILE), st.text(), st.text("=+-@\t\r\n\x1b\\{}%$&#^_~<>\"'`,;\u202e"), st.floats().map(repr)
)
UNSEEN = {"Cc", "Cs", "Zl", "Zp"}

FEW = settings(max_examples=60, deadline=None)


def unseen(text, allowed=""):
    return [
        one for one in text if (one not in allowed and unicodedata.category(one) in UNSEEN) or one in "\u202e\u2066"
    ]


@FEW
@given(TEXTS)
def test_what_is_visible_is_one_line_and_moves_nothing(text):
    assert not unseen(sanitise.visible(text))
    assert not unseen(sanitise.visible_lines(text), "\n\t")
    assert sanitise.visible(sanitise.visible(text)) == sanitise.visible(text)
    if text.isprintable():
        assert sanitise.visible(text) == text


@FEW
@given(TEXTS)
def test_tex_has_no_command_and_no_group_of_the_text(text):
    known = {command for replacement in sanitise.TEX.values() for command in re.findall(r"\\([a-zA-Z]+)", replacement)}
    written = sanitise.tex(text)
    assert "\n" not in written and not unseen(written)
    assert set(re.findall(r"\\([a-zA-Z]+)", written)) <= known
    plain = re.sub(r"\\[&%$#_{},]", "", written)
    assert not re.search(r"[&%#_]", plain)
    assert "^" not in re.sub(r"\$\^\{[-0-9]+\}\$", "", plain)
    assert plain.count("{") == plain.count("}")


@FEW
@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_a_printed_table_keeps_its_lines(texts):
    def lines(cells):
        # longer cells have further lines, and a column of equal ones is named once
        layout = Layout(
            [Column("a", number=False)],
            [[Cell(f"{one[:7]}{row}", [one[:7] or "x"])] for row, one in enumerate(cells)],
            f"a{cells[0]}",
            cells,
        )
        return [line[:5] if line.startswith("\\") else line[:2] for line in latex(layout).splitlines()]

    safe = lines(["x"] * len(texts))
    assert len(lines(texts)) == len(safe)
    assert lines(texts)[:3] == safe[:3]


@FEW
@given(TEXTS)
def test_no_cell_of_a_csv_file_is_a_formula(text):
    import csv

    text = text.encode("utf-8", "replace").decode()  # polars has no halves of surrogates
    written = sanitise.csv(pl.DataFrame({text: [text], "n ": [-1.5]}))
    header, row = list(csv.reader(io.StringIO(written)))
    assert row[1] == "-1.5"
    for cell in (header[0], row[0]):
        try:
            float(cell)
        except ValueError:
            assert not cell.lstrip(" ").startswith(tuple("=+-@\t\r\n＝＋－＠"))
        assert not unseen(cell)


def test_numbers_and_names_stay_as_they_are_in_csv():
    frame = pl.DataFrame({"label": ["-1", "+2.5e-3", "dp-sgd", "-inf", "a, b"], "x": [1, None, 3, 4, 5]})
    assert sanitise.csv(frame) == frame.write_csv()


@FEW
@given(TEXTS)
def test_a_template_shows_text_and_no_markup(text):
    import jinja2

    template = jinja2.Environment(autoescape=True, finalize=sanitise.html).from_string('<p title="{{ a }}">{{ a }}</p>')
    page = template.render(a=text)
    assert not unseen(page, "\n\t")
    inside = re.fullmatch(r'<p title="([^"<>]*)">([^<>]*)</p>', page)
    assert inside and escaping.unescape(inside[2]) == sanitise.visible_lines(text)


@FEW
@given(TEXTS)
def test_a_console_writes_its_own_control_characters_alone(text):
    below = io.StringIO()
    shown = sanitise.console(below, force_terminal=True, width=10_000, highlight=False, color_system=None)
    shown.print(text, soft_wrap=True)
    assert not unseen(below.getvalue(), "\n\t")
    assert "\x1b" not in below.getvalue()


@pytest.mark.parametrize("text", HOSTILE)
def test_messages_of_the_command_line_are_one_visible_line(text, monkeypatch, capsys):
    def fail(options):
        print(text)
        raise UserError(text)

    monkeypatch.setattr("mia_audit.commands.after.run_answer", fail)
    assert cli.main(["answer", "nowhere"]) == 2
    out, err = capsys.readouterr()
    assert err == f"mia-audit: {sanitise.visible(text)}\n"
    assert out == sanitise.visible_lines(text) + "\n"
    assert not isinstance(sys.stdout, sanitise._Safe)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
def test_latex_prints_hostile_text(tmp_path):
    layout = Layout([Column("a", number=False)], [[one] for one in HOSTILE if one.isascii()], HOSTILE[0], HOSTILE[:3])
    body = latex(layout)
    source = f"\\documentclass{{article}}\\usepackage{{booktabs}}\\begin{{document}}\n{body}\\end{{document}}\n"
    (tmp_path / "page.tex").write_text(source)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0


def test_one_function_writes_all_csv():
    root = Path(sanitise.__file__).parent
    writers = [
        path for path in root.rglob("*.py") if ".write_csv(" in path.read_text() or "csv.writer" in path.read_text()
    ]
    assert [path.name for path in writers] == ["sanitise.py"]
