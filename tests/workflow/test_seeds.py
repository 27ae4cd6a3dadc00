"""An audit with several seeds: each is the audit of its seed alone, in a folder of its own, and one more is added alone."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from mia_audit.cli import main
from mia_audit.seeds import folders_of_seeds

from .test_faults import contents

Copy = Callable[[dict[str, Any]], Any]
OF_A_SEED = {
    **{"pool": 1, "membership": 1, "architecture": 1, "pretrain": 1, "train": 2 * 2, "signals": 2},
    **{"merge": 2, "attack": 2, "evaluate": 2, "explanation_metrics": 1},
    **{"tables": 1, "figures": 1, "report": 1, "manifest": 1},
}


def seeded(config: dict[str, Any], *seeds: int) -> dict[str, Any]:
    return config | {"seeds": list(seeds)}


def move_below(results: Path, seed: int) -> None:
    """Move everything in the results of one seed to the folder of that seed."""
    folder = results / f"seed-{seed}"
    folder.mkdir()
    for path in list(results.iterdir()):
        if path != folder:
            path.rename(folder / path.name)


def test_every_seed_is_a_whole_audit(workflow: Any, tiny: dict[str, Any]) -> None:
    workflow.configure(seeded(tiny, 3, 1))
    assert workflow.planned() == {rule: 2 * jobs for rule, jobs in OF_A_SEED.items()} | {"over_seeds": 1}


def test_a_seed_is_added_alone_to_a_finished_one(copy_of_finished: Copy, tiny: dict[str, Any]) -> None:
    copy = copy_of_finished(seeded(tiny, 0, 1))
    code, output = copy.dry_run()
    assert code == 1 and "results/tiny: holds an audit of one" in output and "Traceback" not in output
    move_below(copy.results, 0)
    assert copy.planned() == OF_A_SEED | {"over_seeds": 1}
    copy.configure(tiny)
    code, output = copy.dry_run()
    assert code == 1 and "results/tiny: holds seed-0" in output and "Traceback" not in output


@pytest.mark.slow
def test_two_seeds_survive_a_kill_and_are_those_of_audits_alone(
    finished: Any, workflow: Any, tiny: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    workflow.configure(seeded(tiny, 0, 1))
    trained = workflow.results / "seed-1" / "digits" / "vit" / "none-epsinf" / "models" / "shadow-1.parquet"
    with workflow.started() as process:
        workflow.wait_for_file(trained, process)
        os.killpg(process.pid, signal.SIGKILL)
    before = trained.stat().st_ino, trained.stat().st_mtime_ns
    result = workflow.run()
    assert result.returncode == 0, result.stdout
    assert (trained.stat().st_ino, trained.stat().st_mtime_ns) == before, "no model is trained again"
    assert contents(workflow.results / "seed-0") == contents(finished.results)
    for name in ("provenance.json", "SHA256SUMS", "report.html"):
        assert (workflow.results / "seed-0" / name).read_bytes() == (finished.results / name).read_bytes()
    assert workflow.planned() == {}
    check_results(workflow.results)
    workflow.configure(seeded(tiny, 0, 1, 2))
    assert workflow.planned() == OF_A_SEED | {"over_seeds": 1}
    check_commands(workflow.results, capsys)


def check_results(results: Path) -> None:
    """Check that means over seeds are those of the seeds' tables."""
    settings = pl.read_csv(results / "tables" / "settings.csv")
    alone = [pl.read_csv(folder / "tables" / "settings.csv") for folder in folders_of_seeds(results)]
    key = {"mechanism": "none"}
    expected = [frame.filter(**key)["output_auc_mean"].item() for frame in alone]
    assert settings.filter(**key)["seed"].to_list() == ["0", "1", "mean"]
    assert settings.filter(**key)["output_auc_mean"].to_list() == pytest.approx(
        [*expected, sum(expected) / 2], rel=1e-5
    )
    for name in ("summary", "differences"):
        frame = pl.read_csv(results / "tables" / f"{name}.csv")
        assert len(frame) == 3 * len(frame.filter(seed="mean")) > 0
    answer = json.loads((results / "answer.json").read_text())
    assert answer["seeds"] == [0, 1] and [len(group["rows"]) for group in answer["groups"]] == [2]
    assert 'href="seed-1/report.html"' in (results / "report.html").read_text()


def check_commands(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check the commands that take a folder of results."""
    assert main(["answer", str(results)]) == 0
    assert "Over 2 seeds (0, 1)" in capsys.readouterr().out
    assert main(["verify", str(results)]) == 0
    (policy := results.parent / "policy.yaml").write_text("auc: 0.9\n")
    assert main(["gate", str(results), "--policy", str(policy)]) == 2
    assert "several seeds; name the folder of one" in capsys.readouterr().err
    page = results / "seed-1" / "report.html"
    page.write_text(page.read_text() + " ")
    assert main(["verify", str(results)]) == 2
    assert "seed-1/report.html: changed" in capsys.readouterr().out
