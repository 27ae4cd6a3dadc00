"""The public start of private trainings is a row of its own in the table of settings."""

import json

import pytest

from mia_audit.errors import UserError
from mia_audit.report.opened import find
from mia_audit.report.results import read_start
from mia_audit.report.tables.attacks import settings, settings_layout

SETTINGS = {("none", "inf"): 1.0, ("dp-sgd", "8"): 0.4}
START = {"records": 597, "train_accuracy": 1.0, "test_accuracy": 0.918, "test_loss": 0.25}


@pytest.fixture
def small(written):
    return written(SETTINGS)


def put(small, values):
    (small.root / "toy" / "net" / "public.json").write_text(values if isinstance(values, str) else json.dumps(values))


def test_the_start_is_the_first_row_of_its_group(small):
    put(small, START)
    results = small.results()
    found = find(results)
    table = settings(results, found)
    assert table.select("dataset", "architecture", "mechanism", "epsilon").row(0) == ("toy", "net", "public start", "0")
    assert table["mechanism"].to_list() == ["public start", "none", "dp-sgd"]
    assert table["test_accuracy_mean"][0] == 0.918 and table["train_accuracy_mean"][0] is None
    assert small.root / "toy" / "net" / "public.json" in list(results.inputs())
    for page in (False, True):
        layout = settings_layout(results, found, page=page)
        assert {len(row) for row in layout.rows} == {len(layout.columns)} and len(layout.rows) == 3
        assert any("91.8" in str(cell) for cell in layout.rows[0])
    assert str(layout.rows[0][0]) == "Public start"


@pytest.mark.parametrize("values", [None, {"records": 597, "train_accuracy": 1.0}])
def test_without_a_measured_start_there_is_no_such_row(small, values):
    if values:
        put(small, values)
    results = small.results()
    assert results.starts == {} and settings(results, find(results))["mechanism"].to_list() == ["none", "dp-sgd"]


def test_a_damaged_file_is_named(small):
    put(small, "[1]")
    with pytest.raises(UserError, match=r"public\.json: damaged"):
        read_start(small.root / "toy" / "net" / "public.json")
