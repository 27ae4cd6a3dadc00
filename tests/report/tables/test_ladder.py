"""The ladder: its table, and its part of the page."""

from dataclasses import replace

import pytest

from mia_audit.evaluation.rungs import FILE, write_rungs
from mia_audit.report.data.find import find
from mia_audit.report.data.provenance import provenance
from mia_audit.report.data.results import Results
from mia_audit.report.page.render import render
from mia_audit.report.tables.models import ladder_layout

SETTING, RECIPE = "toy/net/none-epsinf", "0123456789abcdef"


def rung(models, **changes):
    return {
        "setting": SETTING, "models": models, "attack": "loss-lira", "signal": "confidence", "likelihood": "blend",
        "metric": "auc", "scored": 1.0, "mean": 0.61, "low": 0.59, "high": 0.63, "requested": 0.01,
        "decision": "wider than requested", "more": 8, "seconds": 1234.5, "recipe": RECIPE,
    } | changes  # fmt: skip


SCREEN = {
    "attack": "rmia-offline", "signal": "loss", "likelihood": "none", "metric": "tpr_at_0.01", "scored": 0.75,
    "requested": None, "decision": "finds nothing", "more": 2, "seconds": None,
}  # fmt: skip


@pytest.fixture
def climbed(small):
    """The results of the small audit with three rungs, one of them of another recipe."""
    rows = [rung(17, decision="as narrow as requested", more=None), rung(9), rung(3, **SCREEN), rung(5, recipe="other")]
    write_rungs(small.root / FILE, rows)
    known = small.results()
    yield Results(known.root, replace(known.spec, ladder={SETTING: RECIPE}))
    (small.root / FILE).unlink()


def test_rungs_are_in_order_and_those_of_another_recipe_are_left_out(climbed):
    layout = ladder_layout(climbed)
    assert [row[0] for row in layout.rows] == ["3", "9", "17"]
    screen, look, last = ([[str(cell), *getattr(cell, "notes", ())] for cell in row] for row in layout.rows)
    assert ["rmia-offline", "on loss", "of 75% of the records"] in screen and ["TPR at 1\u00a0%"] in screen
    assert ["0.610", "0.590 to 0.630"] in look and ["± 0.01"] in look and ["8 more models, 1,234 s"] in look
    assert ["as narrow as requested"] in last and last[-1] == ["–"]


def test_the_page_shows_them_and_says_what_they_are(climbed):
    findings = find(climbed)
    sources = provenance(climbed, findings.settings)
    page = render(climbed, findings, sources)
    assert 'href="#ladder"' in page and "no evidence of safety" in page and "8 more models, 1,234 s" in page
    assert FILE in sources["inputs_sha256"]


def test_without_a_ladder_there_is_no_such_part(small, climbed):
    assert ladder_layout(small.results()) is None, "the specification names none"
    assert ladder_layout(Results(climbed.root, replace(climbed.spec, ladder={SETTING: "new"}))) is None
