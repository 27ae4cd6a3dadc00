"""What a reader is told before the answer."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mia_audit.attacks.io.parquet import DERIVED, UNREAD
from mia_audit.report.advice import cautions, floors, readings
from mia_audit.report.answer import answer
from mia_audit.report.opened import find
from mia_audit.storage import write_table

SETTINGS = {("none", "inf"): 1.0, ("dp-sgd", "8"): 0.4}


@pytest.fixture
def small(written):
    return written(SETTINGS, pool=True)


def change(small, mechanism, file, metadata=None, **columns):
    """Write a table of a setting again, with other values in some columns."""
    path = small.root / "toy" / "net" / f"{mechanism}-eps{dict(SETTINGS.keys())[mechanism]}" / f"{file}.parquet"
    table = pq.read_table(path)
    for name, value in columns.items():
        index = table.schema.get_field_index(name)
        kind = table.schema.field(name).type
        table = table.set_column(index, name, pa.array([value] * len(table), kind))
    write_table(path, table.replace_schema_metadata(None), file, len(table), metadata or {})


def said(small):
    results = small.results()
    return cautions(results, find(results))


def test_nothing_is_said_of_an_audit_that_went_well(small):
    assert said(small) == [] and readings(small.results()) == [] and floors(small.results()) == []


def test_models_worse_than_guessing_are_named_with_what_helps_under_noise(small):
    change(small, "dp-sgd", "training", test_loss=1.93, test_accuracy=0.3)
    (line,) = said(small)
    assert line.startswith("Worse than guessing with dp-sgd at ε =") and "accuracy is 30.0" in line
    assert "class alone has 33.3" in line and "loss is 1.930" in line and "shares has 1.099" in line
    assert "20 steps of about 15.0 of 150" in line and "2.00 epochs" in line and "multiplier of 1.50" in line
    assert "take the largest batch" in line and "Ponomareva" in line


def test_training_that_spoils_its_public_start_is_named(small):
    start = {"test_accuracy": 0.9, "test_loss": 0.3, "records": 40}
    (small.root / "toy" / "net" / "public.json").write_text(json.dumps(start))
    change(small, "none", "training", test_accuracy=0.95)
    change(small, "dp-sgd", "training", test_accuracy=0.8)
    (line,) = said(small)
    assert line.startswith("Worse than the public start with dp-sgd at ε =") and "80.0" in line and "90.0" in line


def test_models_that_learned_nothing_come_first_and_no_sentence_is_built_on_their_silence(written):
    small = written({("none", "inf"): 0.0}, pool=True)
    change(small, "none", "training", train_accuracy=0.34, train_loss=1.10)
    first, *_ = said(small)
    assert "models without protection (toy, net)" in first and "learned nothing" in first
    assert "training records is 34.0" in first and "the most frequent class has 33.3" in first
    findings = find(small.results())
    assert answer(findings.settings, findings)["conclusion"].endswith("nothing about models that learn.")
    change(small, "none", "training", train_accuracy=0.34, train_loss=0.9)  # not more often right, but more certain
    findings = find(small.results())
    assert "no leak could be measured" in answer(findings.settings, findings)["conclusion"]


def test_membership_the_wrong_way_round_is_asked(written):
    assert [
        line for line in said(written({("none", "inf"): -2.0}, pool=True)) if line.startswith("Is membership the wrong")
    ]


def test_without_noise_no_rule_of_thumb_is_offered(small):
    change(small, "none", "training", test_loss=1.2)
    (line,) = said(small)
    assert line.startswith("Overconfident without protection")
    assert "(toy, net): the test loss" in line and "batch" not in line


def test_a_delta_that_permits_a_leak_is_named(small):
    small.spec["settings"][1]["delta"] = 0.1
    (line,) = said(small)
    assert line.startswith("δ = 10⁻¹ with dp-sgd at ε = 8 (toy,") and "one record in 10.0" in line
    assert line.endswith("well below 1/150.")


def test_the_floor_of_the_first_models_is_told_with_its_settings(small):
    small.spec["settings"][1]["floor"] = 0.25
    (line,) = floors(small.results())
    assert line.startswith("The audit required a test acc") and "25.0" in line
    assert line.endswith("otherwise: toy/net/dp-sgd-eps8.")


def test_attacks_without_signals_and_derived_signals_are_named(small):
    change(small, "none", "metrics", {UNREAD: ["l1-lrt", "rmia"], DERIVED: {"confidence": "loss"}})
    (line,) = said(small)
    assert line.startswith("l1-lrt and rmia were asked") and line.endswith(" in toy/net/none-epsinf.")
    (reading,) = readings(small.results())
    assert reading.startswith("The confidence is derived from") and "a loss of 0 counting" in reading
    change(small, "dp-sgd", "metrics", {UNREAD: ["l1-lrt", "rmia"]})
    (line,) = said(small)
    assert line.endswith("no signal to read."), "in every setting"


def test_maps_that_are_mixed_evenly_are_named(small):
    folder = small.root / "figures" / "filters" / "toy"
    folder.mkdir(parents=True)
    rows = ("llm,no DP,30,0.037,0.0333,true", "llm,ε = 2,30,0.107,0.0333,false")
    (folder / "shares.csv").write_text(
        "\n".join(("architecture,setting,maps,top_share,even_share,mixed_evenly", *rows)) + "\n"
    )
    results = small.results()
    (line,) = [line for line in cautions(results, find(results)) if line.startswith("No map")]
    assert line.startswith("No map stands out in toy, llm, no DP")
    assert "share is 0.037" in line and "30 maps it is 0.033" in line
    assert folder / "shares.csv" in list(results.inputs())
