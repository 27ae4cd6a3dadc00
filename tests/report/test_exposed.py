import json

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from mia_audit.report.explained import most_exposed
from mia_audit.report.opened import find
from mia_audit.storage import write_table
from mia_audit.training.stored import model_folder

EXPOSED = 17


@pytest.fixture
def with_pool(written):
    """A fresh small audit with a pool, of one setting that leaks."""
    return written({("none", "inf"): 1.0}, pool=True)


def train(small, kind):
    """Give the audit an architecture and untrained but distinct weights for every shadow model."""
    from mia_audit.models.architecture import build, describe
    from mia_audit.models.weights import save_weights

    if kind == "image":
        model, parameters, shape = (
            "vision_transformer",
            {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 2},
            (1, 8, 8),
        )
    else:
        model, parameters, shape = "mlp", {"width": 8}, (5,)
    folder = small.root / "toy" / "net"
    (folder / "architecture.json").write_text(json.dumps(describe("net", model, parameters, shape, 3)))
    for shadow in range(12):
        kept = model_folder(folder / "none-epsinf" / "models", shadow)
        save_weights(build(model, parameters, shape, 3, shadow), kept / "weights.safetensors")


def listed(small, **changes):
    results = small.results(**changes)
    findings = find(results)
    return most_exposed(results, findings.settings[0], findings.fpr)


def test_the_planted_record_comes_first_and_is_counted_right(small):
    leak, records = listed(small)
    assert leak.key == ("loss-lira", "confidence", "pooled")
    first = records[0]
    assert (first.record, first.label) == (EXPOSED, "hen")
    rows = pl.read_parquet(small.root / "toy/net/none-epsinf/scores.parquet").filter(
        pl.col("attack") == "loss-lira", pl.col("likelihood") == "pooled", ~pl.col("null_control")
    )
    caught, false_alarms = 0, 0
    for target in range(6, 12):  # the second half
        one = rows.filter(pl.col("target") == target)
        outside = np.sort(one.filter(~pl.col("member"))["score"].to_numpy())[::-1]
        score, member = one.filter(pl.col("record") == EXPOSED).select("score", "member").row(0)
        named = score > outside[1]  # one of 150 non-members may be accused at 1 %
        caught, false_alarms = caught + (named and member), false_alarms + (named and not member)
    assert (first.recognised, first.false_alarms) == (caught, false_alarms) and first.inside + first.outside == 6
    assert caught == first.inside and first.revealed > 0.5 and 0 < first.limits[0] < first.limits[1] <= 1


def test_no_record_is_listed_where_nothing_leaks(written):
    _, records = listed(written({("none", "inf"): 0.0}))
    assert records == []


def test_the_list_is_empty_where_no_record_stands_out(small, findings):
    """With the pool at hand, whose records there are none to show of."""
    weak = findings.settings[2]
    assert (small.root / "pools" / "toy" / "records.npy").exists()
    assert most_exposed(small.results(), weak, findings.fpr)[1] == []


def test_none_are_shown_where_none_are_asked_for(small):
    assert listed(small, exposed=0) is None


def test_without_a_pool_records_have_numbers_only(imported):
    _, records = listed(imported)
    assert records[0].record == EXPOSED and records[0].label == records[0].picture == "" and not records[0].maps


def test_without_models_images_are_shown_without_maps(with_pool):
    _, records = listed(with_pool)
    assert records[0].picture.startswith("data:image/png") and not records[0].maps


def test_maps_are_of_a_model_that_trained_on_the_record_and_one_that_did_not(with_pool, monkeypatch):
    import torch

    from mia_audit.learners.torch_module import TorchModel
    from mia_audit.models.architecture import load
    from mia_audit.models.inputs import to_input

    from ..explain.attribution import attribute

    train(with_pool, "image")
    asked = []
    original = TorchModel.attributions

    def attributions(model, records, request):
        found = original(model, records, request)
        ((key, values),) = found.items()
        asked.append((records.numbers.tolist(), *key, request.seed, torch.from_numpy(values)))
        return found

    monkeypatch.setattr(TorchModel, "attributions", attributions)
    _, records = listed(with_pool)
    assert all(len(one.maps) == 2 and one.maps[0] != one.maps[1] for one in records)
    member = pl.read_parquet(with_pool.root / "pools/toy/membership.parquet").row(EXPOSED)[1:]
    architecture = json.loads((with_pool.root / "toy/net/architecture.json").read_text())
    metadata = with_pool.results().pool_metadata("toy")
    image = np.load(with_pool.root / "pools/toy/records.npy")[EXPOSED : EXPOSED + 1]
    for inside in (True, False):
        shadow = member.index(inside)
        weights = model_folder(with_pool.root / "toy/net/none-epsinf/models", shadow) / "weights.safetensors"
        model = load(architecture, weights)
        options = dict(with_pool.spec["explainers"], explain=["probability"])
        given = (model, to_input(image, metadata), torch.tensor([2]), [EXPOSED], "ig", options, 3)
        expected = attribute(*given)["probability"][0]
        shown = [found[rows.index(EXPOSED)] for rows, *_, found in asked if EXPOSED in rows]
        assert any(torch.allclose(expected, one) for one in shown)
    assert {tuple(one) for _, *one, _ in asked} == {("ig", "probability", 3)}


def test_a_row_of_a_table_is_shown_by_its_features(with_pool):
    pool = with_pool.root / "pools" / "toy"
    values = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
    np.save(pool / "records.npy", values)
    records = pa.table({"record": pa.array(range(300), pa.int32()), "label": pa.array(np.arange(300) % 3, pa.int32())})
    metadata = {
        "kind": "table",
        "shape": [5],
        "classes": ["x", "y", "z"],
        "features": ["a", "b", "c", "d", "e"],
        "duplicates": 0,
    }
    write_table(pool / "records.parquet", records, "records", 300, metadata)
    train(with_pool, "table")
    _, shown = listed(with_pool)
    bars = shown[0].bars
    assert len(bars) == 5 and not shown[0].picture
    assert {bar.feature: bar.value for bar in bars}["c"] == f"{values[EXPOSED, 2]:.3g}".replace("-", "−")
    sizes = [max(abs(bar.inside), abs(bar.outside)) for bar in bars]
    assert sizes[0] == 1.0 and sizes == sorted(sizes, reverse=True)
