"""What docs/pools.md says a user has to write is a whole config, and as short as it says."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml
from PIL import Image

from mia_audit.config.expand import resolved_architecture
from mia_audit.config.load import check_audit
from mia_audit.models import own_normalisation
from mia_audit.pools import pools
from mia_audit.pools.build import build_pool
from mia_audit.pools.section import Dataset

PAGE = Path(__file__).parents[2] / "docs" / "pools.md"


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
    if name == "photos":
        assert pool.metadata["shape"] == [3, 224, 224]
        assert own_normalisation(architecture, 3)["mean"] == [0.5] * 3


def _write(folder: Path) -> None:
    random = np.random.default_rng(0)
    for number in range(6):
        path = folder / "photos" / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (10 + number, 12, 3), dtype=np.uint8)).save(path)
    people = {"age": random.normal(40, 10, 130), "town": ["Ulm", "Bern"] * 65, "income": ["low", "high"] * 65}
    pl.DataFrame(people).write_csv(folder / "people.csv")
