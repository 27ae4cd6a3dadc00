"""Means over seeds: Student's interval over the seeds' means, never far below that of the targets."""

import math
from pathlib import Path

import polars as pl
import pytest

from mia_audit.report.findings import FLOOR, Estimate, mean_over_seeds
from mia_audit.report.over_seeds import OverSeeds, answer_over, tables_over_seeds, with_means
from mia_audit.report.spec import AuditedSetting, ReportedAudit
from mia_audit.storage import write_table


def one(mean: float, half: float = 0.01) -> Estimate:
    return Estimate(mean, math.nan, mean - half, mean + half, 9)


def test_the_interval_is_students_over_seeds() -> None:
    found = mean_over_seeds([one(0.6), one(0.7), one(0.65)], 0.95)
    assert (found.mean, found.targets) == (pytest.approx(0.65), 3)
    assert found.above == found.below == pytest.approx(4.302653 * 0.05 / math.sqrt(3))


def test_seeds_that_agree_by_chance_keep_the_uncertainty_of_their_targets() -> None:
    found = mean_over_seeds([one(0.6, 0.04), one(0.6, 0.03)], 0.95)
    assert found.above == pytest.approx(FLOOR * 0.05 / 2)


def test_one_seed_keeps_its_interval() -> None:
    found = mean_over_seeds([one(0.6)], 0.95)
    assert (found.mean, found.low, found.high, found.targets) == (0.6, 0.59, 0.61, 1)


def over(root: Path) -> OverSeeds:
    setting = AuditedSetting("d", "a", "none", "inf", "half")
    return OverSeeds(root, ReportedAudit(audit="a", settings=(setting,), title="A"), (3, 1))


def table(root: Path, seed: int, **values: object) -> None:
    named = {"dataset": "d", "architecture": "a", "mechanism": "none", "epsilon": "inf"}
    frame = pl.DataFrame({name: [value] for name, value in (named | values).items()})
    (root / f"seed-{seed}" / "tables").mkdir(parents=True)
    write_table(root / f"seed-{seed}" / "tables" / "settings.parquet", frame.to_arrow(), "settings", 1, {})


def test_a_table_has_a_row_per_seed_and_one_over_seeds(tmp_path: Path) -> None:
    shared = {"output_auc_sd": 0.1, "output_auc_low": 0.5, "output_auc_high": 0.9, "models": 9}
    table(tmp_path, 3, output_attack="lrt", output_auc_mean=0.9, epsilon_spent=7.9, epsilon_lower_bound=0.2, **shared)
    table(tmp_path, 1, output_attack="rmia", output_auc_mean=0.7, epsilon_spent=7.8, epsilon_lower_bound=0.1, **shared)
    frame = with_means(over(tmp_path), "settings")
    assert frame["seed"].to_list() == ["3", "1", "mean"] and frame["seeds"].to_list() == [1, 1, 2]
    mean = frame.row(-1, named=True)
    assert mean["output_auc_mean"] == pytest.approx(0.8) and mean["output_auc_sd"] == pytest.approx(math.sqrt(0.02))
    assert (mean["output_auc_low"], mean["output_auc_high"]) == (0.0, 1.0), "clipped to a rate's range"
    assert (mean["output_attack"], mean["models"], mean["epsilon_spent"]) == ("varies", 9, 7.9)
    assert mean["epsilon_lower_bound"] is None, "the mean of bounds is no bound"


def test_private_explanations_have_a_row_over_seeds(tmp_path: Path) -> None:
    """Their table is in CSV alone, and keys of a protocol may be empty."""
    spec = over(tmp_path).spec.model_copy(update={"studies": {"d": {}}})
    assert tables_over_seeds(spec) == ["settings", "summary", "differences", "private_explanations"]
    assert tables_over_seeds(spec.model_copy(update={"settings": ()})) == ["private_explanations"]
    for seed, (distance, loss) in {3: (0.2, 1.5), 1: (0.4, 1.0)}.items():
        (tmp_path / f"seed-{seed}" / "tables").mkdir(parents=True)
        rows = f"d,cnn,epsilon,non-adaptive,,1,{distance},0.1,0.6,\nd,cnn,epsilon,non-adaptive,sigma,1,,,,{loss}\n"
        head = (
            "dataset,black_box,experiment,protocol,as_published,epsilon,distance_mean,distance_low,distance_high,cost"
        )
        path = tmp_path / f"seed-{seed}" / "tables" / "private_explanations.csv"
        path.write_text(f"{head}\n{rows}", encoding="utf-8")
    ours, published = with_means(over(tmp_path), "private_explanations").filter(seed="mean").iter_rows(named=True)
    assert (ours["seeds"], ours["as_published"], published["as_published"]) == (2, None, "sigma")
    assert ours["distance_mean"] == pytest.approx(0.3) and ours["distance_low"] < 0.2
    assert published["distance_mean"] is None and published["cost"] is None, "costs differ and have no interval"


def answer(auc: float, caution: str) -> dict[str, object]:
    attack = {"attack": "lrt", "signal": "loss", "beats_guessing": True}
    outputs = attack | {"auc": {"mean": auc, "low": auc - 0.01, "high": auc + 0.01}}
    row = {
        "setting": "No protection",
        "epsilon": "inf",
        "attacks": {"outputs": outputs},
        "train_accuracy": None,
        "test_accuracy": None,
    }
    group = {
        "name": "d",
        "conclusion": "",
        "sentences": [],
        "members": "training records",
        "base_rate": auc,
        "rows": [row],
    }
    return {"title": "A", "confidence": 0.95, "fpr": 0.1, "cautions": [caution], "groups": [group]}


def test_the_answer_says_what_leaks_over_seeds_and_repeats_no_caution(tmp_path: Path) -> None:
    found = answer_over(over(tmp_path), [answer(0.6, "Accuracy 9.1 %."), answer(0.61, "Accuracy 8.7 %.")])
    row = found["groups"][0]["rows"][0]
    assert row["attacks"]["outputs"]["by_seed"] == {"3": 0.6, "1": 0.61}
    assert row["attacks"]["outputs"]["beats_guessing"] is True
    assert found["groups"][0]["base_rate"] == pytest.approx(0.605)
    assert [one.split(": ") for one in found["cautions"]] == [["With seed 3 (and with seed 1)", "Accuracy 9.1 %."]]
    several = answer(0.6, "eps1: 3 of 5.") | {"cautions": ["eps1: 3 of 5.", "eps1: 4 of 5.", "eps10: 3 of 5."]}
    assert answer_over(over(tmp_path), [several, several])["cautions"] == [
        "With seed 3 (and with seed 1): eps1: 3 of 5.",
        "With seed 3 (and with seed 1): eps10: 3 of 5.",
    ]
    assert "Over 2 seeds (3, 1)" in found["groups"][0]["conclusion"]
    far = answer_over(over(tmp_path), [answer(0.55, ""), answer(0.75, "")])["groups"][0]["rows"][0]
    assert far["attacks"]["outputs"]["beats_guessing"] is False, (
        "with two seeds, one apart from the other shows nothing"
    )
