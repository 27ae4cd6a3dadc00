"""`mia-audit signals` on a tiny pool, and what damaged files get."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from mia_audit.cli import main
from mia_audit.explain.section import Explainers
from mia_audit.models import build, describe, save_weights
from mia_audit.pools.build import build_pool
from mia_audit.pools.catalogue import Source
from mia_audit.pools.section import Dataset
from mia_audit.pools.store import write_pool
from mia_audit.signals.families import columns, families
from mia_audit.storage import write_json

from .conftest import spec_file

RECORDS, SHADOWS = 30, (2, 3, 10)
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
        save_weights(model, tmp_path / "models" / "002-010" / f"shadow-{shadow}" / "weights.safetensors")
    return tmp_path


def run(audit: Path, family: str, out: str = "out.parquet", batch: int = 16, **options: object) -> int:
    spec: dict[str, object] = {"seed": 0, "dataset": "tiny", "family": family, "blocks": ["002-010"]}
    spec |= {"options": families(SECTION, "mlp")[family] | options}
    return main(
        [
            "signals",
            *("--pool", str(audit / "pool")),
            *("--architecture", str(audit / "architecture.json")),
            *("--models", str(audit / "models")),
            *("--spec", spec_file(audit, spec)),
            *("--threads", "1"),
            *("--batch", str(batch)),
            *("--out", str(audit / out)),
        ]
    )


@pytest.mark.parametrize("family", families(SECTION, "mlp"))
def test_writes_a_row_group_per_shadow_in_order(family: str, audit: Path) -> None:
    assert run(audit, family) == 0
    file = pq.ParquetFile(audit / "out.parquet")
    assert file.schema_arrow.names == ["shadow", "record", *columns(family, families(SECTION, "mlp")[family])]
    types = {
        str(field.type) for field in file.schema_arrow if field.name not in ("shadow", "record", "label", "predicted")
    }
    assert types == {"float"}
    assert file.num_row_groups == len(SHADOWS)
    for index, shadow in enumerate(SHADOWS):
        group = file.read_row_group(index)
        assert set(group["shadow"].to_pylist()) == {shadow}
        assert group["record"].to_pylist() == list(range(RECORDS))


def test_same_inputs_give_the_same_bytes_and_shadows_differ(audit: Path) -> None:
    assert run(audit, "gradient", "one.parquet") == run(audit, "gradient", "two.parquet") == 0
    assert (audit / "one.parquet").read_bytes() == (audit / "two.parquet").read_bytes()
    file = pq.ParquetFile(audit / "one.parquet")
    first, second = (file.read_row_group(index)["ixg_l1"].to_numpy() for index in (0, 1))
    assert not np.allclose(first, second)


@pytest.mark.parametrize(
    "name",
    ["models/002-010/shadow-3/weights.safetensors", "pool/records.npy", "pool/records.parquet", "architecture.json"],
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
    assert run(audit, "gradient") == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert str(path) in message
    assert not list(audit.glob("out.parquet*")) and not list(audit.glob(".out*"))


def test_an_unknown_captum_method_is_one_line(audit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(audit, "ig", explainers=["captum:DeepLyft"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "did you mean 'DeepLift'?" in message
