"""What `mia-audit check` says of machines that lack something, each lack injected."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from mia_audit.cli import main
from mia_audit.planning import machine
from mia_audit.planning.machine import CheckResult


def verdicts(findings: list[CheckResult]) -> dict[str, str]:
    return {finding.what: finding.verdict for finding in findings}


def answering(answers: dict[str, str]) -> machine.Ask:
    def ask(words: Sequence[str]) -> str | None:
        return answers.get(words[0])

    return ask


GPU = "NVIDIA H200, 143771 MiB, 570.1"


@pytest.mark.parametrize(
    ("smi", "torch_cuda", "problem", "wanted", "verdict", "says"),
    [
        (None, "13.0", None, "auto", "ok", "everything runs on the CPU"),
        (None, "13.0", None, "cuda", "fail", "but compute.device is cuda"),
        (GPU, None, None, "auto", "warn", "built without CUDA"),
        (GPU, "13.0", "driver too old", "auto", "warn", "built for CUDA 13.0, cannot use them (driver too old)"),
        (GPU, "13.0", "driver too old", "cuda:1", "fail", "update the driver"),
        (GPU, "13.0", None, "cuda", "ok", "NVIDIA H200"),
    ],
)
def test_gpus(
    smi: str | None, torch_cuda: str | None, problem: str | None, wanted: str, verdict: str, says: str
) -> None:
    (finding,) = machine.gpus(answering({"nvidia-smi": smi} if smi else {}), torch_cuda, lambda: problem, wanted, False)
    assert finding.verdict == verdict and says in finding.says


def test_slurm(tmp_path: Path) -> None:
    everywhere = {"sbatch": "/usr/bin/sbatch", "sacct": "/usr/bin/sacct"}
    profile = tmp_path / "slurm" / "config.yaml"
    profile.parent.mkdir()
    profile.write_text("default-resources: {slurm_partition: debug}\nset-resources: {train: {slurm_partition: gpus}}\n")
    assert machine.slurm_profile(tmp_path) == profile and machine.slurm_profile(profile.parent) is None
    assert list(machine.slurm(answering({}), everywhere.get, None)) == []

    def found(answers: dict[str, str]) -> list[CheckResult]:
        return list(machine.slurm(answering(answers), everywhere.get, profile))

    (none,) = machine.slurm(answering({}), lambda name: None, profile)
    assert none.verdict == "ok" and "jobs run on this machine" in none.says
    (silent,) = found({})
    assert silent.verdict == "warn" and "sinfo does not answer" in silent.says
    assert verdicts(found({"sinfo": "debug* down\ngpus down", "sacct": ""})) == {
        "slurm": "warn",
        "slurm accounts": "ok",
    }
    bare = found({"sinfo": "debug* up\ngpus up"})
    assert verdicts(bare) == {"slurm": "ok", "slurm accounts": "warn"} and "slurmdbd" in bare[1].says
    assert verdicts(found({"sinfo": "debug* up\ngpus up", "sacct": ""})) == {"slurm": "ok", "slurm accounts": "ok"}
    wrong = found({"sinfo": "debug* up\ngpu up", "sacct": ""})[0]
    assert wrong.verdict == "fail"
    assert wrong.says.startswith(f"{profile}: slurm_partition: no partition 'gpus': did you mean 'gpu'?")
    profile.write_text("default-resources: {slurm_account: Hospital, slurm_partition: debug}\n")
    up = {"sinfo": "debug* up", "sacct": ""}
    assert "fail" not in verdicts(found(up | {"sacctmgr": "  hospital\n  root"})).values()
    assert "fail" not in verdicts(found(up)).values(), "a cluster that does not list accounts"
    wrong = next(one for one in found(up | {"sacctmgr": "hospitals\nroot"}) if one.verdict == "fail")
    assert "slurm_account: no account 'Hospital'" in wrong.says and "did you mean 'hospitals'?" in wrong.says


def test_a_login_node_without_gpus_does_not_say_that_jobs_have_none() -> None:
    (finding,) = machine.gpus(answering({}), None, lambda: None, "cuda", True)
    assert finding.verdict == "ok" and "those of their partition" in finding.says


def test_a_command_that_fails_or_is_missing_is_silence() -> None:
    assert machine.ask(["false"]) is None
    assert machine.ask(["no-such-command-anywhere"]) is None
    assert machine.ask(["echo", "up"]) == "up"


@pytest.mark.parametrize(("needed", "verdict"), [(40, "ok"), (70, "warn"), (101, "fail")])
def test_disk_is_compared_with_the_plan(tmp_path: Path, needed: int, verdict: str) -> None:
    finding = machine.disk(tmp_path / "results", needed, lambda path: (200, 100, 100))
    assert finding.verdict == verdict


def test_memory_is_compared_with_the_plan() -> None:
    assert "3 at a time" in machine.memory(10**9, 35 * 10**8).says
    assert machine.memory(10**9, 10**8).verdict == "fail"


def test_a_file_system_that_works_is_left_as_it_was(tmp_path: Path) -> None:
    findings = list(machine.file_system(tmp_path / "results" / "deep"))
    assert verdicts(findings) == {"file system": "ok", "clock": "ok"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("ahead", "verdict"), [(0, "ok"), (-100, "fail"), (100, "fail")])
def test_a_file_system_whose_clock_differs_is_not_one_that_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int, verdict: str
) -> None:
    now = [1.8e9]

    def touch(path: Path) -> None:
        now[0] += 30
        path.write_bytes(b"")
        os.utime(path, (now[0] + ahead, now[0] + ahead))
        now[0] += 30

    monkeypatch.setattr(machine.time, "time", lambda: now[0])
    monkeypatch.setattr(Path, "touch", touch)
    assert verdicts(list(machine.file_system(tmp_path)))["clock"] == verdict


def test_a_file_system_that_does_not_lock_or_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcntl.flock", lambda *_: None)
    assert "locks (flock) do not work" in next(machine.file_system(tmp_path)).says

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    (finding,) = machine.file_system(tmp_path)
    assert finding.verdict == "fail" and "Permission denied" in finding.says


def test_clocks() -> None:
    assert machine.clock(0.1, 1.8e9).verdict == "ok"
    assert "differ by +60 s" in machine.clock(60.0, 1.8e9).says
    assert "1970-01-01" in machine.clock(0.0, 0.0).says


def test_check_says_what_would_stop_an_audit_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "ask", lambda words: None)
    monkeypatch.setattr(machine, "cannot_use_cuda", lambda: None)
    config = tmp_path / "c.yaml"
    config.write_text("audit: c\ndatasets: {breast_cancer: {}}\narchitectures: {mlp: {}}\nmechanisms: {none: {}}\n")
    assert main(["check", str(config)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{config}: plain YAML, follows") and said.endswith("names no file of data\n")
    monkeypatch.setattr("mia_audit.commands.before.available_memory", lambda: 1)
    assert main(["check", str(config)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"mia-audit: {config}: memory: ") and said.count("\n") == 1
