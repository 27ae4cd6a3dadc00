"""Scores and lists of scores made by other tools, and means over targets with their intervals."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from mia_audit.errors import UserError
from mia_audit.evaluation.epsilon_bounds import is_score_list, read_score_list
from mia_audit.evaluation.files import read_scores, summarise


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


def metrics(aucs, tprs, attack="l1-lrt"):
    return pl.DataFrame(
        {
            "attack": attack,
            "signal": "ixg_l1",
            "likelihood": "pooled",
            "null_control": False,
            "target": range(len(aucs)),
            "members": 10,
            "non_members": 10,
            "unscored": 1,
            "auc": aucs,
            "auc_low": 0.0,
            "auc_high": 1.0,
            "balanced_accuracy": 0.6,
            "tpr_at_fpr_0.001": tprs,
            "tpr_at_fpr_0.001_low": 0.0,
            "tpr_at_fpr_0.001_high": 1.0,
        },
        schema_overrides={"tpr_at_fpr_0.001": pl.Float64},
    )


def test_the_interval_without_further_scorings_takes_what_targets_share_for_noise():
    aucs = [0.6, 0.65, 0.7, 0.61]
    row = summarise(metrics(aucs, [0.1] * 4), confidence=0.9).row(0, named=True)
    low, high = stats.t.interval(0.9, 3, np.mean(aucs), np.sqrt(2 * 3 / 2) * stats.sem(aucs))
    assert (row["targets"], row["auc_mean"], row["auc_sd"]) == (
        4,
        pytest.approx(np.mean(aucs)),
        pytest.approx(np.std(aucs, ddof=1)),
    )
    assert (row["auc_low"], row["auc_high"]) == pytest.approx((low, high))


def test_a_metric_that_one_target_cannot_resolve_is_null():
    row = summarise(metrics([0.6, 0.7], [0.1, None])).row(0, named=True)
    assert row["tpr_at_fpr_0.001_mean"] is None and row["tpr_at_fpr_0.001_high"] is None
    assert row["auc_mean"] == pytest.approx(0.65)


def test_one_target_has_its_own_interval_and_none_of_a_further_one():
    row = summarise(metrics([0.6], [0.1]).with_columns(auc_low=0.4, auc_high=0.7)).row(0, named=True)
    assert (row["auc_mean"], row["auc_sd"], row["auc_low"], row["auc_high"]) == (0.6, None, 0.4, 0.7)
    assert row["auc_future_low"] is None and row["p_above_guessing"] > 0.1


def test_rows_keep_their_order_and_intervals_stay_within_zero_and_one():
    table = summarise(pl.concat([metrics([0.5, 1.0], [0.0, 1.0], attack) for attack in ("threshold", "l1-lrt")]))
    assert table["attack"].to_list() == ["threshold", "l1-lrt"]
    assert table["auc_high"].max() == 1.0 and table["tpr_at_fpr_0.001_low"].min() == 0.0


def test_a_future_target_lies_in_a_wider_interval_and_guessing_is_tested():
    row = summarise(metrics([0.55, 0.56, 0.54, 0.57], [0.1] * 4)).row(0, named=True)
    assert row["auc_future_low"] < row["auc_low"] < row["auc_high"] < row["auc_future_high"]
    z = (0.555 - 0.5) / np.sqrt(2 * 21 / (12 * 100 * 4))
    assert row["p_above_guessing"] == pytest.approx(stats.norm.sf(z))
