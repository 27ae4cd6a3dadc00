"""The RAND Health Insurance Experiment, from the package statsmodels."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from mia_audit.errors import UserError
from mia_audit.pools import pools
from mia_audit.pools.section import Dataset

RANDHIE = f"{Path(__file__).parents[2]}/config/sources.py:randhie"


def load(**section: str) -> object:
    return pools[RANDHIE].load(Dataset(source=RANDHIE, **section), "datasets.rand")  # type: ignore[arg-type]


def installed(monkeypatch: pytest.MonkeyPatch, package: Path | None) -> None:
    found = SimpleNamespace(origin=str(package / "__init__.py")) if package else None
    monkeypatch.setitem(pools[RANDHIE].load.__globals__, "find_spec", lambda name: found)


def test_where_statsmodels_is_missing_a_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, None)
    with pytest.raises(UserError, match=r"pip install 'mia-audit\[persons\]'"):
        load()


def test_rows_labels_and_persons(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "datasets" / "randhie" / "src" / "randhie.csv"
    installed(monkeypatch, tmp_path)
    with pytest.raises(UserError, match="no such file"):
        load()
    columns = {name: [0.5, 1.0, 2.0, 3.0] for name in pools[RANDHIE].load.__globals__["SURVEYED"]} | {
        "educdec": [12, None, 9, 9]
    }
    file.parent.mkdir(parents=True)
    pl.DataFrame(columns | {"mdvis": [0, 1, 2, 9], "zper": [7, 7, 8, 8]}).write_csv(file)
    source = pools[RANDHIE].load(Dataset(source=RANDHIE, person="zper"), "datasets.rand")
    assert source.records.shape == (4, 24) and source.labels.tolist() == [0, 1, 1, 2]
    assert source.persons is not None and source.persons.tolist() == [7, 7, 8, 8]
    with pytest.raises(UserError, match="are in the column 'zper'"):
        load(person="id")


@pytest.mark.skipif(importlib.util.find_spec("statsmodels") is None, reason="needs statsmodels (the extra persons)")
def test_the_real_file() -> None:
    source = pools[RANDHIE].load(Dataset(source=RANDHIE, person="zper"), "datasets.rand")
    assert source.records.shape == (20_190, 24) and len(set(source.persons.tolist())) == 5_912  # type: ignore[union-attr]
