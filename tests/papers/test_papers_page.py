"""docs/results/papers.md names every table and figure of the four papers."""

import re
from pathlib import Path

import pytest

from mia_audit.config.load import load_audit
from mia_audit.privacy.gaussian import multiplier_for, published_multiplier

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "results" / "papers.md").read_text(encoding="utf-8")
ROMAN = {"I": 1, "II": 2, "III": 3, "IV": 4, "V": 5}
NUMBERS = re.compile(r"(Table|Figure)s? ((?:\d+|[IV]+)(?:, (?:\d+|[IV]+))*)")


@pytest.mark.parametrize(
    ("heading", "tables", "figures"),
    [
        ("Huang et al. 2024", 9, 13),
        ("Harder et al. 2020", 0, 10),
        ("FADP", 5, 4),
        ("Patel, Shokri and Zick 2020", 3, 9),
    ],
)
def test_every_table_and_figure_has_a_row(heading: str, tables: int, figures: int) -> None:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    found = {
        (kind, ROMAN.get(number) or int(number))
        for row in rows
        for kind, listed in NUMBERS.findall(row)
        for number in listed.split(", ")
    }
    assert found == {("Table", n + 1) for n in range(tables)} | {("Figure", n + 1) for n in range(figures)}


def test_the_published_noise_is_as_much_too_large_as_the_page_says() -> None:
    audits = [load_audit(path) for path in (ROOT / "config" / "patel2020").glob("*.yaml")]
    ratios = [
        published_multiplier(epsilon, study.steps, study.delta) / multiplier_for(epsilon, study.steps, study.delta)
        for audit in audits
        for study in audit.private_explanations.values()
        for epsilon in (study.epsilon, *study.epsilons)
    ]
    assert f"with {min(ratios):.0f} to {max(ratios):.0f} times the noise that is needed" in PAGE
