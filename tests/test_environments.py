"""The locked environments are in step with each other and with what the project asks for."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]


def locked() -> dict[str, str]:
    lines = (ROOT / "envs" / "requirements.lock").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_the_lock_pins_every_dependency_to_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    names = {re.split(r"[=<>~!\[ ]", dependency)[0] for dependency in asked}
    assert names <= set(locked())
    assert not [version for version in locked().values() if "+" in version]


def test_the_conda_environment_has_the_lock_and_the_package_itself() -> None:
    environment = yaml.safe_load((ROOT / "envs" / "environment.yaml").read_text())
    pins = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert dict(pin.split("==") for pin in pins) == {**locked(), "mia-audit": project["version"]}


def test_the_citation_has_the_version_of_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
