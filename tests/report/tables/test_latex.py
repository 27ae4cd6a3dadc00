"""Printed tables fit the text of a paper: compiled by pdflatex, in classes with one and with two columns."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mia_audit.report.formatting import with_last_digits
from mia_audit.report.tables.catalogue import LINES, Cell, Column, Layout, latex, text, write

DOCUMENTS = {
    "one": (r"\documentclass{article}", "%s"),
    "two": (r"\documentclass[twocolumn]{article}", "\\begin{table*}\n%s\n\\caption{A table.}\\end{table*}\\clearpage"),
}
pdflatex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex (Debian: texlive-latex-base)")


def overfull(files: list[Path], kind: str, folder: Path) -> list[str]:
    """Compile tables as a document of a kind, and return the boxes that are too wide."""
    head, body = DOCUMENTS[kind]
    inputs = "\n\n".join(body % rf"\input{{{path}}}" for path in files)
    (folder / "all.tex").write_text(f"{head}\\usepackage{{booktabs}}\\begin{{document}}\n{inputs}\n\\end{{document}}\n")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "all.tex"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    assert run.returncode == 0, run.stdout[-2000:]
    log = (folder / "all.log").read_text(errors="replace")
    return re.findall(r"Overfull \\hbox.*", log)


def table(words: str, rows: int = 3) -> Layout:
    """A layout with seven columns of text and eight of numbers, with intervals below them."""
    columns = [
        *text("Data set", "Architecture", "Mechanism", "ε", "Attack", "Signal", "Likelihood"),
        Column("lower bound on ε"),
        *(
            Column(title, group)
            for group in ("Accuracy", "Outputs", "Outputs and explanations")
            for title in ("AUC", "TPR at 1 % FPR")
        ),
        Column("against everybody else"),
    ]
    cells = [
        Cell("−0.678", ("−0.612 to −0.744",)),
        Cell("not resolvable"),
        Cell("10.3 %", ("9.3 to 11.2 %", "loss 0.455")),
    ]
    return Layout(
        columns, [[f"{words}{row}"] * 7 + [cells[row % 3]] * 8 for row in range(rows)], "C", [f"{words} " * 20]
    )


@pytest.mark.slow
@pdflatex
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_every_table_of_an_audit_fits(small, findings, kind, tmp_path):
    write(small.results(), findings, tmp_path)
    assert overfull(sorted(tmp_path.glob("*.tex")), kind, tmp_path) == []


@pytest.mark.slow
@pdflatex
@pytest.mark.parametrize(
    "words", ["MMMMWWWWMMMMWWWW", "outputs_and_explanations+ixg-variance", "a name of % several_words & more", "x"]
)
def test_any_table_fits(words, tmp_path):
    (tmp_path / "wide.tex").write_text(latex(table(words)))
    assert overfull([tmp_path / "wide.tex"], "one", tmp_path) == []


@pytest.mark.slow
@pdflatex
def test_a_box_that_is_too_wide_is_seen(tmp_path):
    (tmp_path / "wide.tex").write_text(r"\begin{tabular}{l}" + "wide " * 50 + r"\end{tabular}")
    assert len(overfull([tmp_path / "wide.tex"], "one", tmp_path)) == 1


def test_columns_that_do_not_fit_follow_below_with_the_names_repeated():
    parts = latex(table("n")).split(r"\begin{tabular}")[1:]
    assert len(parts) > 1 and all("n0" in part for part in parts)
    assert [part.count("lower") for part in parts] == [1] + [0] * (len(parts) - 1)


def test_a_long_table_continues_in_another_tabular():
    layout = Layout([*text("Attack"), Column("AUC")], [[f"a{row}", "0.5"] for row in range(LINES + 1)])
    first, second = latex(layout).split(r"\begin{tabular}")[1:]
    assert "a0 &" in first and "a40 &" in second and "Attack & AUC" in second


def test_what_all_rows_share_is_a_note_and_columns_are_left_out_by_choice():
    layout = Layout(
        [*text("Data set", "Attack"), Column("AUC"), Column("TPR at 1 %")],
        [["digits", "a", "1", "2"], ["digits", "b", "3", "4"]],
    )
    written = latex(layout, ["TPR"])
    assert "In all rows: Data set: digits." in written and "Attack & AUC" in written and "TPR" not in written
    assert "digits" not in latex(layout, ["Data set"])


def test_a_standard_deviation_is_written_in_the_last_digits():
    assert [with_last_digits(*pair) for pair in ((0.678, 0.009), (0.6784, 0.0124), (0.5, None))] == [
        "0.678 (9)",
        "0.678 (12)",
        "0.500",
    ]
