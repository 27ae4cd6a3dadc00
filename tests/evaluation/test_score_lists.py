"""Lists of in and out scores, as tools that audit DP with canaries have them."""

import numpy as np
import polars as pl
import pytest

from mia_audit.errors import UserError
from mia_audit.evaluation.epsilon_bounds import is_score_list, read_score_list

IN, OUT = [0.9, 0.4, 0.7], [0.1, 0.5]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("form", ["long", "wide"])
def test_both_forms_are_read(tmp_path, kind, form):
    path = tmp_path / f"scores.{kind}"
    frame = (
        pl.DataFrame({"member": [1, 1, 1, 0, 0], "score": IN + OUT})
        if form == "long"
        else pl.DataFrame({"in": IN, "out": [*OUT, None]})
    )
    frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
    assert is_score_list(path)
    found = read_score_list(path)
    assert found.score[:, 0].tolist() == IN + OUT and found.member[:, 0].tolist() == [True] * 3 + [False] * 2
    assert found.key == ("given", "scores", "none", False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", "the columns are a, b; expected the columns `member`"),
        ("member,score\n1,0.3\n", "no scores of non-members"),
        ("member,score\n2,0.3\n0,1\n", "memberships other than 0 and 1"),
        ("member,score\n1,high\n0,low\n", "column 'score' holds string, not numbers"),
        ("in,out\n1,NaN\n2,3\n", "not a finite number"),
        ("", "damaged or empty"),
        ("Score,score,member\n0.1,0.2,1\n0.3,0.4,0\n", "several columns are named 'score'"),
        ("score,score,member\n0.1,0.2,1\n0.3,0.4,0\n", "several columns are named 'score'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, content, message):
    (tmp_path / "s.csv").write_text(content)
    with pytest.raises(UserError, match=message):
        read_score_list(tmp_path / "s.csv")
    with pytest.raises(UserError, match="no such file"):
        read_score_list(tmp_path / "none.csv")


def test_numbers_may_get_decimals_after_hundreds_of_whole_ones_and_names_may_have_brackets(tmp_path):
    path = tmp_path / "s[1].csv"
    path.write_text("Member, Score \n" + "0,1\n" * 500 + "1,0.5\n")
    assert read_score_list(path).score[-2:, 0].tolist() == [1, 0.5]
    path = tmp_path / "s[1].parquet"
    pl.DataFrame({"member": [0, 1], "score": [1.0, 0.5]}).write_parquet(path)
    assert is_score_list(path) and len(read_score_list(path).score) == 2


def test_a_scores_table_is_no_list(tmp_path):
    names = ("attack", "signal", "likelihood")
    frame = pl.DataFrame({**{name: ["a"] for name in names}, "null_control": [False], "target": [0], "record": [0]})
    frame.with_columns(member=pl.lit(1), score=pl.lit(0.5)).write_parquet(tmp_path / "s.parquet")
    assert not is_score_list(tmp_path / "s.parquet")
    np.save(tmp_path / "s.npy", np.zeros(3))
    assert not is_score_list(tmp_path / "s.npy")
    (tmp_path / "lists").mkdir()
    pl.DataFrame({"member": [0, 1], "score": IN[:2]}).write_parquet(tmp_path / "lists" / "s.parquet")
    assert not is_score_list(tmp_path / "lists")
