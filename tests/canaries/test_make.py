"""Canaries: what each kind is, whom their coins are told to, and what is trained on."""

from pathlib import Path

import numpy as np
import pytest

from mia_audit.canaries.draw import DrawnCanaries, draw, make, read_asked, read_coins
from mia_audit.canaries.kinds import HeldOut, kinds
from mia_audit.cli import main
from mia_audit.errors import UserError
from mia_audit.pools.store import read_records

RANDOM = np.random.default_rng


def held_out(images: bool) -> HeldOut:
    random = RANDOM(0)
    records = random.integers(0, 256, (60, 1, 4, 4)).astype(np.uint8) if images else random.normal(size=(60, 5))
    return HeldOut(records if images else records.astype(np.float32), random.integers(0, 3, 60), 3)


@pytest.mark.parametrize("images", [True, False])
@pytest.mark.parametrize("name", ["natural", "mislabelled", "rare", "noise"])
def test_every_kind_keeps_type_and_shape(name: str, images: bool) -> None:
    given = held_out(images)
    before = given.records.copy()
    records, labels = kinds[name](given, RANDOM(1))
    assert (records.dtype, records.shape) == (given.records.dtype, given.records.shape)
    assert labels.shape == given.labels.shape
    assert ((labels >= 0) & (labels < 3)).all()
    assert (given.records == before).all()
    wrong = labels != given.labels
    assert (
        wrong.all()
        if name in ("mislabelled", "rare")
        else not wrong.any()
        if name == "natural"
        else 0.4 < wrong.mean() < 0.9
    )
    assert (records == given.records).all() == (name in ("natural", "mislabelled"))


def test_rare_rows_are_extreme_in_every_column() -> None:
    given = held_out(images=False)
    records, _ = kinds["rare"](given, RANDOM(1))
    low, high = np.quantile(given.records, (0.01, 0.99), axis=0)
    assert (np.isclose(records, low, rtol=1e-5) | np.isclose(records, high, rtol=1e-5)).all()


def test_the_training_set_is_the_others_and_the_canaries_that_the_coins_put_there(
    made: tuple[Path, DrawnCanaries],
) -> None:
    out, canaries = made
    trained, asked, coins = read_records(out / "train"), read_asked(out), read_coins(out)
    assert len(trained.labels) == 120 + canaries.member.sum()

    def rows(records: np.ndarray, labels: np.ndarray) -> list[bytes]:
        return sorted(bytes(np.asarray(one)) + bytes([label]) for one, label in zip(records, labels, strict=True))

    wanted = [
        np.concatenate(pair)
        for pair in ((canaries.others, asked.data[coins.member]), (canaries.other_labels, asked.labels[coins.member]))
    ]
    assert rows(trained.data, trained.labels) == rows(*wanted)
    assert {name: int((coins.kind == name).sum()) for name in np.unique(coins.kind)} == dict.fromkeys(sorted(kinds), 20)
    assert np.load(out / "train" / "records.npz")["labels"].tolist() == trained.labels.tolist()


def test_nothing_that_is_handed_out_tells_a_coin(made: tuple[Path, DrawnCanaries]) -> None:
    import pyarrow.parquet as pq

    out, canaries = made
    for name in ("train", "ask"):
        assert pq.read_schema(out / name / "records.parquet").names == ["record", "label"]
        assert np.load(out / name / "records.npz").files == ["records", "labels"]
    assert (out / "auditor").stat().st_mode & 0o77 == 0
    places = np.flatnonzero(canaries.member)
    assert abs(places.mean() - 39.5) < 12  # not the first ones


def test_coins_are_fair_and_new_every_time() -> None:
    records, labels = np.zeros((2100, 2), dtype=np.float32), np.arange(2100) % 2
    records[:] = RANDOM(0).normal(size=records.shape)
    drawn = [draw(records, labels, 2, ["natural"], 2000, RANDOM(seed)) for seed in (1, 2)]
    assert all(abs(one.member.mean() - 0.5) < 0.05 for one in drawn)
    assert (drawn[0].member == drawn[1].member).mean() < 0.6


def test_two_runs_without_a_seed_differ(tmp_path: Path) -> None:
    records, labels = RANDOM(0).normal(size=(60, 2)).astype(np.float32), np.arange(60) % 2
    metadata = {"kind": "table", "shape": [2], "classes": ["a", "b"]}
    one, other = (make(records, labels, metadata, ["noise"], 40, tmp_path / name) for name in "ab")
    assert (one.member != other.member).any()


@pytest.mark.parametrize(
    ("count", "classes", "message"),
    [(5, 2, "expected at least 20 canaries"), (60, 2, "has 60 records"), (30, 1, "at least two")],
)
def test_too_few_of_anything_is_a_mistake(count: int, classes: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        draw(np.zeros((60, 2)), np.arange(60) % classes, classes, ["natural"], count, RANDOM(0))


def test_a_table_in_a_file_becomes_canaries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = RANDOM(0)
    rows = [f"{a:.4f},{b:.4f},{'yes' if a > b else 'no'}" for a, b in random.normal(size=(100, 2))]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,label", *rows]))
    words = ["canaries", "make", "--data", str(tmp_path / "rows.csv"), "--count", "40", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert "keep this secret" in capsys.readouterr().out
    assert len(read_asked(tmp_path / "out").labels) == 40
    assert main(words) == 2  # coins are tossed once
    assert "coins are tossed only once" in capsys.readouterr().err
    assert main([*words[:-1], str(tmp_path / "new"), "--kinds", "nosie"]) == 2
    assert "'nosie': did you mean 'noise'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("out", "seed", "message"),
    [
        ("new", "-1", "--seed -1: expected 0 or a positive number"),
        ("rows.csv", "1", "rows.csv: would overwrite a file that is read"),
    ],
)
def test_a_mistake_in_the_arguments_is_one_line(
    out: str, seed: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{a:.4f},{'yes' if a > 0 else 'no'}" for a in RANDOM(0).normal(size=100)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,label", *rows]))
    words = ["--data", str(tmp_path / "rows.csv"), "--count", "40", "--seed", seed, "--out", str(tmp_path / out)]
    assert main(["canaries", "make", *words]) == 2
    told = capsys.readouterr().err
    assert message in told and "Traceback" not in told
    assert [one.name for one in tmp_path.iterdir()] == ["rows.csv"]
