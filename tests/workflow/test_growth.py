"""An audit grows: only new models are trained, and the end is byte for byte that of an audit begun large."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from mia_audit.storage import read_frame

from .test_faults import contents

FIVE = (0, 1, 2, 3, 4)
Copy = Callable[[dict[str, Any]], Any]
AFTER = {"merge": 2, "attack": 2, "evaluate": 2, "report": 1, "manifest": 1}
MORE = {"explanation_metrics": 1, **AFTER}


def identities(models: Path) -> dict[str, tuple[int, int]]:
    """Return inode and time of every model's files and table."""
    files = [path for path in models.glob("shadow-*/**/*") if path.is_file()] + [*models.glob("shadow-*.parquet")]
    found = {path: path.stat() for path in files}
    return {path.relative_to(models).as_posix(): (stat.st_ino, stat.st_mtime_ns) for path, stat in found.items()}


def test_more_models_plan_the_last_job_and_new_ones_alone(copy_of_finished: Copy, tiny: dict[str, Any]) -> None:
    """Of 5 models in jobs of 3, the second job gets one more, and a third job two."""
    copy = copy_of_finished(tiny | {"membership": {"models": 8}})
    assert copy.planned() == {"membership": 1, "train": 2 * 2, "signals": 2 * 2, **MORE}
    copy.configure(tiny | {"membership": {"models": 6}})
    assert copy.planned() == {"membership": 1, "train": 2, "signals": 2, **MORE}


def test_a_mechanism_keeps_its_number_of_models_while_the_others_grow(
    copy_of_finished: Copy, tiny: dict[str, Any]
) -> None:
    private = tiny["mechanisms"]["dp-sgd"] | {"models": 5}
    copy = copy_of_finished(
        tiny | {"membership": {"models": 6}, "mechanisms": tiny["mechanisms"] | {"dp-sgd": private}}
    )
    assert copy.planned() == {"membership": 1, "train": 1, "signals": 1, **MORE}


@pytest.mark.slow
def test_settings_with_different_numbers_of_models_end_in_one_report(
    copy_of_finished: Copy, tiny: dict[str, Any]
) -> None:
    private = tiny["mechanisms"]["dp-sgd"] | {"models": 4}
    copy = copy_of_finished(tiny | {"mechanisms": tiny["mechanisms"] | {"dp-sgd": private}})
    setting = copy.results / "digits" / "vit"
    trained = identities(setting / "dp-sgd-eps8" / "models")
    result = copy.run()
    assert result.returncode == 0, result.stdout[-3000:]
    numbers = {
        name: read_frame(setting / name / "metrics.parquet", "metrics")["target"].unique().sort().to_list()
        for name in ("none-epsinf", "dp-sgd-eps8")
    }
    assert numbers == {"none-epsinf": [0, 1, 2, 3, 4], "dp-sgd-eps8": [0, 1, 2, 3]}
    assert trained.items() >= identities(setting / "dp-sgd-eps8" / "models").items(), "no model is trained again"
    settings = pl.read_csv(copy.results / "tables" / "settings.csv")
    assert sorted(settings["models"].to_list()) == [1, 4, 5], "the public start is one model"
    assert (copy.results / "report.html").exists()


def test_another_design_trains_every_model_again(copy_of_finished: Copy, tiny: dict[str, Any]) -> None:
    copy = copy_of_finished(tiny | {"membership": {"models": 5, "design": "bernoulli"}})
    assert copy.planned()["train"] == 2 * 2
    copy.configure(tiny | {"membership": {"models": 8}, "training": tiny["training"] | {"epochs": 3}})
    assert copy.planned()["train"] == 2 * 3, "more models hide no other change"


def test_models_that_fit_no_machine_are_refused_before_any_job(copy_of_finished: Copy, tiny: dict[str, Any]) -> None:
    copy = copy_of_finished(tiny | {"membership": {"models": 6}, "compute": tiny["compute"] | {"memory_mb": 600}})
    result = copy.run()
    assert result.returncode == 1
    assert "vit: training under dp-sgd takes about 70" in result.stdout
    assert "600 MB: no compute.micro_batch is small" in result.stdout
    assert "Traceback" not in result.stdout and "rule membership" not in result.stdout


@pytest.mark.slow
def test_an_audit_that_grew_is_the_one_begun_large(finished: Any, workflow: Any, tiny: dict[str, Any]) -> None:
    models = workflow.results / "digits" / "vit" / "none-epsinf" / "models"
    workflow.configure(tiny | {"membership": {"models": 4}, "mechanisms": {"none": {}}})
    result = workflow.run("results/tiny/digits/vit/none-epsinf/training.parquet")
    assert result.returncode == 0, result.stdout
    before = identities(models)
    assert len(before) == 2 * 4
    workflow.configure(tiny)  # one model more, and a mechanism
    result = workflow.run("results/tiny/digits/vit/none-epsinf/metrics.parquet")
    assert result.returncode == 0, result.stdout
    after = identities(models)
    assert before.items() <= after.items() and len(after) == 2 * 5
    log = workflow.results / "logs" / "train" / "digits-vit-none-epsinf-003-004.log"
    assert "shadow 3 of 3-4: already trained" in log.read_text()
    grown, large = (
        {name: data for name, data in contents(audit.results).items() if name.startswith(("pools", "digits/vit/none"))}
        for audit in (workflow, finished)
    )
    assert len(grown) > 20 and grown == large
