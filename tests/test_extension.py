"""Members in files of the user's own: each touches one file, and an audit runs with all of them."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pydantic import ValidationError

from mia_audit.attacks.catalogue import attacks
from mia_audit.config import specs
from mia_audit.config.load import parse
from mia_audit.config.schema import Audit
from mia_audit.errors import UserError
from mia_audit.explain.catalogue import Explainers, explainers
from mia_audit.explain.private_local.terms import kernels
from mia_audit.pools.section import pools
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.registry import Registry, code_files
from mia_audit.storage import read_table

from .builders import refused

SOURCE = """
import numpy as np

from mia_audit.pools.section import Source, pool


@pool()
def spiral(dataset, where):
    random = np.random.default_rng(0)
    labels = np.arange(60) % 2
    records = random.normal(labels[:, None], 1, (60, 3)).astype(np.float32)
    return Source("table", records, labels, ["a", "b"], ["x", "y", "z"])
"""

ARCHITECTURE = """
from torch import nn

from mia_audit.models.catalogue import architecture


@architecture()
def linear(shape, classes, bias=True):
    return nn.Linear(shape[0], classes, bias=bias)
"""

MECHANISM = """
from mia_audit.privacy.catalogue import mechanism
from mia_audit.privacy.mechanisms import PlainTraining
from mia_audit.sections import Section


class Shrinkage(Section):
    shrinkage: float = 0.5
    \"\"\"What gradients are multiplied by.\"\"\"


@mechanism(options=(Shrinkage,), private=False, per_record=False)
class Shrunk(PlainTraining):
    def __init__(self, section, job):
        super().__init__(section, job)
        self.shrinkage = section.read(Shrinkage).shrinkage

    def backward(self, inputs, labels):
        losses = super().backward(inputs, labels)
        for parameter in self.job.model.parameters():
            parameter.grad *= self.shrinkage
        return losses
"""

EXPLAINER = """
from mia_audit.explain.catalogue import explainer
from mia_audit.sections import Section


class Power(Section):
    sign_power: int = 1
    \"\"\"Power of the gradient.\"\"\"


@explainer(options=(Power,), label="powers of the gradient")
def sign(batch, options):
    gradients = batch.gradients_at(batch.inputs)
    return {name: gradient ** options["sign_power"] for name, gradient in gradients.items()}
"""

ATTACK = """
from mia_audit.attacks.catalogue import attack


@attack(learns=False)
def negative(readings, member, likelihood):
    (reading,) = readings
    return -reading.values


def undecorated(readings, member, likelihood):
    return readings
