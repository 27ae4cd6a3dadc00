"""`compute.shadows_per_job: auto`: as many models as fit into ten minutes, decided once for an audit."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mia_audit.config.expand import blocks
from mia_audit.config.load import parse
from mia_audit.config.schema import Audit
from mia_audit.config.specs import TrainingSpec
from mia_audit.errors import UserError
from mia_audit.planning import costs, packing
from mia_audit.planning.sizes import Size
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.training.section import Training

CONFIG: dict[str, Any] = {
    "audit": "tiny",
    "datasets": {"digits": {"records": 1000, "public": 100}},
    "membership": {"models": 33},
    "architectures": {"mlp": {}},
    "training": {"epochs": 2, "batch": 50},
    "mechanisms": {"none": {}, "dp-sgd": {"epsilon": [8]}},
    "compute": {"shadows_per_job": "auto"},
}
SIZES = {"digits": Size(1000, 100, (1, 8, 8), 10)}
MODELS: dict[tuple[str, str], dict[str, Any]] = {("digits", "mlp"): {}}


class Costs(costs.Costs):
    """A private step takes three times as long as a plain one, and its calibration 60 s."""

    def __init__(self, step: float) -> None:
        self.seconds = step

    def step(self, architecture: Mapping[str, Any], mechanism: Mechanism, training: Training, records: int) -> float:
        return self.seconds * (1 if mechanism.mechanism == "none" else 3)

    def forward(self, architecture: Mapping[str, Any]) -> float:
        return 0.0

    def calibration(self, mechanism: Mechanism, training: Training, records: int, epsilon: float) -> float:
        return 60.0


def audit(**changes: Any) -> Audit:
    return parse(Audit, CONFIG | changes, "tiny.yaml")


@pytest.mark.parametrize(
    ("step", "models"), [(1.0, 8), (0.9, 8), (3.1, 2), (4.4, 2), (4.6, 1), (100.0, 1), (0.0, 2**16 * 3)]
)
def test_the_slowest_setting_decides(step: float, models: int) -> None:
    """A private model takes 2 epochs of 10 steps, 60 s at 1 s a step without privacy: 9 of them fit into 540 s."""
    assert packing.models_per_job(audit(), SIZES, MODELS, Costs(step)) == models


def test_the_length_of_somebody_elses_training_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text("def train(task):\n    raise AssertionError\n")
    theirs = audit(architectures={"net": {"model": "net.py"}}, mechanisms={"none": {}}, explainers={"methods": []})
    with pytest.raises(UserError, match=r"architectures\.net is trained by your own code.*give a number"):
        packing.models_per_job(theirs, SIZES, {}, Costs(1.0))


def test_the_decision_is_kept_for_trainings_like_these(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def run(words: list[str], input: str, **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(json.loads(input))
        return subprocess.CompletedProcess(words, 0, "12\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert packing.packed(audit(), CONFIG, tmp_path, keep=False).compute.shadows_per_job == 12
    assert packing.kept(audit(), tmp_path) is None, "a dry run writes nothing"
    first = packing.packed(audit(), CONFIG, tmp_path, keep=True)
    again = packing.packed(audit(membership={"models": 257}), CONFIG, tmp_path, keep=True)
    assert (len(asked), asked[0]) == (2, CONFIG) and blocks(first) == ["000-011", "012-023", "024-032"]
    assert blocks(again)[:2] == blocks(first)[:2]
    packing.packed(audit(training={"epochs": 90, "batch": 50}), CONFIG, tmp_path, keep=True)
    assert len(asked) == 3


def test_what_cannot_be_timed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = subprocess.CompletedProcess([], 2, "", "a warning\nthe reason\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: refused)
    with pytest.raises(UserError, match=r"shadows_per_job: auto: the reason$"):
        packing.packed(audit(), CONFIG, tmp_path, keep=True)


def test_no_training_depends_on_it() -> None:
    names = ("digits", "mlp", "dp-sgd", "8")
    assert TrainingSpec.from_audit(audit(), *names) == TrainingSpec.from_audit(packing.with_number(audit(), 12), *names)
