"""Two first hours from data to answer: a hospital's table of repeated visits, and two defences in one's own code."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

VISITS = 3


def visits(people: int = 60) -> str:
    """Return a table as a German spreadsheet writes it: semicolons, decimal commas, a person in several rows."""
    random = np.random.default_rng(0)
    lines = ["patient_nr;Größe;alter;station;befund"]
    for person in range(people):
        height, age = random.normal(170, 9), random.integers(30, 90)
        for _ in range(random.integers(1, VISITS + 1)):
            ill = age + random.normal(0, 12) > 60
            size = f"{height + random.normal(0, 0.5):.1f}".replace(".", ",")
            station = random.choice(["Süd", "Nord", "Köln"])
            lines.append(f"{4000 + person};{size};{age};{station};{'krank' if ill else 'gesund'}")
    return "\n".join(lines) + "\n"


def mia_audit(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-m", "mia_audit.cli", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_table_of_repeated_visits(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_bytes(visits().encode("latin-1"))
    init = ["init", "visits.csv", "--label", "befund", "--no-estimate"]
    encoded = mia_audit(tmp_path, *init)
    assert encoded.returncode == 2 and "iconv -f LATIN1 -t UTF-8" in encoded.stderr
    (tmp_path / "visits.csv").write_text(visits())
    asked = mia_audit(tmp_path, *init)
    assert asked.returncode == 2 and "give --person patient_nr if" in asked.stderr
    made = mia_audit(tmp_path, *init, "--person", "patient_nr")
    assert made.returncode == 0, made.stderr
    config = yaml.safe_load((tmp_path / "visits.yaml").read_text())
    assert config["datasets"]["visits"]["person"] == "patient_nr"
    config["membership"]["models"], config["training"]["epochs"], config["mechanisms"] = 4, 5, {"none": {}}
    config["attacks"] = {"methods": ["threshold", "loss-lira"], "likelihoods": ["pooled"]}
    (tmp_path / "visits.yaml").write_text(yaml.safe_dump(config, allow_unicode=True))
    assert mia_audit(tmp_path, "check", "visits.yaml").returncode == 0
    done = mia_audit(tmp_path, "run", "visits.yaml", "--cores", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "person" in done.stdout or "people" in done.stdout, done.stdout


DEFENCES = """
from sklearn.linear_model import LogisticRegression


def train(task):
    penalty = {"none": 1e4, "strong": 1e-3}[task.parameters["penalty"]]
    model = LogisticRegression(C=penalty, max_iter=300)
    return model.fit(task.records.iloc[task.members], task.labels[task.members])
"""
CONFIG = """
audit: defences
datasets: {people: {source: table, path: people.csv, label: ill, frame: true}}
membership: {models: 4}
architectures:
  plain: {model: train.py, parameters: {penalty: none}}
  strong: {model: train.py, parameters: {penalty: strong}}
mechanisms: {none: {}}
explainers: {methods: []}
report: {compare: [plain, strong]}
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_defences_in_own_code(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(160, 20)).round(3)
    head = ",".join([*(f"x{column}" for column in range(20)), "ill"])
    lines = [",".join([*map(str, row), "yes" if row[0] + random.normal() > 0 else "no"]) for row in rows]
    (tmp_path / "people.csv").write_text("\n".join([head, *lines]) + "\n")
    (tmp_path / "train.py").write_text(DEFENCES.replace('"strong": 1e-3', '"large": 1e-3'))
    (tmp_path / "mine.yaml").write_text(CONFIG)
    wrong = mia_audit(tmp_path, "check", "mine.yaml", "--with-code")
    assert wrong.returncode == 2 and "train.py, line 6: KeyError: 'strong'" in wrong.stderr
    (tmp_path / "train.py").write_text(DEFENCES)
    done = mia_audit(tmp_path, "run", "mine.yaml", "--cores", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    for defence in ("plain", "strong"):
        assert defence in done.stdout, done.stdout
    assert "With train.py" in done.stdout and "protection" not in done.stdout, done.stdout
    table = (tmp_path / "results" / "defences" / "tables" / "settings.csv").read_text().splitlines()
    column = table[0].split(",").index("output_auc_mean")
    leaks = {line.split(",")[1]: float(line.split(",")[column]) for line in table[1:]}
    assert leaks["plain"] > leaks["strong"]
