"""Constants from the audited records: released once, told in full, never without noise; every mistake is one line."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from mia_audit.pools import pools
from mia_audit.pools.build import Pool, build_pool
from mia_audit.pools.section import Dataset
from mia_audit.pools.store import read_records
from mia_audit.privacy.moments import release

from .conftest import PUBLIC, pool_command, through_all_stages

PEOPLE = {
    "age": np.linspace(20, 90, 60),
    "hours": np.arange(60) % 50,
    "smoker": [True, False] * 30,
    "town": ["Bern", "Ulm", "Aix"] * 20,
    "label": ["ill", "well"] * 30,
}
BOUNDS = {"age": (0.0, 120.0), "hours": (0.0, 60.0)}
PRIVATE: dict[str, Any] = {"standardise": "private", "standardise_epsilon": 1.0, "bounds": BOUNDS}


@pytest.fixture
def people(tmp_path: Path) -> Path:
    pl.DataFrame(PEOPLE).write_csv(tmp_path / "people.csv")
    return tmp_path / "people.csv"


def build(root: Path, seed: int = 0, **section: Any) -> Pool:
    dataset = Dataset(source="table", path=str(root), **PRIVATE | section)
    return build_pool(pools["table"].load(dataset, "datasets.people"), dataset, "people", seed, release=release)


def test_columns_of_numbers_are_scaled_by_what_was_released_and_flags_stay(people: Path) -> None:
    pool = build(people, public=10)
    metadata = pool.metadata
    raw = np.stack([PEOPLE["age"], PEOPLE["hours"]], axis=1).astype(np.float32)
    for side in (pool.audited, pool.public):
        expected = (raw[side.source] - np.array(metadata["centre"][:2])) / np.array(metadata["scale"][:2])
        np.testing.assert_allclose(np.asarray(side.data)[:, :2], expected, rtol=1e-5)
        assert set(np.unique(np.asarray(side.data)[:, 2:])) == {0.0, 1.0}
    assert metadata["features"][2:] == ["smoker", "town=Aix", "town=Bern", "town=Ulm"]
    assert metadata["scale"][2:] == [1.0] * 4


def test_the_facts_say_what_the_release_cost(people: Path) -> None:
    release = build(people, public=10, standardise_delta=1e-6).metadata["release"]
    assert (release["epsilon"], release["delta"], release["records"]) == (1.0, 1e-6, 50)
    assert release["mechanism"] == "Gaussian" and "add or remove one record" in release["adjacency"]
    assert release["bounds"] == {name: list(pair) for name, pair in BOUNDS.items()}
    assert release["sensitivity"] == pytest.approx(2**0.5)
    assert release["noise"] == pytest.approx(release["noise_multiplier"] * 2**0.5 / 50)
    assert set(release["floored"]) <= set(BOUNDS)


def test_the_public_records_have_no_say(people: Path) -> None:
    frame = pl.DataFrame(PEOPLE)
    first = build(people, public=10, take="first").metadata
    frame.with_columns(age=pl.when(pl.int_range(pl.len()) < 50).then("age").otherwise(7.0)).write_csv(people)
    assert build(people, public=10, take="first").metadata["centre"] == first["centre"]
    frame.with_columns(age=pl.when(pl.int_range(pl.len()) < 40).then("age").otherwise(7.0)).write_csv(people)
    assert build(people, public=10, take="first").metadata["centre"] != first["centre"]


def test_noise_is_the_same_on_a_rerun_and_other_under_other_terms(people: Path) -> None:
    def noise(metadata: dict[str, Any]) -> float:
        """Noise of the first column's mean, in units of its standard deviation."""
        moved = (metadata["centre"][0] - PEOPLE["age"].mean()) / 60
        return float(moved / metadata["release"]["noise"])

    first = build(people, bounds=BOUNDS, standardise_epsilon=8.0).metadata
    assert build(people, bounds=BOUNDS, standardise_epsilon=8.0).metadata == first
    for other in (
        build(people, standardise_epsilon=9.0),
        build(people, standardise_epsilon=8.0, standardise_delta=1e-6),
        build(people, standardise_epsilon=8.0, bounds=BOUNDS | {"hours": (0.0, 61.0)}),
        build(people, seed=1, standardise_epsilon=8.0),
    ):
        assert abs(noise(other.metadata) - noise(first)) > 0.01


def test_one_range_may_stand_for_all_other_columns(people: Path) -> None:
    bounds = build(people, bounds={"*": (0.0, 100.0), "hours": (0.0, 60.0)}).metadata["release"]["bounds"]
    assert bounds == {"age": [0.0, 100.0], "hours": [0.0, 60.0]}
    stated = build(people, bounds=BOUNDS | {"town=Ulm": (0.0, 1.0)}).metadata
    assert list(stated["release"]["bounds"]) == ["age", "hours", "town=Ulm"] and stated["scale"][5] < 1


