"""An audit with several seeds: each is the audit of its seed alone, one more is added alone, and kills change no byte."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from mia_audit.cli import main
from mia_audit.seeds import folders_of_seeds

from .test_faults import contents

Copy = Callable[[dict[str, Any]], Any]
KILLS = 10
SPREAD = 360
"""Files and folders that the kills are spread over: fewer than the audit of two seeds creates."""
LINGER = 120.0
"""Seconds after which an orphaned worker would have ended by itself."""

OF_A_SEED = {
    **{"pool": 1, "membership": 1, "architecture": 1, "pretrain": 1, "train": 2 * 2, "signals": 2},
    **{"merge": 2, "attack": 2, "evaluate": 2, "explanation_metrics": 1},
    **{"report": 1, "manifest": 1},
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
def test_ten_kills_change_nothing_and_a_seed_is_added_alone(
    request: pytest.FixtureRequest, workflow: Any, tiny: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """A killed audit of two seeds has the bytes of a finished one of a seed to which the other was added."""
    workflow.configure(seeded(tiny, 0, 1))
    kill_and_finish(workflow)
    copy: Copy = request.getfixturevalue("copy_of_finished")  # only now: another worker may run it meanwhile
    grown = copy(seeded(tiny, 0, 1))
    move_below(grown.results, 0)
    weights = next(grown.results.glob("seed-0/digits/vit/none-epsinf/models/shadow-0/weights.safetensors"))
    before = weights.stat().st_ino, weights.stat().st_mtime_ns
    assert grown.planned() == OF_A_SEED | {"over_seeds": 1}
    result = grown.run()
    assert result.returncode == 0, result.stdout
    assert (weights.stat().st_ino, weights.stat().st_mtime_ns) == before
    for folder in folders_of_seeds(grown.results):
        killed = workflow.results / folder.name
        assert contents(killed) == contents(folder)
        for name in ("provenance.json", "SHA256SUMS", "report.html"):
            assert (killed / name).read_bytes() == (folder / name).read_bytes()
    assert contents(workflow.results) == contents(grown.results)
    assert [path for path in workflow.results.rglob("*") if path.name.endswith(".partial")] == []
    assert workflow.planned() == {}
    check_results(workflow.results)
    check_commands(workflow.results, capsys)


def entries(folder: Path) -> int:
    """Count files and folders, while other processes create and remove some."""
    return sum(len(folders) + len(files) for _, folders, files in os.walk(folder))


def group_of(process: "subprocess.Popen[bytes]", program: bytes = b"/mia-audit") -> list[int]:
    """List an orchestrator's living workers, orphans included; with an empty `program`, the shells that start them too."""
    members = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            session = int((folder / "stat").read_text().rpartition(") ")[2].split()[3])
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        if session == process.pid and any(word and word.endswith(program) for word in words):
            members.append(int(folder.name))
    return sorted(members)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_and_finish(workflow: Any) -> None:
    """Kill the orchestrator, a worker or both at seeded moments, and run again at once while orphaned workers may be alive."""
    chance = random.Random(0)
    started = []
    try:
        for number in range(KILLS):
            # new files, partial ones, logs and folders included
            moment = entries(workflow.results) + chance.randrange(1, 2 * SPREAD // KILLS)
            victims = chance.choice(["orchestrator", "worker", "all"])
            with (workflow.folder / f"log{number}").open("wb") as log:
                process = subprocess.Popen(
                    workflow.command(),
                    cwd=workflow.folder,
                    env=workflow.environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            started.append(process)
            while process.poll() is None and entries(workflow.results) < moment:
                time.sleep(0.02)
            workers = group_of(process)
            if victims != "orchestrator":
                for worker in workers if victims == "all" else workers[:1]:
                    kill(worker)
            if victims != "worker" or not workers:
                kill(process.pid)
            process.wait()
        result = workflow.run()
        deadline = time.monotonic() + LINGER
        while any(group_of(process, b"") for process in started) and time.monotonic() < deadline:
            time.sleep(0.1)  # an orphaned worker finishes its file and removes its temporary ones
    finally:
        for process in started:
            process.kill()  # not by its number, which another process may have by now
            for pid in group_of(process, b""):
                kill(pid)
    assert result.returncode == 0, result.stdout


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
