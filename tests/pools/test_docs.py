"""What docs/how-to/pools.md says a user has to write is a whole config, and as short as it says."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml
from PIL import Image

from mia_audit.config.expand import resolved_architecture
from mia_audit.config.load import check_audit
from mia_audit.models.architecture import own_normalisation
from mia_audit.pools import pools
from mia_audit.pools.build import build_pool
from mia_audit.pools.section import Dataset

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "pools.md"


@pytest.mark.parametrize(("name", "lines"), [("photos", 5), ("people", 6)])
def test_a_users_own_data_needs_so_many_lines(
    name: str, lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = next(
        block for block in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S) if f"audit: {name}" in block
    )
    assert len(written.splitlines()) == lines
    audit = check_audit(yaml.safe_load(written), "docs")
    monkeypatch.chdir(tmp_path)
    _write(tmp_path / "data")
    section: Dataset = audit.datasets[name]
    pool = build_pool(pools[section.source].load(section, f"datasets.{name}"), section, name, 0)
    assert len(pool.metadata["classes"]) == 2
    (architecture,) = audit.architectures
    assert resolved_architecture(audit, architecture).model == architecture
    if name == "people":
        years = ("year=1990", "year=1991", "year=1992")
        assert pool.metadata["features"] == ["age", "town=Bern", "town=Ulm", *years, "code", "schooling"]
    if name == "photos":
        assert pool.metadata["shape"] == [3, 224, 224]
        assert own_normalisation(architecture, 3)["mean"] == [0.5] * 3


def _write(folder: Path) -> None:
    random = np.random.default_rng(0)
    for number in range(6):
        path = folder / "photos" / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (10 + number, 12, 3), dtype=np.uint8)).save(path)
    rows = range(260)
    people = {
        "age": random.normal(40, 10, 260),
        "town": ["Ulm", "Bern"] * 130,
        "income": ["low", "high"] * 130,
        "patient": [k // 2 for k in rows],
        "name": [f"N. N. {k}" for k in rows],
        "year": [1990 + k % 3 for k in rows],
        "code": list(rows),
        "schooling": [None, 9, 12, 16] * 65,
    }
    pl.DataFrame(people).write_csv(folder / "people.csv")
