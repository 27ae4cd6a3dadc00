"""Where numbers and records come from, named without any folder of anybody."""

import hashlib
import json
import platform
import re
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pyarrow as pa
import pytest

from mia_audit.config.load import check_audit
from mia_audit.config.specs import ReportSpec
from mia_audit.report.explained import in_original_units
from mia_audit.report.opened import find
from mia_audit.report.page import render
from mia_audit.report.provenance import base_names, by_base_name, paths_in, provenance, trained, write_page
from mia_audit.storage import write_table


def test_where_the_numbers_come_from(small, findings):
    told = provenance(small.results(), findings.settings)
    assert told["seed"] == 3 and told["config"]["membership"]["models"] == 12 and told["config_sha256"] == "c0ffee" * 10
    assert told["versions"]["python"] == platform.python_version() and told["versions"]["torch"] == version("torch")
    path = "toy/net/dp-sgd-eps8/metrics.parquet"
    assert told["inputs_sha256"][path] == hashlib.sha256((small.root / path).read_bytes()).hexdigest()
    weak = told["settings"][1]
    assert (weak["epsilon"], weak["delta"], weak["accountant"], weak["sampling"]) == ("8", 1e-5, "prv", "poisson")
    assert weak["epsilon_spent"] == 7.99 and weak["noise_multiplier"] == 1.5
    assert told["pools"]["toy"]["duplicates"] == 4
    assert told["notice"].startswith("for audit only: whoever knows the seed")


def test_records_that_were_read_are_inputs_of_the_audit(small, tmp_path):
    """A release compares them with what the audit measured; tables of other tools' pools have no digests of their arrays."""
    results, pool = replace(small.results(), root=tmp_path), tmp_path / "pools" / "toy"
    pool.mkdir(parents=True)
    read = {pool / f"{part}.{kind}" for part in ("records", "public") for kind in ("npy", "parquet")}
    for path in read:
        path.touch()
    assert read <= set(results.inputs())


def test_every_trained_setting_has_the_digest_of_its_training(small):
    results, mechanisms = small.results(), {"none": {}, "dp-sgd": {"epsilon": [8, 1]}}
    sections = {"datasets": {"toy": {"path": "/a/x"}}, "architectures": {"net": {}}, "mechanisms": mechanisms}
    object.__setattr__(results.spec, "config", dict(results.spec.config) | sections)
    digests = [one["training_sha256"] for one in provenance(results, find(results).settings)["settings"]]
    names = [(one.mechanism, one.epsilon) for one in results.spec.settings]
    setting = {"dataset": "toy", "architecture": "net"}
    elsewhere = sections | {"datasets": {"toy": {"path": "/b/x"}}}
    assert digests == [
        trained(elsewhere, setting | {"mechanism": mechanism, "epsilon": epsilon})["training_sha256"]
        for mechanism, epsilon in names
    ]
    assert len(set(digests)) == len(names)


def test_it_is_json_and_says_the_same_every_time(small, imported):
    for audit in (small, imported):
        texts = {
            json.dumps(provenance(audit.results(), find(audit.results()).settings), sort_keys=True, allow_nan=False)
            for _ in range(2)
        }
        assert len(texts) == 1


CONFIG = {
    "audit": "a",
    "datasets": {"d": {"source": "/home/anna/mine.py:pool", "path": "/home/anna/Müller GmbH/x/", "label": "km/h"}},
    "architectures": {
        "c": {"train": "python /home/anna/t.py --out={out} ~/w.npy C:\\Users\\anna\\z.csv", "votes": 3},
        "s": {"model": "/home/of anna/mine.py:net"},
    },
    "mechanisms": {"m": {"mechanism": "/home/of anna/mine.py:Noise"}},
    "imported": {"i": {"signals": "../anna/signals.parquet", "epsilon": "inf"}},
    "signals": ["loss=/home/anna/l.npz:key"],
    "report": {"title": "A/B test"},
}


def test_paths_become_names():
    told = base_names(CONFIG)
    assert "anna" not in json.dumps(told)
    assert told["datasets"]["d"] == {"source": "mine.py:pool", "path": "x", "label": "km/h"}
    assert told["architectures"]["c"] == {"train": "python t.py --out={out} w.npy z.csv", "votes": 3}
    assert (told["architectures"]["s"], told["mechanisms"]["m"]) == (
        {"model": "mine.py:net"},
        {"mechanism": "mine.py:Noise"},
    )
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


RECORDS = 300


@pytest.mark.parametrize(
    ("columns", "section", "named"),
    [
        ({"source": range(7, RECORDS + 7)}, {"source": "table", "path": "data/people.csv"}, "row 11 of people.csv"),
        ({"file": [f"cat/{k}.png" for k in range(RECORDS)]}, {"source": "images", "path": "photos"}, "cat/3.png"),
        ({"source": range(RECORDS)}, {"source": "digits"}, ""),
    ],
)
def test_a_record_is_named_by_what_its_owner_has(written, columns, section, named):
    small = written({("none", "inf"): 1.0}, pool=True)
    path = small.root / "pools" / "toy" / "records.parquet"
    table = {"record": pa.array(range(RECORDS), pa.int32()), "label": pa.array([0, 1] * (RECORDS // 2), pa.int32())}
    table |= {name: pa.array(list(values)) for name, values in columns.items()}
    write_table(path, pa.table(table), "records", RECORDS, {"kind": "table", "shape": [2], "classes": ["a", "b"]})
    results = small.results(config={"audit": "toy", "datasets": {"toy": section}})
    assert results.origins("toy")(3) == named
    assert results.origins("elsewhere")(3) == ""


def test_values_are_shown_in_the_units_of_the_table():
    shown = in_original_units(np.array([-1.0, 2.0]), {"centre": [40.0, 0.0], "scale": [15.0, 1.0]})
    assert shown.tolist() == [25.0, 2.0]
    assert in_original_units(np.array([3.0]), {}).tolist() == [3.0]


def test_one_key_makes_a_page_without_records():
    values = {"audit": "a", "datasets": {"digits": {}}, "architectures": {"cnn": {}}, "mechanisms": {"none": {}}}
    shown, hidden = (
        ReportSpec.from_audit(check_audit(values | {"report": report}, "a.yaml"))
        for report in ({}, {"show_records": False})
    )
    assert (shown.exposed, shown.explanation_maps) == (8, True)
    assert (hidden.exposed, hidden.explanation_maps) == (0, False)
