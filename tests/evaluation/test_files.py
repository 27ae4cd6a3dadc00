"""Scores made by other tools: any order of rows, 64 bits, one row group for all."""

import numpy as np
import polars as pl
import pytest

from mia_audit.errors import UserError
from mia_audit.evaluation.files import read_scores


def table():
    random = np.random.default_rng(0)
    frames = [
        pl.DataFrame(
            {
                "attack": attack, "signal": "loss", "likelihood": "none", "null_control": False,
                "target": np.repeat(np.arange(4), 30), "record": np.tile(np.arange(30), 4),
                "member": random.random(120) < 0.5, "score": random.normal(size=120),
            }
        )
        for attack in ("ours", "theirs")
    ]  # fmt: skip
    return pl.concat(frames)


def test_scores_of_another_tool_are_read_attack_by_attack(tmp_path):
    frame = table()
    frame.sample(fraction=1, shuffle=True, seed=3).write_parquet(tmp_path / "scores.parquet")
    found = {scored.key: scored for scored in read_scores(tmp_path / "scores.parquet")}
    assert set(found) == {(attack, "loss", "none", False) for attack in ("ours", "theirs")}
    one = found["theirs", "loss", "none", False]
    expected = frame.filter(attack="theirs")
    np.testing.assert_array_equal(one.score, expected["score"].to_numpy().astype(np.float32).reshape(4, 30).T)
    np.testing.assert_array_equal(one.member, expected["member"].to_numpy().reshape(4, 30).T)
    assert [scored.key[0] for scored in read_scores(tmp_path / "scores.parquet", "ours", "loss", "none")] == ["ours"]


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        (table().head(119), "expected each record once, and the same records for every target"),
        (table().with_columns(score=pl.when(pl.col("record") > 0).then("score")), "'score' has 4 empty cells"),
        (table().drop("member"), "no column 'member'"),
    ],
)
def test_what_is_wrong_with_them_is_named(tmp_path, spoilt, message):
    spoilt.write_parquet(tmp_path / "scores.parquet")
    with pytest.raises(UserError, match=message) as caught:
        list(read_scores(tmp_path / "scores.parquet"))
    assert "elete" not in str(caught.value)
