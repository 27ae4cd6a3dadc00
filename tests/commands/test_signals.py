"""`mia-audit signals` on a tiny pool, and what damaged files get."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from mia_audit.explain.catalogue import Explainers
from mia_audit.models.architecture import build, describe
from mia_audit.models.weights import save_weights
from mia_audit.pools.build import build_pool
from mia_audit.pools.section import Dataset, Source
from mia_audit.pools.store import write_pool
from mia_audit.signals.families import columns, families
from mia_audit.storage import write_json

from ..builders import one_line, run

RECORDS, SHADOWS = 30, (2, 3, 4)
SECTION = Explainers(methods=("ig", "gradient_shap"), explain=("logit", "probability"), ig_nodes=3)
PARAMETERS = {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 2}


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (RECORDS, 1, 8, 8)).astype(np.uint8)
    source = Source("image", images, random.integers(0, 3, RECORDS), ["a", "b", "c"], [])
    write_pool(build_pool(source, Dataset(source="digits"), "tiny", 0), tmp_path / "pool")
    metadata = describe("vit", "vision_transformer", PARAMETERS, (1, 8, 8), 3)
    write_json(tmp_path / "architecture.json", metadata)
    for shadow in SHADOWS:
        model = build("vision_transformer", PARAMETERS, (1, 8, 8), 3, seed=shadow)
        save_weights(model, tmp_path / "models" / f"shadow-{shadow}" / "weights.safetensors")
    return tmp_path


def signals(
    audit: Path, family: str, out: str = "out", batch: int = 16, shadows: str = "2-4", **options: object
) -> int:
    spec = {"seed": 0, "dataset": "tiny", "families": {family: families(SECTION, "mlp")[family] | options}}
    places = {"pool": audit / "pool", "architecture": audit / "architecture.json", "models": audit / "models"}
    compute = {"compute": {"micro_batch": batch}}
    return run("signals", **places, spec=spec, shadows=shadows, threads=1, run=compute, out=audit / out)


@pytest.mark.parametrize("family", families(SECTION, "mlp"))
def test_writes_a_table_per_shadow(family: str, audit: Path) -> None:
    assert signals(audit, family) == 0
    for shadow in SHADOWS:
        file = pq.ParquetFile(audit / "out" / family / f"shadow-{shadow}.parquet")
        assert file.schema_arrow.names == ["shadow", "record", *columns(family, families(SECTION, "mlp")[family])]
        numbers = ("shadow", "record", "label", "predicted")
        kinds = {str(field.type) for field in file.schema_arrow if field.name not in numbers}
        assert kinds == {"float", "fixed_size_list<element: halffloat>[64]"}
        assert file.num_row_groups == 1
        group = file.read_row_group(0)
        assert set(group["shadow"].to_pylist()) == {shadow}
        assert group["record"].to_pylist() == list(range(RECORDS))


def test_same_inputs_give_the_same_bytes_and_shadows_differ(audit: Path) -> None:
    assert signals(audit, "gradient", "one") == signals(audit, "gradient", "two") == 0
    one, two = (
        [(audit / out / "gradient" / f"shadow-{shadow}.parquet") for shadow in SHADOWS] for out in ("one", "two")
    )
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
    first, second = (pq.read_table(path)["ixg_l1"].to_numpy() for path in one[:2])
    assert not np.allclose(first, second)


def test_what_is_there_is_computed_again_only_where_it_would_differ(
    audit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert signals(audit, "gradient", shadows="2-3") == 0
    first = {path.name: path.read_bytes() for path in (audit / "out" / "gradient").iterdir()}
    model = build("vision_transformer", PARAMETERS, (1, 8, 8), 3, seed=30)
    save_weights(model, audit / "models" / "shadow-3" / "weights.safetensors")
    capsys.readouterr()
    assert signals(audit, "gradient") == 0
    said = capsys.readouterr().out
    assert (
        "shadow 2: already computed" in said
        and "shadow 3: gradient of 30 records" in said
        and "shadow 4: gradient" in said
    )
    again = {path.name: path.read_bytes() for path in (audit / "out" / "gradient").iterdir()}
    assert [name for name in first if again[name] != first[name]] == ["shadow-3.parquet"]
    assert signals(audit, "gradient", explained_class="true") == 0
    assert "already" not in capsys.readouterr().out, "other options are other signals"
    assert signals(audit, "gradient", "whole", explained_class="true") == 0
    one, two = ((audit / out / "gradient" / "shadow-2.parquet").read_bytes() for out in ("out", "whole"))
    assert one == two != first["shadow-2.parquet"]


@pytest.mark.parametrize(
    "name",
    ["models/shadow-3/weights.safetensors", "pool/records.npy", "pool/records.parquet", "architecture.json"],
)
@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_damaged_file_is_one_line_that_names_it(
    name: str, damage: str, audit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = audit / name
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.unlink()
    assert signals(audit, "gradient") == 2
    assert str(path) in one_line(capsys)
    assert not [path for path in audit.glob("out/*/*") if path.name != "shadow-2.parquet"]