"""

FILES = {
    "source.py": SOURCE,
    "architecture.py": ARCHITECTURE,
    "mechanism.py": MECHANISM,
    "explainer.py": EXPLAINER,
    "attack.py": ATTACK,
}

CONFIG: dict[str, Any] = {
    "audit": "tiny",
    "datasets": {"spiral": {"source": "source.py:spiral"}},
    "membership": {"models": 4},
    "architectures": {"linear": {"model": "architecture.py:linear", "parameters": {"bias": False}}},
    "training": {"epochs": 1, "batch": 8},
    "mechanisms": {"shrunk": {"mechanism": "mechanism.py:Shrunk", "shrinkage": 0.25}},
    "explainers": {"methods": ["explainer.py:sign"], "sign_power": 2},
    "attacks": {"methods": ["attack.py:negative", "threshold"]},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of an extended audit, in the folder where it is started."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_an_audit_runs_with_members_from_files(workflow: Any) -> None:
    for name, text in FILES.items():
        (workflow.folder / name).write_text(text)
    workflow.configure(CONFIG)
    path = "spiral/linear/shrunk-epsinf/metrics.parquet"
    result = workflow.run(f"results/tiny/{path}")
    assert result.returncode == 0, result.stdout
    metrics = pl.DataFrame(pl.from_arrow(read_table(workflow.results / path, "metrics")))
    signals = set(metrics.filter(pl.col("attack") == "attack.py:negative")["signal"])
    assert {"loss", "confidence", "explainer.py:sign_l1"} <= signals
    assert metrics["auc"].is_not_null().all()


def test_another_text_of_a_file_is_another_specification(folder: Path, tmp_path: Path) -> None:
    audit = parse(Audit, CONFIG, "tiny.yaml")
    before = (
        specs.AttackSpec.from_audit(audit, "spiral").write(tmp_path),
        specs.PoolSpec.from_audit(audit, "spiral").path(tmp_path),
    )
    assert list(json.loads(before[0].read_text())["code"]) == ["attack.py"]
    (folder / "attack.py").write_text(FILES["attack.py"] + "\n# changed\n")
    after = (
        specs.AttackSpec.from_audit(audit, "spiral").path(tmp_path),
        specs.PoolSpec.from_audit(audit, "spiral").path(tmp_path),
    )
    assert before[0] != after[0] and before[1] == after[1]
    with pytest.raises(UserError, match=r"attack\.py: changed since .*; start the workflow again"):
        specs.AttackSpec.read(before[0])


def test_a_config_takes_the_keys_that_members_in_files_declare(folder: Path) -> None:
    audit = parse(Audit, CONFIG, "tiny.yaml")
    assert audit.mechanisms["shrunk"].model_extra == {"shrinkage": 0.25}
    assert audit.explainers.options(explainers["explainer.py:sign"].options) == {"sign_power": 2}
    default = parse(Audit, CONFIG | {"mechanisms": {"shrunk": {"mechanism": "mechanism.py:Shrunk"}}}, "tiny.yaml")
    assert default.mechanisms["shrunk"].model_extra == {"shrinkage": 0.5}
    assert code_files(audit) == sorted(FILES)
    assert code_files(audit.mechanisms["shrunk"]) == ["mechanism.py"]
    assert code_files(["threshold", "captum:DeepLift", "private_local:0.5", "a.py:f:loss"]) == ["a.py"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mechanisms": {"shrunk": {"mechanism": "mechanism.py:Shrunk", "shrink": 1}}}, "shrunk.shrink: unk"),
        ({"mechanisms": {"shrunk": {"mechanism": "mechanism.py:Shrunk", "clip_norm": 1}}}, "a key of dp-sgd"),
        ({"mechanisms": {"shrunk": {"mechanism": "mechanism.py:Shrunk", "shrinkage": "x"}}}, "shrunk.shrinkage: input"),
        ({"attacks": {"methods": ["attack.py:positive"]}}, "attack.py has no 'positive': known: negative"),
        ({"attacks": {"methods": ["attack.py:undecorated"]}}, "attack.py, line 11: 'undecorated' is not declared"),
        ({"attacks": {"methods": ["missing.py:f"]}}, "no such file: missing.py in"),
        ({"datasets": {"spiral": {"source": "missing.py:f"}}}, "spiral.source: source 'missing.py:f': no such"),
    ],
)
def test_a_mistake_is_one_line(folder: Path, change: dict[str, Any], message: str) -> None:
    with refused(message):
        parse(Audit, CONFIG | change, "tiny.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n\n\nx.y\n", "broken.py, line 4: AttributeError: 'int' object has no attribute 'y'"),
        ("def f(:\n", "broken.py, line 1: SyntaxError"),
        ("import nowhere_at_all\n", "broken.py, line 1: ModuleNotFoundError: No module named 'nowhere_at_all'"),
    ],
)
def test_a_file_that_raises_is_named_with_its_line(folder: Path, text: str, message: str) -> None:
    (folder / "broken.py").write_text(text)
    with pytest.raises(UserError, match=r"attack 'broken\.py:f'") as caught:
        attacks["broken.py:f"]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_is_loaded_once_and_its_members_are_no_names(folder: Path) -> None:
    assert attacks["attack.py:negative"] is attacks["attack.py:negative"]
    assert attacks["./attack.py:negative"] is attacks["attack.py:negative"]
    assert "negative" not in attacks.names()


@pytest.mark.parametrize("registry", [kernels, pools], ids=lambda registry: registry.kind)
def test_every_registry_reads_files(folder: Path, registry: Registry[Any]) -> None:
    decorator = {
        "kernel": "from mia_audit.explain.private_local.terms import kernels\n@kernels.register('f')",
        "source": "",
    }
    text = decorator[registry.kind] or "from mia_audit.pools.section import pool\n@pool()"
    (folder / f"{registry.kind}.py").write_text(f"{text}\ndef f(*given):\n    return given\n")
    member: Callable[..., Any] = registry[f"{registry.kind}.py:f"]
    assert (getattr(member, "load", member))(1, 2) == (1, 2)


def test_sections_of_a_single_stage_are_checked_alike(folder: Path) -> None:
    with pytest.raises(ValidationError, match="unknown key"):
        Explainers(methods=("saliency",), sign_power=1)
    assert Mechanism(mechanism="mechanism.py:Shrunk").kind.private is False


def test_the_recipes_run_as_they_are_printed(tmp_path: Path) -> None:
    text = Path(__file__).parents[1].joinpath("CONTRIBUTING.md").read_text()
    recipes = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(recipes) == 5
    for place, recipe in enumerate(recipes):
        (tmp_path / f"recipe{place}.py").write_text(recipe)
    # in a process of their own: what they register is not a member in other tests
    script = "import recipe0, recipe1, recipe2, recipe3, recipe4"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
