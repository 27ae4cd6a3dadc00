"""A release of columns' constants from the audited records is told beside every ε, and added to that of training."""

from typing import Any

import pyarrow.parquet as pq
import pytest

from mia_audit.report.data.find import find
from mia_audit.report.data.provenance import guarantee, provenance
from mia_audit.report.page.render import render
from mia_audit.report.tables.catalogue import tables_of, write
from mia_audit.report.text.scaling_release import release_notes
from mia_audit.storage import table_metadata, write_table


def build(results: Any, findings: Any) -> Any:
    return {name: kind(results, findings) for name, kind in tables_of(results.spec).items()}


RELEASE = {
    "mechanism": "Gaussian",
    "epsilon": 1.5,
    "delta": 1e-6,
    "records": 300,
    "noise_multiplier": 3.25,
    "sensitivity": 2**0.5,
    "bounds": {"age": [0.0, 120.0], "hours": [0.0, 99.5]},
    "floored": ["hours"],
}


@pytest.fixture
def released(written: Any) -> Any:
    """An audit of no protection and dp-sgd whose pool's constants were released."""
    small = written({("none", "inf"): 1.0, ("dp-sgd", "8"): 0.4}, pool=True)
    path = small.root / "pools" / "toy" / "records.parquet"
    table = pq.read_table(path).replace_schema_metadata(None)
    write_table(path, table, "records", len(table), table_metadata(path, "records") | {"release": RELEASE})
    return small.results()


def test_what_constants_and_training_spend_adds_up(released: Any) -> None:
    found = find(released)
    alone, together = release_notes(found.settings, released.releases)
    for words in (
        "ε = 1.50 spent at δ = 10⁻⁶",
        "one of 300 records is added or removed",
        "noise multiplier 3.25",
        "2 columns",
    ):
        assert words in alone
    assert "no attack here tests this release" in alone
    assert "whose noise nobody can recompute; here, whoever knows the seed can" in alone
    spent = guarantee(found.settings[1])["epsilon_spent"]
    assert f"net with dp-sgd at ε = 8 at most {spent + 1.5:.2f} at δ = 1.1 · 10⁻⁵" in together
    assert "without protection" not in together


def test_page_and_provenance_say_it(released: Any) -> None:
    found = find(released)
    sources = provenance(released, found.settings)
    assert sources["pools"]["toy"]["release"] == RELEASE
    page = render(released, found, sources)
    assert "Bounds: age 0 to 120, hours 0 to 99.5. Spread smaller than the noise and set to its floor: hours." in page
    assert page.count("Centres and scales of the columns of toy were released once") == 2  # settings and provenance
    assert "an audit by shadow models cannot see what that release reveals" in page


def test_the_table_of_settings_has_it(released: Any, tmp_path: Any) -> None:
    tables = build(released, find(released))
    assert tables["settings"]["constants_epsilon"].to_list() == [1.5, 1.5]
    assert tables["settings"]["constants_delta"].to_list() == [1e-6, 1e-6]
    write(released, find(released), tmp_path)
    assert r"at most $\varepsilon$ = 1.50 spent at $\delta$ = 10$^{-6}$" in (tmp_path / "settings.tex").read_text()


def test_where_nothing_was_released_nothing_is_said(small: Any, findings: Any) -> None:
    assert small.results().releases == {}
    assert "constants_epsilon" not in build(small.results(), findings)["settings"].columns
    page = render(small.results(), findings, provenance(small.results(), findings.settings))
    assert "were released" not in page
