"""The wrappers of sacct and sbatch, and the cancelling of an interrupted run's jobs."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.jobs import Job
from snakemake_interface_executor_plugins.executors.base import AbstractExecutor

from mia_audit.runtime.slurm import (
    cancel_jobs_of,
    node_memory,
    partition_has_gpus,
    put_first_on_path,
    run_mistakes_once,
)

OWN = Path(__file__).parents[2] / "workflow" / "profiles" / "slurm" / "bin"
THEIRS = """#!/bin/sh
echo "asked $*"
echo "7|CANCELLED by 1000"
echo "8|COMPLETED"
exit 3
"""


def test_the_state_of_a_cancelled_job_is_one_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sacct").write_text(THEIRS)
    (tmp_path / "sacct").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert put_first_on_path(OWN)
    assert put_first_on_path(OWN)
    assert os.environ["PATH"].split(":").count(str(OWN)) == 1
    result = subprocess.run(["sacct", "-X", "--name", "a b"], capture_output=True, text=True)
    assert result.stdout.splitlines() == ["asked -X --name a b", "7|CANCELLED", "8|COMPLETED"]
    assert result.returncode == 3


@pytest.mark.parametrize(
    ("message", "tries"),
    [("Unable to contact slurm controller (connect failure)", 3), ("Invalid account", 1), ("Socket timed out", 1)],
)
def test_sbatch_waits_only_for_a_controller_that_cannot_be_reached(tmp_path: Path, message: str, tries: int) -> None:
    sbatch = f"""#!/bin/sh
echo "$*" >>{tmp_path}/calls
if [ "$(wc -l <{tmp_path}/calls)" -lt 3 ]; then echo "sbatch: error: Batch job submission failed: {message}" >&2; exit 1; fi
echo 17
"""
    for name, text in {"sbatch": sbatch, "sleep": "#!/bin/sh\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    result = subprocess.run(
        [OWN / "sbatch", "--wrap", "a b"],
        env={"PATH": f"{OWN}:{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert (tmp_path / "calls").read_text().splitlines() == ["--wrap a b"] * tries
    assert (result.returncode, result.stdout) == ((0, "17\n") if tries == 3 else (1, ""))
    assert (message in result.stderr) == (tries == 1)


def test_without_slurm_the_path_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not put_first_on_path(OWN)
    assert os.environ["PATH"] == str(tmp_path)


RUN = "0b6b1a6e-4f5a-4b7a-9f5e-7c1c0a5d2e11"


def cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, executor: str = "slurm") -> list[str]:
    """Return the arguments that scancel is called with after a run with this log."""
    (tmp_path / "scancel").write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\n')
    (tmp_path / "scancel").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "log").write_text(text)
    cancel_jobs_of(tmp_path / "log", executor)
    calls = tmp_path / "calls"
    return calls.read_text().splitlines() if calls.exists() else []


@pytest.mark.parametrize("run", [RUN, f"prefix_{RUN}"])
def test_the_jobs_of_a_run_are_cancelled_by_the_name_in_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    text = f"Using shell: /usr/bin/bash\nSLURM run ID: {run}\nJob 3 has been submitted\nSLURM run ID: {RUN[::-1]}\n"
    assert cancelled(tmp_path, monkeypatch, text) == [f"--name={run}"]


@pytest.mark.parametrize(
    ("text", "executor"),
    [
        ("Building DAG of jobs...\n", "slurm"),
        (f"SLURM run ID: {RUN}\n", "local"),
        ("SLURM run ID: production\n", "slurm"),
        (f"config: SLURM run ID: {RUN}\n", "slurm"),
        (f"SLURM run ID: {RUN} production\n", "slurm"),
        (f"SLURM run ID: -u_root,{RUN}\n", "slurm"),
    ],
)
def test_what_a_config_makes_a_log_say_cancels_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, executor: str
) -> None:
    assert cancelled(tmp_path, monkeypatch, text, executor) == []


@pytest.mark.parametrize(
    ("partition", "expected"),
    [("gpu", True), ("cpu", False), ("", False), ("cpu,gpu", True), ("fpga", False), ("none", False), ("mixed", False)],
)
def test_a_partition_has_gpus_where_sinfo_lists_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition: str, expected: bool
) -> None:
    (tmp_path / "sinfo").write_text(
        "#!/bin/sh\necho 'cpu* (null)'\necho 'gpu gpu:a100:4(S:0-1)'\necho 'fpga fpga:2'\necho 'mixed gpu:2'\necho 'mixed (null)'\n"
    )
    (tmp_path / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert partition_has_gpus(partition) is expected


def test_without_an_answer_of_sinfo_no_gpu_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not partition_has_gpus("gpu")


def test_the_memory_of_the_largest_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sinfo").write_text("#!/bin/sh\nprintf '3000 \\n16000+\\n8000\\n'\n")
    (tmp_path / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert node_memory() == 16000
    (tmp_path / "sinfo").unlink()
    assert node_memory() is None


class OneJob:
    """A job of a rule with two retries."""

    rule = SimpleNamespace(restart_times=2)

    def __init__(self, log: list[str]) -> None:
        self.log = log


@pytest.mark.parametrize(
    ("log", "times"),
    [
        ("reading\nmia-audit: mine.py, line 6: AttributeError\n\n", 0),
        ("mia-audit: not enough memory: 3 GB\n", 2),
        ("mia-audit: interrupted\n", 2),
        ("mia-audit: a warning\nKilled\n", 2),
        ("", 2),
        (None, 2),
    ],
)
def test_a_job_that_a_mistake_ended_is_not_run_again(
    log: str | None, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Job, "restart_times", Job.restart_times)
    monkeypatch.setattr(AbstractExecutor, "report_job_error", AbstractExecutor.report_job_error)
    run_mistakes_once()
    if log is not None:
        (tmp_path / "job.log").write_text(log)
    job: Any = OneJob([str(tmp_path / "job.log")])
    assert Job.restart_times.fget(job) == times


@pytest.mark.parametrize(
    ("message", "times"),
    [("Invalid qos specification", 0), ("Socket timed out on send/recv operation", 2)],
)
def test_a_job_that_sbatch_refuses_is_not_submitted_again(
    message: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Job, "restart_times", Job.restart_times)
    monkeypatch.setattr(AbstractExecutor, "report_job_error", lambda *_, **__: None)
    run_mistakes_once()

    job: Any = OneJob([])
    executor, info = SimpleNamespace(), SimpleNamespace(job=job)
    said = f"SLURM sbatch failed. The error message was 'sbatch: error: Batch job submission failed: {message}'."
    reported: Any = AbstractExecutor.report_job_error
    reported(executor, info, msg=said)
    assert Job.restart_times.fget(job) == times
