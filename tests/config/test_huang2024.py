"""The configs of Huang et al. 2024: every one attacks as published, and a smoke test has the stages of the audit it stands for."""

from pathlib import Path

import pytest
import yaml

from mia_audit.config.load import load_audit

FOLDER = Path(__file__).parents[2] / "config" / "huang2024"
CONFIGS = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.yaml")}
FULL = [name for name in CONFIGS if f"{name}-smoke" in CONFIGS]


@pytest.mark.parametrize("name", CONFIGS)
def test_every_audit_attacks_as_published(name: str) -> None:
    assert CONFIGS[name]["attacks"]["set"] == "as-published"


def test_every_data_set_has_a_smoke_test() -> None:
    assert set(FULL) == {"cifar10", "cifar100", "food101", "gtsrb", "svhn"}


@pytest.mark.parametrize("name", FULL)
def test_a_smoke_test_has_the_mechanisms_and_explanations_of_its_audit(name: str) -> None:
    whole, smoke = CONFIGS[name], CONFIGS[f"{name}-smoke"]
    assert smoke["explainers"]["methods"] == whole["explainers"]["methods"]
    assert smoke["mechanisms"].keys() == whole["mechanisms"].keys()
    for model, section in smoke["architectures"].items():
        assert section.get("mechanisms") == whole["architectures"][model].get("mechanisms")


@pytest.mark.parametrize("name", [name for name in CONFIGS if not name.endswith("-smoke") and name != "fashion_mnist"])
def test_models_learn_as_by_the_authors_code_or_stop_the_audit(
    name: str,
) -> None:
    audit = load_audit(FOLDER / f"{name}.yaml")
    assert audit.training.learning_rate == 5e-4
    assert audit.training.precision == audit.explainers.precision == "tf32"
    training = audit.mechanisms["none"].training
    assert training is not None and training.floor is not None
    floors = training.floor if isinstance(training.floor, dict) else dict.fromkeys(audit.datasets, training.floor)
    assert floors.keys() == audit.datasets.keys() and min(floors.values()) >= 0.6
