"""`mia-audit explanation-metrics` on two settings of a tiny pool: every value can be had from the models again."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from mia_audit.explanation_metrics.methods import gini, rank_correlation
from mia_audit.explanation_metrics.study import draw_sample, shown_rows
from mia_audit.models.architecture import build, describe, load
from mia_audit.models.inputs import to_input
from mia_audit.models.weights import save_weights
from mia_audit.pools.build import build_pool
from mia_audit.pools.section import Dataset, Source
from mia_audit.pools.store import read_records, write_pool
from mia_audit.storage import table_metadata, write_json
from mia_audit.training.stored import write_diverged

from ..builders import one_line, run
from ..explain.attribution import attribute

SETTINGS = (("none", "inf"), ("dp-sgd", "8"))
PARAMETERS = {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 2}
SPEC = {
    "seed": 4,
    "dataset": "tiny",
    "settings": SETTINGS,
    "reference": ("none", "inf"),
    "records": 9,
    "models": 3,
    "shown": 2,
    "explainers": ["ixg", "saliency"],
    "explaining": {"explain": ["logit", "probability"], "explained_class": "predicted"},
    "measures": ["ssim", "rank-correlation", "gini", "infidelity", "sensitivity", "deletion"],
    "measuring": {"perturbations": 2, "removed_share": 0.2, "radius": 0.1, "curve_steps": 2},
}


def _audit(folder: Path, model: str, parameters: dict[str, object], source: Source) -> Path:
    shape, classes = source.records.shape[1:], len(source.classes)
    write_pool(build_pool(source, Dataset(source="digits"), "tiny", 0), folder / "pool")
    write_json(folder / "net" / "architecture.json", describe("net", model, parameters, shape, classes))
    for number, setting in enumerate(SETTINGS):
        for shadow in range(4):
            built = build(model, parameters, shape, classes, seed=10 * number + shadow)
            with torch.no_grad():
                for weight in built.parameters():  # timm's heads begin at almost nothing
                    weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(shadow)))
            models = folder / "net" / "-eps".join(setting) / "models"
            save_weights(built, models / f"shadow-{shadow}" / "weights.safetensors")
    return folder


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (30, 1, 8, 8)).astype(np.uint8)
    source = Source("image", images, random.integers(0, 3, 30), ["a", "b", "c"], [])
    return _audit(tmp_path_factory.mktemp("images"), "vision_transformer", PARAMETERS, source)


def measure(audit: Path, out: str = "measures.parquet", batch: int = 16, **changes: object) -> int:
    places = {"pool": audit / "pool", "architecture": audit / "net" / "architecture.json"}
    files = {"maps": audit / f"maps-{out}", "curves": audit / f"curves-{out}", "out": audit / out}
    compute = {"compute": {"micro_batch": batch}}
    return run("explanation-metrics", **places, spec=SPEC | changes, run=compute, **files)


@pytest.fixture(scope="module")
def measured(audit: Path) -> pl.DataFrame:
    assert measure(audit) == 0
    return pl.read_parquet(audit / "measures.parquet")


def _maps(audit: Path, setting: tuple[str, str], shadow: int, explainer: str) -> np.ndarray:
    pool = read_records(audit / "pool")
    rows = draw_sample(30, 9, "tiny", 4)
    architecture = json.loads((audit / "net" / "architecture.json").read_text())
    folder = audit / "net" / "-eps".join(setting) / "models"
    model = load(architecture, folder / f"shadow-{shadow}" / "weights.safetensors")
    inputs = to_input(pool.data[rows], pool.metadata, architecture["input_shape"])
    labels = torch.as_tensor(pool.labels[rows]).long()
    found = attribute(model, inputs, labels, rows.tolist(), explainer, SPEC["explaining"], 4)["probability"]
    return found.double().sum(dim=1).numpy()


@pytest.mark.parametrize("explainer", ["ixg", "saliency"])
def test_values_are_those_of_the_models(audit: Path, measured: pl.DataFrame, explainer: str) -> None:
    rows = measured.filter(explainer=explainer, quantity="probability")
    private, bare = (_maps(audit, setting, 1, explainer) for setting in reversed(SETTINGS))
    dp = rows.filter(epsilon="8", shadow=1)
    assert dp.filter(measure="gini")["value"].to_numpy() == pytest.approx(gini(private))
    found = dp.filter(measure="rank-correlation", against="reference")
    assert found["record"].to_list() == draw_sample(30, 9, "tiny", 4).tolist()
    assert found["value"].to_numpy() == pytest.approx(rank_correlation(private, bare))
    first = _maps(audit, SETTINGS[1], 0, explainer)
    neighbours = dp.filter(measure="rank-correlation", against="other model")["value"].to_numpy()
    assert neighbours == pytest.approx(rank_correlation(private, first))


def test_what_is_compared_with_what(measured: pl.DataFrame) -> None:
    compared = measured.filter(measure="ssim", explainer="ixg", quantity="logit").group_by(
        "epsilon", "against", "shadow"
    )
    assert {key for key, rows in compared if len(rows) == 9} == {
        ("8", "reference", 0), ("8", "reference", 1), ("8", "reference", 2), ("8", "other model", 1), ("inf", "other model", 1)
    }  # fmt: skip
    alone = measured.filter(pl.col("measure").is_in(["gini", "infidelity", "sensitivity", "deletion"]))
    assert len(alone) == 4 * 2 * 3 * 9 * 2 * 2 and alone["against"].null_count() == len(alone)
    assert measured.filter(pl.col("against").is_not_null())["same_class"].null_count() == 0
    assert measured["value"].null_count() == 0


def test_curves_are_means_over_records_with_the_areas_below_them(audit: Path, measured: pl.DataFrame) -> None:
    curves = pl.read_parquet(audit / "curves-measures.parquet")
    assert len(curves) == 2 * 2 * 2 * 3 * 3 and set(curves["measure"]) == {"deletion"}
    wanted = {"epsilon": "8", "shadow": 2, "explainer": "ixg", "quantity": "logit"}
    curve = curves.filter(**wanted)
    assert curve["share"].to_list() == [0, 0.5, 1]
    areas = measured.filter(measure="deletion", **wanted)["value"]
    assert np.trapezoid(curve["value"], curve["share"]) == pytest.approx(areas.mean())
    ends = curves.filter(pl.col("share").is_in([0.0, 1.0])).group_by("epsilon", "shadow", "share").agg("value")
    assert all(values == pytest.approx([values[0]] * 4) for values in ends["value"].to_list()), "whatever explains"


def test_the_maps_that_are_shown_are_the_first_models(audit: Path, measured: pl.DataFrame) -> None:
    maps = pl.read_parquet(audit / "maps-measures.parquet")
    assert len(maps) == 2 * 2 * 2 * 2 and set(maps["shadow"]) == {0}
    row = maps.filter(epsilon="8", explainer="saliency", quantity="probability").row(1, named=True)
    sample = draw_sample(30, 9, "tiny", 4)
    own = _maps(audit, SETTINGS[1], 0, "saliency")[sample.tolist().index(row["record"])]
    assert np.reshape(row["map"], (row["height"], row["width"])) == pytest.approx(own, rel=1e-5)


def test_neither_the_batch_nor_a_second_run_changes_anything(audit: Path, measured: pl.DataFrame) -> None:
    assert measure(audit, "again.parquet") == 0
    for kind in ("", "maps-", "curves-"):
        assert (audit / f"{kind}again.parquet").read_bytes() == (audit / f"{kind}measures.parquet").read_bytes()
    assert measure(audit, "small.parquet", batch=4) == 0
    small = pl.read_parquet(audit / "small.parquet")
    assert small.drop("value").equals(measured.drop("value"))
    assert small["value"].to_numpy() == pytest.approx(measured["value"].to_numpy(), rel=1e-4, abs=1e-5)


def test_a_table_has_no_ssim_and_the_file_says_so(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    source = Source(
        "table", random.normal(size=(20, 6)).astype(np.float32), random.integers(0, 2, 20), ["a", "b"], list("uvwxyz")
    )
    audit = _audit(tmp_path, "mlp", {}, source)
    assert measure(audit) == 0
    found = pl.read_parquet(audit / "measures.parquet")
    assert "ssim" not in found["measure"].unique() and "rank-correlation" in found["measure"].unique()
    assert table_metadata(audit / "measures.parquet", "explanation_metrics")["left_out"] == ["ssim"]


def test_without_a_reference_nothing_is_compared_with_it(audit: Path) -> None:
    assert measure(audit, "bare.parquet", reference=None, measures=["cosine"]) == 0
    assert pl.read_parquet(audit / "curves-bare.parquet").is_empty()
    assert pl.read_parquet(audit / "bare.parquet")["against"].unique().to_list() == ["other model"]


def test_a_wrong_explainer_or_missing_models_are_one_line(audit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = audit / "net" / "dp-sgd-eps8" / "models"
    assert measure(audit, "no.parquet", explainers=["captum:DeepLyft"]) == 2
    assert "did you mean 'DeepLift'?" in capsys.readouterr().err
    missing.rename(missing.with_name("away"))
    assert measure(audit, "no.parquet") == 2
    missing.with_name("away").rename(missing)
    assert "dp-sgd-eps8/models/shadow-0: no such model" in one_line(capsys)
    assert not (audit / "no.parquet").exists()


def test_a_model_that_diverged_in_one_setting_is_left_out_of_all(audit: Path) -> None:
    gone = audit / "net" / "dp-sgd-eps8" / "models" / "shadow-0"
    gone.rename(gone.with_name("away"))
    write_diverged(gone.parent, 0, "key", "diverged in epoch 1")
    assert measure(audit, "fewer.parquet", measures=["cosine", "gini"]) == 0
    gone.with_name("away").rename(gone)
    gone.with_suffix(".parquet").unlink()
    found = pl.read_parquet(audit / "fewer.parquet")
    assert found["shadow"].unique().sort().to_list() == [1, 2]
    assert found["against"].drop_nulls().unique().to_list() == ["reference"], "model 1 has lost its partner"


def test_shown_rows_take_the_classes_in_turn() -> None:
    labels = np.array([2, 0, 0, 1, 2, 0])
    assert shown_rows(labels, 2) == [1, 3] and shown_rows(labels, 4) == [0, 1, 2, 3]
    assert shown_rows(labels, 0) == [] and shown_rows(labels, 9) == [0, 1, 2, 3, 4, 5]


def test_the_sample_grows_without_changing() -> None:
    few, more = draw_sample(100, 10, "d", 0), draw_sample(100, 20, "d", 0)
    assert set(few) < set(more) and len(more) == 20 and (np.diff(more) > 0).all()
    assert len(draw_sample(7, 32, "d", 0)) == 7
