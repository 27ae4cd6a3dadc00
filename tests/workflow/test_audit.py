"""The tiny audit from its pool to its report, and a user's mistakes in its config."""

from typing import Any

import polars as pl

from mia_audit.storage import table_metadata


def test_every_stage_writes_its_files(finished: Any) -> None:
    results = finished.results
    settings = ["digits/vit/none-epsinf", "digits/vit/dp-sgd-eps8"]
    for setting in settings:
        signals = pl.read_parquet(results / setting / "signals.parquet")
        assert len(signals) == 5 * 60
        assert signals.null_count().sum_horizontal().item() == 0
        training = pl.read_parquet(results / setting / "training.parquet")
        assert training["shadow"].unique().sort().to_list() == list(range(5))
        scores = pl.read_parquet(results / setting / "scores.parquet")
        assert scores["target"].unique().sort().to_list() == list(range(5))
    assert pl.read_parquet(results / settings[0] / "training.parquet")["epsilon"].is_infinite().all()
    spent = pl.read_parquet(results / settings[1] / "training.parquet").filter(pl.col("epoch") == 2)["epsilon"]
    assert ((spent > 7) & (spent <= 8)).all()
    measured = pl.read_parquet(results / "digits/vit/explanation_metrics.parquet")
    assert measured["shadow"].unique().sort().to_list() == [0, 1, 2, 3] and measured["record"].n_unique() == 6
    assert (results / "figures" / "explanations_digits_vit.svg").exists()
    assert (results / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_imported_signals_are_attacked_without_training(finished: Any, workflow: Any, tiny: dict[str, Any]) -> None:
    own = finished.results / "digits/vit/none-epsinf"
    after = {key: tiny[key] for key in ("audit", "attacks", "evaluation", "report")}
    workflow.configure(after | {"imported": {"digits": {"signals": str(own / "signals.parquet")}}})
    given = "digits/imported/imported-epsinf/scores.parquet"
    result = workflow.run(f"results/tiny/{given}")
    assert result.returncode == 0, result.stdout
    assert pl.read_parquet(workflow.results / given).equals(pl.read_parquet(own / "scores.parquet"))


def test_membership_is_shared_by_all_settings(finished: Any) -> None:
    columns = [
        pl.read_parquet(finished.results / "digits" / "vit" / name / "signals.parquet")["member"]
        for name in ("none-epsinf", "dp-sgd-eps8")
    ]
    assert columns[0].equals(columns[1])
    assert (
        table_metadata(finished.results / "pools" / "digits" / "membership.parquet", "membership")["design"] == "half"
    )


def test_a_wrong_config_is_refused_before_anything_runs(workflow: Any, tiny: dict[str, Any]) -> None:
    workflow.configure(tiny | {"explaners": {}})
    code, output = workflow.dry_run()
    assert code == 1
    assert "tiny.yaml: unknown key 'explaners': did you mean 'explainers'?" in output
    assert "Traceback" not in output
    assert not workflow.results.exists()


def test_a_key_that_is_given_twice_is_refused_before_its_last_value_counts(workflow: Any, tiny: dict[str, Any]) -> None:
    workflow.configure(tiny)
    with (workflow.folder / "tiny.yaml").open("a") as file:
        file.write("mechanisms: {none: {}}\n")
    code, output = workflow.dry_run()
    assert code == 1 and "the key 'mechanisms' is given twice" in output and "Traceback" not in output
