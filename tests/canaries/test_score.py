"""Scores of canaries: from outputs, from what somebody brings, and from a model that is asked; and their bounds on ε."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from mia_audit.canaries.draw import Coins, DrawnCanaries, confidence, read_asked, read_coins, scored, write_records
from mia_audit.cli import main
from mia_audit.errors import UserError


def outputs(out: Path, sure: float) -> np.ndarray:
    """Logits that give the labels of canaries in the training set `sure` more."""
    asked, coins = read_asked(out), read_coins(out)
    logits = np.random.default_rng(0).normal(size=(len(asked.labels), 3))
    logits[np.arange(len(asked.labels)), asked.labels] += sure * coins.member
    return logits


def score(out: Path, folder: Path, *words: str) -> int:
    return main(["canaries", "score", "--canaries", str(out), *words, "--out", str(folder / "scores.csv")])


def test_logits_and_their_probabilities_score_alike(made: tuple[Path, DrawnCanaries]) -> None:
    logits, labels = outputs(made[0], 3.0), read_asked(made[0]).labels
    exponentials = np.exp(logits)
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    assert np.allclose(confidence(probabilities, labels, ""), confidence(logits, labels, ""))
    chosen = probabilities[np.arange(len(labels)), labels]
    assert np.allclose(confidence(logits, labels, ""), np.log(chosen / (1 - chosen)))


def test_small_logits_of_a_model_are_logits_and_given_ones_may_be_a_sigmoids(
    made: tuple[Path, DrawnCanaries], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A narrow network on unscaled records answers between 0 and 1; where a file does, its owner is asked."""
    labels = read_asked(made[0]).labels
    small = np.random.default_rng(0).uniform(size=(len(labels), 3))
    assert np.allclose(confidence(small, labels, ""), confidence(small - 1, labels, ""))
    np.save(tmp_path / "outputs.npy", small)
    assert score(made[0], tmp_path, "--outputs", str(tmp_path / "outputs.npy")) == 2
    assert "values are a sigmoid" in capsys.readouterr().err


def test_scores_are_ranks_within_a_kind() -> None:
    coins = Coins(np.array(["a", "b", "a", "b"]), np.array([True, False, False, True]), "")
    table = scored(np.array([5.0, 1.0, 4.0, 2.0]), coins)
    assert table["score"].to_list() == [0.75, 0.25, 0.25, 0.75]
    assert table["member"].to_list() == [1, 0, 0, 1]
    assert scored(np.zeros(4), coins, ["b"])["canary"].to_list() == [1, 3]
    with pytest.raises(UserError, match="no canary of that kind"):
        scored(np.zeros(4), coins, ["c"])


def test_from_outputs_to_a_bound(made: tuple[Path, DrawnCanaries], tmp_path: Path) -> None:
    np.save(tmp_path / "outputs.npy", outputs(made[0], 20.0))
    assert score(made[0], tmp_path, "--outputs", str(tmp_path / "outputs.npy")) == 0
    words = ["--scores", str(tmp_path / "scores.csv"), "--design", "bernoulli", "--out", str(tmp_path / "epsilon.csv")]
    assert main(["epsilon-bound", *words]) == 0
    bounds = {row["method"]: row["epsilon"] for row in pl.read_csv(tmp_path / "epsilon.csv").iter_rows(named=True)}
    assert bounds["one-run"] > 1
    assert bounds["one-run-f-dp"] > 1


def test_scores_of_ones_own_are_joined_with_the_coins(made: tuple[Path, DrawnCanaries], tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=80)
    order = np.random.default_rng(2).permutation(80)
    pl.DataFrame({"score": values[order], "canary": order}).write_csv(tmp_path / "own.csv")
    assert score(made[0], tmp_path, "--scores", str(tmp_path / "own.csv")) == 0
    table, coins = pl.read_csv(tmp_path / "scores.csv"), read_coins(made[0])
    assert table["member"].to_list() == coins.member.astype(int).tolist()
    for name in np.unique(coins.kind):
        inside = coins.kind == name
        assert (np.argsort(table["score"].to_numpy()[inside]) == np.argsort(values[inside])).all()


GIVEN = {
    "canary,score\n0,1\n": "1 rows, with missing, repeated or unknown canaries",
    "canary,skore\n0,1\n": "no column 'score': did you mean 'skore'?",
    "canary,score\n" + "".join(f"{k},x\n" for k in range(80)): "column 'score' holds text",
    "canary,score\n" + "".join(f"{k},inf\n" for k in range(80)): "a score is not finite",
    "": "not a CSV file",
}


@pytest.mark.parametrize("text", GIVEN, ids=list(map(str, range(len(GIVEN)))))
def test_a_mistake_in_scores_is_one_line(
    made: tuple[Path, DrawnCanaries], tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "own.csv").write_text(text)
    assert score(made[0], tmp_path, "--scores", str(tmp_path / "own.csv")) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert GIVEN[text] in error


def test_outputs_that_are_not_of_the_canaries_are_one_line(
    made: tuple[Path, DrawnCanaries], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "outputs.npy", np.zeros((79, 3)))
    assert score(made[0], tmp_path, "--outputs", str(tmp_path / "outputs.npy")) == 2
    assert "one row for each of the 80 canaries" in capsys.readouterr().err
    assert score(made[0], tmp_path, "--model", str(tmp_path)) == 2
    assert "add --architecture" in capsys.readouterr().err
    assert score(tmp_path, tmp_path, "--outputs", str(tmp_path / "outputs.npy")) == 2
    assert "coins.parquet: no such file" in capsys.readouterr().err


def test_coins_of_other_canaries_are_refused(made: tuple[Path, DrawnCanaries], tmp_path: Path) -> None:
    asked = read_asked(made[0])
    write_records(tmp_path / "ask", np.asarray(asked.data)[::-1], asked.labels, asked.metadata)
    with pytest.raises(UserError, match="does not match the auditor's"):
        read_asked(tmp_path, read_coins(made[0]))


def test_a_stored_estimator_is_asked(made: tuple[Path, DrawnCanaries], tmp_path: Path) -> None:
    from mia_audit.learners.protocol import Compute, ModelSection, learner_named, open_learner
    from mia_audit.pools.store import read_records
    from mia_audit.storage import write_json

    out = made[0]
    trained = read_records(out / "train")
    section = ModelSection("tree", "sklearn.tree:DecisionTreeClassifier")
    write_json(tmp_path / "architecture.json", learner_named("estimator").describe(section, trained.metadata))
    _, learner = open_learner(tmp_path / "architecture.json", Compute())
    model = learner.train(_task(trained))
    (tmp_path / "model").mkdir()
    model.save(tmp_path / "model")
    words = ["--model", str(tmp_path / "model"), "--architecture", str(tmp_path / "architecture.json")]
    assert score(out, tmp_path, *words, "--kinds", "mislabelled", "noise") == 0
    table = pl.read_csv(tmp_path / "scores.csv")
    inside, outside = (table.filter(member=one)["score"].mean() for one in (1, 0))
    assert len(table) == 40
    assert inside > outside + 0.2  # type: ignore[operator]


def _task(trained: object) -> object:
    from mia_audit.privacy.catalogue import Mechanism
    from mia_audit.training.section import Training
    from mia_audit.training.task import Records, TrainingTask

    records = Records.from_stored(trained)  # type: ignore[arg-type]
    members = np.ones(len(records), dtype=bool)
    return TrainingTask(
        records=records,
        members=members,
        training=Training(),
        mechanism=Mechanism(mechanism="none"),
        epsilon=float("inf"),
        key=("canaries",),
    )
