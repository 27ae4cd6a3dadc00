"""Two pretended GPUs shared by local jobs: both are used, and jobs that wait for one hold no core."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from mia_audit.runtime.machine import VISIBLE

NVIDIA_SMI = """#!/bin/sh
echo 0; echo 1
"""

TIMELINE = """#!/bin/sh
say() {{ echo "$(date +%s.%N) $1 $2" >>"{folder}/timeline"; }}
wait_for() {{ n=0; while ! grep -q "$1" "{folder}/timeline"; do n=$((n + 1)); [ $n -lt 3000 ] || exit 1; sleep 0.1; done; }}
say start "$1"
case "$1" in
  attack) n=0; until [ "$(grep -c 'start train' "{folder}/timeline")" -ge 2 ]; do sleep 0.1; done ;;
  train) wait_for "end evaluate" ;;
esac
env PATH="{rest}" mia-audit "$@"; code=$?
say end "$1"
exit $code
"""
"""A wrapper of mia-audit that writes when stages start and end: an attack waits for two trainings to start, trainings for its end."""

Event = tuple[float, str, str]


def events(folder: Path) -> list[Event]:
    rows = (line.split() for line in (folder / "timeline").read_text().splitlines())
    return sorted((float(time), what, stage) for time, what, stage in rows)


def running(timeline: list[Event], stage: str) -> list[tuple[float, int]]:
    """Return how many jobs of a stage run from when on."""
    counts, now = [], 0
    for time, what, name in timeline:
        if name == stage:
            now += 1 if what == "start" else -1
            counts.append((time, now))
    return counts


@pytest.mark.slow
def test_two_gpus_are_shared_and_leave_the_other_cores_to_attacks(
    finished: Any, workflow: Any, tiny: dict[str, Any]
) -> None:
    shutil.copy(finished.results / "digits" / "vit" / "none-epsinf" / "signals.parquet", workflow.folder)
    compute = tiny["compute"] | {"shadows_per_job": 1}
    imported = {"theirs": {"signals": "signals.parquet"}}
    workflow.configure(tiny | {"mechanisms": {"none": {}}, "imported": imported, "compute": compute})
    workflow.environment.pop(VISIBLE, None)
    workflow.wrap("nvidia-smi", NVIDIA_SMI)
    workflow.wrap("mia-audit", TIMELINE)
    locks = workflow.folder / "locks"
    locks.mkdir()
    workflow.environment["XDG_RUNTIME_DIR"] = str(locks)
    workflow.options = ("--cores", "4")
    results = "results/tiny"
    attacked, trained = f"{results}/theirs/imported/imported-epsinf/metrics.parquet", "digits/vit/none-epsinf"
    stamps = [f"{results}/{trained}/models/.jobs/{model:03d}-{model:03d}" for model in range(5)]
    result = workflow.run(attacked, *stamps)
    assert result.returncode == 0, result.stdout
    timeline = events(workflow.folder)
    trainings = running(timeline, "train")
    evaluated = next(time for time, what, stage in timeline if (what, stage) == ("end", "evaluate"))
    held = [count for time, count in trainings if time < evaluated]
    assert len(trainings) == 2 * 5
    assert held == [1, 2], "a third training would hold a core while it waits for a GPU"
    assert max(count for _, count in trainings) == 2
    taken = {path.name for path in locks.rglob("gpu-*.lock")}
    assert taken == {"gpu-0.lock", "gpu-1.lock"}
