"""What is handed on names no folder of anybody, and says so that it is personal."""

import json
import re

import pytest

from mia_audit.report.data.provenance import base_names, by_base_name, paths_in, provenance, write_page
from mia_audit.report.data.results import find
from mia_audit.report.page.render import render

CONFIG = {
    "audit": "a",
    "datasets": {"d": {"source": "/home/anna/mine.py:pool", "path": "/home/anna/Müller GmbH/x/", "label": "km/h"}},
    "architectures": {"c": {"train": "python /home/anna/t.py --out={out} ~/w.npy C:\\Users\\anna\\z.csv", "votes": 3}},
    "imported": {"i": {"signals": "../anna/signals.parquet", "epsilon": "inf"}},
    "signals": ["loss=/home/anna/l.npz:key"],
    "report": {"title": "A/B test"},
}


def test_paths_become_names():
    told = base_names(CONFIG)
    assert "anna" not in json.dumps(told)
    assert told["datasets"]["d"] == {"source": "mine.py:pool", "path": "x", "label": "km/h"}
    assert told["architectures"]["c"] == {"train": "python t.py --out={out} w.npy z.csv", "votes": 3}
    assert told["imported"]["i"] == {"signals": "signals.parquet", "epsilon": "inf"}
    assert told["signals"] == ["loss=l.npz:key"]
    assert told["report"]["title"] == "A/B test"


def test_digests_of_files_of_one_name_are_all_there():
    assert by_base_name({"/b/x.py": "1", "/a/x.py": "2", "y.py": "3"}) == {"x.py": "2", "x.py (2)": "1", "y.py": "3"}


@pytest.fixture(scope="module")
def told(small):
    results = small.results()
    object.__setattr__(results.spec, "config", dict(results.spec.config) | CONFIG)
    findings = find(results)
    sources = provenance(results, findings.settings)
    return render(results, findings, sources), sources


def test_report_and_provenance_name_no_folder_and_a_local_log_does(told, tmp_path):
    page, sources = told
    write_page(tmp_path / "report.html", page, {}, sources, CONFIG)
    for name in ("report.html", "provenance.json"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "anna" not in text and "/home" not in text
    kept = json.loads((tmp_path / "logs" / "paths.json").read_text())
    assert kept["imported.i.signals"] == "../anna/signals.parquet"
    assert dict(paths_in(CONFIG)) == kept


def test_the_page_says_that_it_holds_personal_data(told):
    assert re.search(r"<header>.*holds personal data.*</header>", told[0], re.S)
