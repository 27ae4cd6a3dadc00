"""The smoke configs of config/huang2024 from synthetic images to the report, and the paper's tables from one's results."""

import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from mia_audit.cli import main
from mia_audit.config import expand, specs
from mia_audit.config.load import check_audit, read_plain
from mia_audit.config.schema import Audit
from mia_audit.papers import PAPERS
from mia_audit.planning import requests
from mia_audit.report.opened import finished

from .stages import run_stages

FOLDER = Path(__file__).parents[2] / "config" / "huang2024"
SAMPLE = re.compile(r"^#   python config/huang2024/(sample_images.py .*)$", re.MULTILINE)


def images_of(config: Path) -> None:
    """Write the images of a smoke config by the command that it opens with."""
    (command,) = SAMPLE.findall(config.read_text())
    script, *arguments = command.split()
    subprocess.run([sys.executable, FOLDER / script, *arguments], check=True)


def check_requests(audit: Audit, results: Path) -> None:
    """Train and explain a model, a private one if there is any, in processes of their own: they take what jobs request, or half at least."""
    setting = max(expand.settings(audit), key=lambda one: one.mechanism == "dp-sgd")
    where, trained = (setting.dataset, setting.architecture), results / setting.path / "models"
    described = results / setting.dataset / setting.architecture / "architecture.json"
    stages = {
        "train": requests.training_of(audit, setting.architecture, setting.mechanism),
        "signals": requests.explaining_bytes,
    }
    asked = {stage: requests.job_memory(audit, str(described), of, attempt=1) for stage, of in stages.items()}
    known = {
        "train": specs.TrainingSpec.from_audit(audit, *where, setting.mechanism, setting.epsilon),
        "signals": specs.SignalsSpec.from_audit(audit, *where),
    }
    more: dict[str, dict[str, Path]] = {"train": {}, "signals": {"models": trained}}
    for command, spec in known.items():
        places = {
            "spec": spec.write(results / "specs"),
            "pool": results / "pools" / setting.dataset,
            "architecture": described,
            "shadows": "0-0",
            "out": f"again-{command}",
            "usage": f"{command}.tsv",
            **more[command],
        }
        words = [str(word) for name, value in places.items() for word in (f"--{name}", value)]
        words = [str(Path(sys.executable).with_name("mia-audit")), command, *words]
        # by a shell, because the kernel counts the memory of the process that starts a program as the program's own
        subprocess.run(["sh", "-c", f"{shlex.join(words)}; exit $?"], check=True)
        (peak,) = pl.read_csv(f"{command}.tsv", separator="\t")["peak_mb"]
        assert 1 <= asked[command] / peak <= 2, command


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [path.stem for path in sorted(FOLDER.glob("*-smoke.yaml")) if path.stem != "svhn-smoke"]
)
def test_a_smoke_config_goes_from_images_to_the_report(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = FOLDER / f"{name}.yaml"
    images_of(path)
    values = read_plain(path)
    values["attacks"] = {
        "methods": ["threshold", "loss-lira", "l1-lrt"],
        "likelihoods": ["pooled"],
    }  # svhn-smoke has all
    audit = check_audit(values, str(path))
    results = Path("results") / audit.audit
    run_stages(audit, results)
    table = pl.read_csv(results / "tables" / "settings.csv")
    assert set(table["architecture"]) == {*audit.architectures} and table["output_auc_mean"].is_finite().all()
    assert audit.report.title in (results / "report.html").read_text()
    check_requests(audit, results)


@pytest.mark.slow
def test_svhn_goes_from_images_to_the_papers_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = FOLDER / "svhn-smoke.yaml"
    images_of(path)
    values = read_plain(path)
    values["attacks"]["likelihoods"] = ["pooled"]  # the others take half a minute, and are tested by themselves
    audit = check_audit(values, str(path))
    results = Path("results") / audit.audit
    run_stages(audit, results)
    table = pl.read_csv(results / "tables" / "as_published.csv")
    assert set(table["read_out"]) == {"authors'", "exact"}
    assert set(table["of"]) > {"loss", "ixg_l1", "saliency_l1", "ig_l1", "gradient_shap_l1", "ixg_variance"}
    assert {setting.epsilon for setting in finished(results).spec.settings} == {"inf", "8"}
    assert "As published" in (results / "report.html").read_text()
    check_requests(audit, results)
    capsys.readouterr()
    known = PAPERS["huang2024"]
    monkeypatch.setitem(PAPERS, "huang2024", replace(known, figures={"7": known.figures["7"]}))  # the others take long
    assert main(["paper", "huang2024", str(results), "--out", "paper"]) == 0
    said = capsys.readouterr().out
    assert "Table 5: 4 of 22 cells" in said and "Table 8: 4 of 30 cells" in said and "Figure 7: drawn." in said
