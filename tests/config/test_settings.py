"""Slices: what each rule is told, and no more, so that a change reruns only what depends on it."""

from typing import Any

import pytest

from mia_audit.config import settings as slices
from mia_audit.config.load import parse
from mia_audit.config.schema import Audit

CONFIG: dict[str, Any] = {
    "audit": "tiny",
    "datasets": {"digits": {"public": 100}},
    "architectures": {"mlp": {}},
    "mechanisms": {"none": {}, "dp-sgd": {"epsilon": [8, 2], "training": {"epochs": 3}}},
}


def audit(**changes: Any) -> Audit:
    return parse(Audit, CONFIG | changes, "tiny.yaml")


def test_settings_are_all_combinations_in_the_order_of_the_config() -> None:
    assert [setting.path for setting in slices.settings(audit())] == [
        "digits/mlp/none-epsinf",
        "digits/mlp/dp-sgd-eps8",
        "digits/mlp/dp-sgd-eps2",
    ]


def test_imported_signals_are_settings_of_their_own() -> None:
    imported = {"theirs": {"signals": "s.parquet", "epsilon": 3, "delta": 1e-6}}
    found = slices.settings(parse(Audit, {"audit": "tiny", "imported": imported}, "tiny.yaml"))
    assert [(setting.path, setting.trained) for setting in found] == [("theirs/imported/imported-eps3", False)]
    assert [setting.trained for setting in slices.settings(audit(imported=imported))] == [True, True, True, False]


@pytest.mark.parametrize(
    ("models", "size", "expected"),
    [(17, 9, ["000-008", "009-016"]), (4, 9, ["000-003"]), (4, 1, ["000-000", "001-001", "002-002", "003-003"])],
)
def test_blocks_cover_every_shadow_once(models: int, size: int, expected: list[str]) -> None:
    assert slices.blocks(audit(membership={"models": models}, compute={"shadows_per_job": size})) == expected


def test_one_job_explains_whole_blocks() -> None:
    compute = {"shadows_per_job": 4, "blocks_explained_per_job": 2}
    assert slices.explained_blocks(audit(membership={"models": 10}, compute=compute)) == {
        "000-007": ["000-003", "004-007"],
        "008-009": ["008-009"],
    }
    assert slices.explained_blocks(audit()) == {"000-008": ["000-008"], "009-016": ["009-016"]}


def test_a_mechanism_overrides_training() -> None:
    assert slices.resolved_training(audit(), "dp-sgd").epochs == 3
    assert slices.resolved_training(audit(), "none").epochs == 30


@pytest.mark.parametrize(
    "changes",
    [
        {"attacks": {"methods": ["threshold"]}},
        {"report": {"title": "other"}},
        {"evaluation": {"fprs": [0.05]}},
        {"explainers": {"methods": ["ixg"]}},
        {"compute": {"threads": 2}},
        {"mechanisms": {"none": {}, "dp-sgd": {"epsilon": [8, 2, 1], "training": {"epochs": 3}}}},
    ],
)
def test_training_does_not_depend_on_what_comes_after_it(changes: dict[str, Any]) -> None:
    for setting in slices.settings(audit()):
        assert slices.training_slice(audit(**changes), setting) == slices.training_slice(audit(), setting)
    assert slices.pool_slice(audit(**changes), "digits") == slices.pool_slice(audit(), "digits")


def test_the_config_hash_ignores_how_work_is_cut() -> None:
    assert slices.config_hash(audit(compute={"threads": 2})) == slices.config_hash(audit())
    assert slices.config_hash(audit(seed=1)) != slices.config_hash(audit())


def test_signal_files_are_grouped_by_family() -> None:
    paths = ["s/ig/000-001.parquet", "s/ig/002-003.parquet", "s/gradient/000-001.parquet"]
    assert slices.by_family(paths, ["gradient", "ig"]) == f"--signals {paths[2]} --signals {paths[0]} {paths[1]}"
