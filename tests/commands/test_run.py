"""`mia-audit run` and what starts the workflow for others."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from mia_audit.cli import main
from mia_audit.commands.before import _name_missing, start
from mia_audit.config.load import folder_of
from mia_audit.errors import UserError

ROOT = Path(__file__).parents[2]


def test_targets_and_options_are_read_as_such_by_snakemake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its option `--logger` takes all words up to the next option."""
    from snakemake.cli import parse_args

    asked: list[list[str]] = []

    def started(words: list[str], check: bool, env: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
        asked.append(words)
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr("mia_audit.commands.before._checked", lambda *_: None)
    monkeypatch.setattr("mia_audit.commands.before.load_audit", lambda path: None)
    monkeypatch.setattr(subprocess, "run", started)
    targets = ["results/digits/a.parquet", "results/digits/b.parquet"]
    start(ROOT / "config" / "digits.yaml", 2, [*targets, "--keep-going", "--config", "seed=1"])
    _, read = parse_args(asked[0][3:])
    assert set(read.targets) == set(targets)
    assert (read.logger, read.cores, read.keep_going, read.config) == (["mia-audit"], 2, True, ["seed=1"])


def test_an_audit_belongs_to_the_folder_of_its_config_or_of_its_project(tmp_path: Path) -> None:
    (tmp_path / "workflow").mkdir()
    assert folder_of(tmp_path / "mine.yaml") == tmp_path
    assert folder_of(tmp_path / "config" / "mine.yaml") == tmp_path / "config"
    (tmp_path / "workflow" / "Snakefile").touch()
    assert folder_of(tmp_path / "config" / "mine.yaml") == tmp_path
    assert folder_of(tmp_path / "config" / "more" / "mine.yaml") == tmp_path
    assert folder_of(tmp_path / "audits" / "mine.yaml") == tmp_path / "audits"
    assert folder_of(ROOT / "config" / "digits.yaml") == ROOT


def test_paths_in_a_config_start_in_the_folder_of_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    text = "audit: a\ndatasets: {t: {source: table, path: t.csv, label: y}}\narchitectures: {mlp: {}}\nmechanisms: {none: {}}\n"
    (mine / "a.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["check", "mine/a.yaml"]) == 2
    assert f"path: no such file: t.csv in {mine}" in capsys.readouterr().err
    (mine / "t.csv").write_text("x,y\n" + "1,0\n2,1\n" * 100)
    assert main(["check", "mine/a.yaml"]) == 0
    assert Path.cwd() == tmp_path


def test_an_interrupt_is_left_to_the_workflow(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(words: list[str], check: bool, env: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
        signal.raise_signal(signal.SIGINT)
        return subprocess.CompletedProcess(words, 1)

    monkeypatch.setattr("mia_audit.commands.before._checked", lambda *_: None)
    monkeypatch.setattr("mia_audit.commands.before.load_audit", lambda path: None)
    monkeypatch.setattr(subprocess, "run", interrupted)
    before = signal.getsignal(signal.SIGINT)
    assert start(ROOT / "config" / "digits.yaml", 2, []) == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_deleted_records_of_a_finished_audit_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  pools/t/records.npy\n{'0' * 64}  report.html\n")
    _name_missing(tmp_path)
    assert "t/records.npy; they are made again only" in capsys.readouterr().err
    (tmp_path / "pools" / "t").mkdir(parents=True)
    (tmp_path / "pools" / "t" / "records.npy").touch()
    _name_missing(tmp_path)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "results", "results/mine"])
def test_a_folder_that_cannot_be_written_stops_the_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results" / "mine").mkdir(parents=True)
    (tmp_path / "a.yaml").write_text("audit: mine\n")
    monkeypatch.setattr("mia_audit.commands.before._checked", lambda *_: None)
    monkeypatch.setattr("mia_audit.commands.before.load_audit", lambda path: None)
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).absolute() != tmp_path / name)
    with pytest.raises(UserError, match=f"{re.escape(str(tmp_path / name))}: read-only, but results go there"):
        start(tmp_path / "a.yaml", 2, [])


def test_a_partition_that_slurm_lacks_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "config.yaml").write_text("default-resources: {slurm_partition: gpus}\n")
    monkeypatch.setattr("mia_audit.commands.before._checked", lambda *_: None)
    monkeypatch.setattr("mia_audit.commands.before.load_audit", lambda path: None)
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr("mia_audit.planning.machine.ask", lambda words: "gpu* up" if words[0] == "sinfo" else "")
    for given in (["--workflow-profile", "slurm"], ["--workflow-profile=slurm"]):
        with pytest.raises(
            UserError, match=r"slurm/config.yaml: slurm_partition: no partition 'gpus': did you mean 'gpu'"
        ):
            start(tmp_path / "a.yaml", 2, given)
