"""`mia-audit doctor` on machines that lack something, each lack injected."""

import os
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from mia_audit.cli import main
from mia_audit.planning import doctor
from mia_audit.planning.doctor import Finding

ROOT = Path(__file__).parents[2]


def verdicts(findings: list[Finding]) -> dict[str, str]:
    return {finding.what: finding.verdict for finding in findings}


@pytest.mark.parametrize(
    ("installed", "verdict", "says"),
    [
        ({"torch": "2.13.0+cpu", "numpy": "2.1.0"}, "ok", "all 2 as locked"),
        ({"torch": "2.12.0", "numpy": "2.1.0"}, "warn", "torch 2.12.0 instead of 2.13.0"),
        ({"numpy": "2.1.0"}, "fail", "missing: torch: pip install --requirement"),
    ],
)
def test_versions_are_compared_with_the_lock(
    tmp_path: Path, installed: dict[str, str], verdict: str, says: str
) -> None:
    def version(name: str) -> str:
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    lock = tmp_path / "requirements.lock"
    lock.write_text("# written by make lock\nnumpy==2.1.0\ntorch==2.13.0\n")
    packages = next(finding for finding in doctor.versions(lock, version) if finding.what == "packages")
    assert packages.verdict == verdict and says in packages.says


def test_the_real_lock_is_read() -> None:
    assert verdicts(list(doctor.versions(ROOT / "envs" / "requirements.lock")))["packages"] in ("ok", "warn")


def answering(answers: dict[str, str]) -> doctor.Ask:
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
    (finding,) = doctor.gpus(answering({"nvidia-smi": smi} if smi else {}), torch_cuda, lambda: problem, wanted)
    assert finding.verdict == verdict and says in finding.says


def test_slurm() -> None:
    everywhere = {"sbatch": "/usr/bin/sbatch", "sacct": "/usr/bin/sacct"}
    (none,) = doctor.slurm(answering({}), lambda name: None)
    assert none.verdict == "ok" and "jobs run on this machine" in none.says
    (silent,) = doctor.slurm(answering({}), everywhere.get)
    assert silent.verdict == "warn" and "sinfo does not answer" in silent.says
    down = list(doctor.slurm(answering({"sinfo": "debug* down", "sacct": ""}), everywhere.get))
    assert verdicts(down) == {"slurm": "warn", "slurm accounts": "ok"}
    bare = list(doctor.slurm(answering({"sinfo": "debug* up"}), everywhere.get))
    assert verdicts(bare) == {"slurm": "ok", "slurm accounts": "warn"} and "slurmdbd" in bare[1].says
    whole = list(doctor.slurm(answering({"sinfo": "debug* up", "sacct": ""}), everywhere.get))
    assert verdicts(whole) == {"slurm": "ok", "slurm accounts": "ok"}


def test_a_command_that_fails_or_is_missing_is_silence() -> None:
    assert doctor.ask(["false"]) is None
    assert doctor.ask(["no-such-command-anywhere"]) is None
    assert doctor.ask(["echo", "up"]) == "up"


@pytest.mark.parametrize(("needed", "verdict"), [(None, "ok"), (40, "ok"), (70, "warn"), (101, "fail")])
def test_disk_is_compared_with_the_plan(tmp_path: Path, needed: int | None, verdict: str) -> None:
    finding = doctor.disk(tmp_path / "results", needed, lambda path: (200, 100, 100))
    assert finding.verdict == verdict


def test_memory_is_compared_with_the_plan() -> None:
    assert "3 at a time" in doctor.memory(10**9, 35 * 10**8).says
    assert doctor.memory(10**9, 10**8).verdict == "fail"
    assert doctor.memory(None, 10**8).verdict == "ok"


def test_a_file_system_that_works_is_left_as_it_was(tmp_path: Path) -> None:
    findings = list(doctor.file_system(tmp_path / "results" / "deep"))
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

    monkeypatch.setattr(doctor.time, "time", lambda: now[0])
    monkeypatch.setattr(Path, "touch", touch)
    assert verdicts(list(doctor.file_system(tmp_path)))["clock"] == verdict


def test_a_file_system_that_does_not_lock_or_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcntl.flock", lambda *_: None)
    assert "locks (flock) do not work" in next(doctor.file_system(tmp_path)).says

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    (finding,) = doctor.file_system(tmp_path)
    assert finding.verdict == "fail" and "Permission denied" in finding.says


def test_clocks() -> None:
    assert doctor.clock(0.1, 1.8e9).verdict == "ok"
    assert "differ by +60 s" in doctor.clock(60.0, 1.8e9).says
    assert "1970-01-01" in doctor.clock(0.0, 0.0).says


def test_the_command_says_ok_here_and_what_stops_elsewhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "ask", lambda words: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(doctor, "cannot_use_cuda", lambda: None)
    config = tmp_path / "c.yaml"
    config.write_text("audit: c\ndatasets: {breast_cancer: {}}\narchitectures: {mlp: {}}\nmechanisms: {none: {}}\n")
    assert main(["doctor", str(config)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} <= {"ok", "warn"}
    assert any(line.startswith("ok    disk") and "the audit writes about" in line for line in lines)
    monkeypatch.setattr("mia_audit.commands.before.available_memory", lambda: 1)
    assert main(["doctor", str(config)]) == 2
    printed = capsys.readouterr()
    assert "fail  memory" in printed.out and "1 of the checks failed, which would stop an audit" in printed.err