def test_private_constants_go_through_an_audits_stages(people: Path, tmp_path: Path) -> None:
    section = {"source": "table", "path": str(people), **PRIVATE}
    mlp = {"model": "mlp", "parameters": {"width": 4}}
    signals = through_all_stages(section, mlp, tmp_path / "run")
    assert len(signals) == 2 * (60 - PUBLIC)
    stored = read_records(tmp_path / "run")
    assert stored.metadata["release"]["epsilon"] == 1.0
    again = section | {"public": PUBLIC}
    assert pool_command(again, tmp_path / "pool", "some") == 0
    for path in (tmp_path / "pool").iterdir():
        assert path.read_bytes() == (tmp_path / "run" / path.name).read_bytes()


def made(tmp_path: Path, **section: Any) -> tuple[int, Path]:
    out = tmp_path / "pool"
    return pool_command(section, out), out


def arrays(tmp_path: Path, records: np.ndarray) -> str:
    np.savez(tmp_path / "some.npz", records=records, labels=np.arange(len(records)) % 2)
    return str(tmp_path / "some.npz")


ROWS = np.random.default_rng(0).normal(size=(20, 2))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bounds": {"age": [0, 120]}}, "datasets.mine.bounds: nothing for column 'hours': state [low, high]"),
        (
            {"bounds": BOUNDS | {"aeg": [0, 1]}},
            "datasets.mine.bounds.aeg: no such column: did you mean 'age'?",
        ),
        (
            {"bounds": BOUNDS | {"age": [120, 0]}},
            "bounds.age: expected the low bound, then a larger high bound; got 120 and 0",
        ),
        ({"bounds": BOUNDS | {"age": [1, 1]}}, "bounds.age: expected the low bound, then a larger high bound"),
        ({"bounds": BOUNDS | {"age": [0, float("inf")]}}, "bounds.age.1: input should be a finite number"),
        ({"bounds": {}}, "standardise: private, bounds and standardise_epsilon require one another"),
        ({"standardise_epsilon": None}, "standardise: private, bounds and standardise_epsilon require one another"),
        ({"standardise_epsilon": 0}, "standardise_epsilon: input should be greater than 0, got 0"),
        ({"standardise_epsilon": -1}, "standardise_epsilon: input should be greater than 0, got -1"),
        ({"standardise_epsilon": float("inf")}, "standardise_epsilon: input should be less than 200"),
        ({"standardise_delta": 0}, "standardise_delta: input should be greater than 0"),
        ({"standardise": "none"}, "standardise: private, bounds and standardise_epsilon require one another"),
    ],
)
def test_what_is_wrong_with_bounds_and_budget_is_one_line(
    changes: dict[str, Any], words: str, people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = made(tmp_path, **{"source": "table", "path": str(people)} | PRIVATE | changes)
    told = capsys.readouterr().err
    assert code == 2 and words in told and told.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("records", "section", "words"),
    [
        (ROWS, {"bounds": {0: [-3, 3]}}, "datasets.mine.bounds: nothing for column '1'"),
        (ROWS, {"bounds": {2: [-3, 3]}}, "datasets.mine.bounds.2: no such column"),
        (ROWS > 0, {"bounds": {"*": [0, 1]}}, "private: all columns hold only 0 and 1"),
        (
            np.zeros((20, 4, 4), np.uint8),
            {"bounds": {"*": [0, 1]}},
            "standardise: only for tables, but these records are images",
        ),
        (np.zeros((20, 4, 4), np.uint8), {"standardise": "public", "public": 4}, "but these records are images"),
        (ROWS, {"mean": 0.5}, "datasets.mine.mean: only for images, but these records are rows of a table"),
    ],
)
def test_what_is_wrong_with_arrays_and_their_constants_is_one_line(
    records: np.ndarray, section: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    private = {"standardise": "private", "standardise_epsilon": 1} if "bounds" in section else {}
    code, out = made(tmp_path, source="arrays", path=arrays(tmp_path, records), **private | section)
    told = capsys.readouterr().err
    assert code == 2 and words in told and told.count("\n") == 1
    assert not out.exists()


def test_bounds_of_a_bundled_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private = {"source": "breast_cancer", "standardise": "private", "standardise_epsilon": 1}
    assert made(tmp_path, **private, bounds={"mean radius": [0, 50]})[0] == 2
    assert "bounds: nothing for column 'mean texture' and 28 more" in capsys.readouterr().err
    code, out = made(tmp_path, **private, bounds={"*": [0, 5000]}, standardise_delta=0.01)
    told = capsys.readouterr()
    assert code == 0 and len(read_records(out).metadata["release"]["bounds"]) == 30
    assert "constants of 30 columns released at ε = 1, δ = 0.01: noise of" in told.out
    assert "warning: datasets.mine.standardise_delta is not below 1/(audited records)" in told.err


def test_images_have_no_columns_to_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private = {"standardise": "private", "standardise_epsilon": 1, "bounds": {"*": [0, 255]}}
    assert made(tmp_path, source="digits", **private)[0] == 2
    assert "datasets.mine.standardise: pool 'digits' does not read this key" in capsys.readouterr().err
