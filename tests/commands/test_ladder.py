"""`mia-audit ladder`: rung by rung until the answer is narrow enough, and finished there. The workflow is a stand-in."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import yaml

from mia_audit.cli import main
from mia_audit.config.load import check_audit
from mia_audit.errors import UserError
from mia_audit.evaluation.rungs import read_rungs
from mia_audit.storage import write_table

CONFIG: dict[str, Any] = {
    "audit": "small",
    "datasets": {"toy": {"source": "breast_cancer"}},
    "membership": {"models": 33, "design": "bernoulli"},
    "until": {"auc": 0.025},
    "architectures": {"net": {"model": "mlp"}},
    "training": {"epochs": 1},
    "mechanisms": {"none": {}},
    "explainers": {"methods": ["ixg"]},
    "evaluation": {"fprs": [0.1]},
}
SETTING = Path("results/small/toy/net/none-epsinf")


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, list[str]]]:
    """Calls of the workflow, as the number of models and the words before --config; its results are written."""
    monkeypatch.chdir(tmp_path)
    found: list[tuple[int, list[str]]] = []

    def run(config: Path, cores: int, words: list[str], checkout: Path) -> int:
        values = dict(word.split("=", 1) for word in words[words.index("--config") + 1 :])
        models = json.loads(values["membership"])["models"]
        assert json.loads(values["membership"])["design"] == "bernoulli"
        targets = words[: words.index("--config")]
        found.append((models, targets))
        if first := re.search(r"/000-00(\d)$", targets[0]):
            trained = int(first[1]) + 1
            assert json.loads(values["compute"])["shadows_per_job"] == trained
            first_models(trained)
        elif targets[0].endswith("metrics.parquet"):
            used("train", 3.0 * models)
            used("attack", 1.0 * models)
            auc = 0.6 + 0.02 * np.random.default_rng(models).normal(size=models)
            table = pl.DataFrame({"target": range(models), "auc": auc}).with_columns(
                attack=pl.lit("loss-lira"), signal=pl.lit("confidence"), likelihood=pl.lit("pooled"),
                null_control=False, members=100, non_members=100,
            )  # fmt: skip
            write_table(SETTING / "metrics.parquet", table.to_arrow(), "metrics", models)
        return 0

    monkeypatch.setattr("mia_audit.commands.run.start", run)
    return found


def used(rule: str, seconds: float) -> None:
    """Leave the times of a job."""
    path = Path(f"results/small/benchmarks/{rule}/toy-net-none-epsinf.tsv")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"seconds\n{seconds}\n")
    (SETTING / "models").mkdir(parents=True, exist_ok=True)
    for shadow in range(int(seconds / 3) if rule == "train" else 0):
        (SETTING / "models" / f"shadow-{shadow}.parquet").touch()


def first_models(count: int) -> None:
    """A pool of 400 records, and losses of the first models that are lower for their members."""
    from mia_audit.pools.membership import draw_columns
    from mia_audit.pools.section import Draw

    pool, random = Path("results/small/pools/toy"), np.random.default_rng(0)
    pool.mkdir(parents=True, exist_ok=True)
    np.save(pool / "records.npy", random.normal(size=(400, 3)).astype(np.float32))
    metadata = {"name": "toy", "kind": "table", "shape": [3], "classes": ["a", "b"], "features": list("xyz")}
    labels = np.arange(400, dtype=np.int32) % 2
    write_table(
        pool / "records.parquet",
        pa.table({"record": np.arange(400, dtype=np.int32), "label": labels}),
        "records",
        400,
        metadata,
    )
    member = draw_columns(Draw(design="bernoulli"), 400, "toy", 0, range(count))
    for shadow, inside in enumerate(member.T):
        loss = (random.exponential(size=400) + 1.1 - inside).astype(np.float32)
        columns = {
            "shadow": np.full(400, shadow, np.int32),
            "record": np.arange(400, dtype=np.int32),
            "label": labels,
            "loss": loss,
            "confidence": -np.log(np.expm1(loss)),
        }
        write_table(SETTING / "signals" / "gradient" / f"shadow-{shadow}.parquet", pa.table(columns), "signals", 400)


def ladder(config: dict[str, Any], *words: str) -> int:
    Path("small.yaml").write_text(yaml.safe_dump(config))
    return main(["ladder", "small.yaml", *words])


def test_it_stops_where_the_interval_is_narrow_and_finishes_the_audit_there(
    calls: list[tuple[int, list[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ladder(CONFIG) == 0
    assert [models for models, _ in calls] == [5, 5, 5, 9, 17, 17]
    assert [targets[0][-7:] for _, targets in calls[:2]] == ["000-000", "000-002"]
    assert calls[-1][1] == ["--forcerun", "manifest"]
    said = capsys.readouterr().out
    assert "one threshold on the loss: TPR at 0.1 is" in said and "leaks: members are recognised" in said
    assert "Rung 1 of 5: one model, and 2 others as references" in said and "of records that it scores is" in said
    assert "Rung 4 of 5: 17 models" in said and "Every interval is as narrow as requested" in said
    assert "Next: 2 more models per setting\n" in said, "no job has left its times yet"
    assert "Next: 4 more models per setting, about 21 s of one process" in said, (
        "3 a model, and attacks on 9 instead of 5"
    )
    assert "set membership.models: 17 in small.yaml" in said
    rows = read_rungs(Path("results/small/ladder.csv"))
    assert rows["models"].to_list() == [1, 1, 3, 3, 3, 5, 9, 17]
    assert rows.filter(models=17)["low"][0] < 0.6 < rows.filter(models=17)["high"][0]
    screened = rows.filter(models=3)
    assert screened["attack"].to_list() == ["base", "rmia-offline", "loss-lira-offline"]
    assert screened["scored"][0] == 1 and 0.7 < screened["scored"][1] < 0.85
    assert rows["decision"].to_list()[-3:] == ["wider than requested", "wider than requested", "as narrow as requested"]
    assert rows.filter(models=5).select("requested", "more", "seconds").row(0) == (0.025, 4, 21.0)
    assert rows.filter(models=17)["more"].to_list() == [None]


def test_without_an_aim_it_goes_on_to_the_last_rung(calls: list[tuple[int, list[str]]]) -> None:
    assert ladder(CONFIG | {"until": {}, "ladder": [10]}, "--records-per-second", "1000") == 0
    assert [models for models, _ in calls] == [11, 11, 33, 33]
    prices = read_rungs(Path("results/small/ladder.csv")).unique("models").sort("models")["seconds"].to_list()
    assert 0 < prices[0] < prices[1] and prices[2] is None


def test_persons_are_not_screened(calls: list[tuple[int, list[str]]], capsys: pytest.CaptureFixture[str]) -> None:
    toy = {"source": "randhie", "person": "zper"}
    assert ladder(CONFIG | {"datasets": {"toy": toy}, "ladder": [2, 4]}) == 0
    assert [models for models, _ in calls] == [5, 33, 33] and "Rung 1 of 2: 5 models" in capsys.readouterr().out


def test_settings_with_fewer_models_cannot_climb(
    calls: list[tuple[int, list[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ladder(CONFIG | {"mechanisms": {"none": {}, "dp-sgd": {"epsilon": [8], "models": 9}}}) == 2
    assert not calls and "mechanisms.dp-sgd.models: a ladder adds the same number of models" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"until": {"tpr_at_0.01": 0.1}}, r"until: unknown metric 'tpr_at_0.01'"),
        ({"until": {"auc": 0}}, "until.auc"),
        ({"ladder": [0]}, r"ladder.*greater than 0"),
    ],
)
def test_a_ladder_that_cannot_be(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_audit(CONFIG | change, "small.yaml")
