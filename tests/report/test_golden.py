"""All words of a page, in one file beside the tests: other tests say only what depends on the case."""

import re
from difflib import unified_diff
from html import unescape
from pathlib import Path

import pytest

from mia_audit.report.opened import find
from mia_audit.report.page import render
from mia_audit.report.provenance import provenance

GOLDEN = Path(__file__).parent / "golden.txt"


@pytest.fixture(scope="module")
def html(interpreted):
    results = interpreted.results()
    findings = find(results)
    sources = provenance(results, findings.settings) | {"versions": {"python": "3.0", "mia-audit": "1.0"}}
    return render(results, findings, sources)


def visible(html):
    """Return what a reader sees: a line each sentence and row of a table, without charts; every decimal number as 0.0."""
    body = re.sub(r"<(style|svg|head)\b.*?</\1>", "", " ".join(html.split()))
    body = re.sub(r"</t[dh]>", " | ", re.sub(r"<(br|span|a)\b", r" \g<0>", body))
    text = unescape(re.sub(r"<[^>]*>", "", re.sub(r"</(?!t[dh]|span|a|code|sup)\w+>", "\n", body)))
    text = re.sub(r"[−+]?\d+\.\d+|\b[0-9a-f]{60,}\b", "0.0", re.sub(r"(?<=\.) (?=[A-Z])", "\n", text))
    lines = (" ".join(line.split()).removesuffix(" |") for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def test_the_words_of_a_page(html):
    said = visible(html)
    if not GOLDEN.exists():
        GOLDEN.write_text(said, encoding="utf-8")
        pytest.fail(f"{GOLDEN} was missing and has been written: read it and commit it")
    golden = GOLDEN.read_text(encoding="utf-8")
    diff = unified_diff(golden.splitlines(), said.splitlines(), GOLDEN.name, "report.html", lineterm="", n=1)
    assert said == golden, "\n".join(["", *diff, f"If the page is right: delete {GOLDEN} and run this test again."])


def test_the_section_of_explanations_has_its_chart_and_its_sources(html):
    assert '<section id="explanations"' in html and '<a href="#explanations">Explanations</a>' in html
    assert '<figure class="chart explanation_metrics">' in html
    assert "toy/net/explanation_metrics.parquet" in html and "toy/net/curves.parquet" in html
    assert html.count('<table class="overlays">') == 2
