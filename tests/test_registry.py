"""Registries: members are found by their files, imported one at a time."""

import importlib
import subprocess
import sys

import pytest

from mia_audit.attacks import attacks
from mia_audit.errors import UserError, suggest
from mia_audit.explain import explainers
from mia_audit.pools import pools
from mia_audit.privacy.catalogue import mechanisms
from mia_audit.registry import Registry, code_files


@pytest.mark.parametrize("registry", [attacks, explainers, mechanisms, pools], ids=lambda registry: registry.kind)
def test_every_name_leads_to_its_member(registry: Registry[object]) -> None:
    assert registry.names()
    for name in registry.names():
        assert registry[name] is registry[name]
        assert name in registry


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        UserError, match=r"unknown source 'digit': did you mean 'digits'\? \(known: .*breast_cancer.*\)"
    ):
        pools["digit"]


def test_names_are_known_without_importing_members() -> None:
    heavy = {"torch", "timm", "sklearn", "scipy", "opacus", "captum"}
    code = f"import sys, mia_audit.config.load; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


REGISTRIES = {
    "figures": "mia_audit.report.figures.catalogue",
    "tables": "mia_audit.report.tables.catalogue",
    "explainers": "mia_audit.explain.catalogue",
    "architectures": "mia_audit.models.catalogue",
    "measures": "mia_audit.explanation_metrics.catalogue",
    "attacks": "mia_audit.attacks.catalogue",
    "mechanisms": "mia_audit.privacy.catalogue",
    "pools": "mia_audit.pools.section",
}
IMPORTED = """
import importlib, pkgutil
registries = [getattr(importlib.import_module(module), name) for name, module in REGISTRIES.items()]
for name in [name for registry in registries for name in registry.modules]:
    package = getattr(importlib.import_module(name), "__path__", ())
    for inside in reversed(list(pkgutil.iter_modules(package))):
        importlib.import_module(f"{name}.{inside.name}")
print([list(registry) for registry in registries])
"""


def test_members_are_in_the_same_order_whatever_was_imported_first() -> None:
    """Snakemake compares the files of figures and tables with those of the last run."""
    here = [list(getattr(importlib.import_module(module), name)) for name, module in REGISTRIES.items()]
    code = f"REGISTRIES = {REGISTRIES}\n{IMPORTED}"
    reverse = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert reverse.strip() == str(here) and "roc_by_epsilon" in reverse


def test_a_name_is_registered_once() -> None:
    registry: Registry[int] = Registry("number", "mia_audit.pools.sources")
    registry.register("one")(1)
    with pytest.raises(ValueError, match="number 'one' is registered twice"):
        registry.register("one")(1)


def test_suggestions_name_the_nearest_word_or_all() -> None:
    assert suggest("digts", ["digits", "mnist"]) == "did you mean 'digits'? (known: digits, mnist)"
    assert suggest("zzz", ["digits", "mnist"]) == "known: digits, mnist"


def test_files_of_code_are_found_in_names() -> None:
    assert code_files("train.py") == ["train.py"]
    assert code_files(["a/train.py:fit", "threshold"]) == ["a/train.py"]


def test_modules_beside_a_file_are_inputs_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "train.py": "import numpy, layers.dense\nfrom data import load\n",
        "data.py": "import train\nfrom layers import norm\n",
        "layers/__init__.py": "from .inner import deep\n",
        "layers/dense.py": "",
        "layers/norm.py": "not Python",
        "layers/inner/__init__.py": "from . import deep\nfrom .missing import *\n",
        "layers/inner/deep.py": "from ..rate import RATE\nfrom .... import nothing\n",
        "layers/rate.py": "",
        "layers/unused.py": "",
        "other.py": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    inside = ("__init__", "dense", "inner/__init__", "inner/deep", "norm", "rate")
    beside = ["data.py", *(f"layers/{name}.py" for name in inside)]
    assert code_files("train.py:fit") == [*beside, "train.py"]
    assert code_files("other.py") == ["other.py"]
