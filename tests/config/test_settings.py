"""Slices: what each rule is told, and no more, so that a change reruns only what depends on it."""

import json
from pathlib import Path
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
    assert audit().training_of("mlp", "dp-sgd").epochs == 3
    assert audit().training_of("mlp", "none").epochs == 30


def test_an_architecture_overrides_what_its_mechanisms_say() -> None:
    own = {"training": {"batch": 8}, "mechanisms": {"none": {"training": {"batch": 4}}, "dp-sgd": {"epsilon": [2]}}}
    found = audit(architectures={"mlp": own, "wide": {"model": "mlp"}})
    assert found.training_of("mlp", "none").batch == 4
    assert found.training_of("mlp", "dp-sgd").batch == 8
    assert found.training_of("mlp", "dp-sgd").epochs == 3
    assert found.training_of("wide", "none").batch == 64
    assert [setting.path for setting in slices.settings(found)] == [
        "digits/mlp/none-epsinf",
        "digits/mlp/dp-sgd-eps2",
        "digits/wide/none-epsinf",
        "digits/wide/dp-sgd-eps8",
        "digits/wide/dp-sgd-eps2",
    ]


def test_an_overridden_schedule_leaves_the_decay_behind() -> None:
    step = {"schedule": "step", "decay_epochs": 2}
    own = {"mechanisms": {"dp-sgd": {"training": {"schedule": "constant"}}}}
    found = audit(training=step, architectures={"mlp": own})
    assert (found.training_of("mlp", "none").decay, found.training_of("mlp", "none").decay_epochs) == (0.8, 2)
    assert found.training_of("mlp", "dp-sgd").decay is None


def test_a_sweep_is_an_architecture_per_combination() -> None:
    llm = {"model": "mlp", "parameters": {"width": 8}, "sweep": {"depth": [0, 2], "dropout": [0.5, False]}}
    found = audit(architectures={"llm": llm, "mlp": {"sweep": {"depth": [1]}}}).architectures
    assert list(found) == [
        "llm-depth0-dropout0.5",
        "llm-depth0-dropoutfalse",
        "llm-depth2-dropout0.5",
        "llm-depth2-dropoutfalse",
        "mlp-depth1",
    ]
    assert found["llm-depth2-dropout0.5"].parameters == {"width": 8, "depth": 2, "dropout": 0.5}
    assert found["mlp-depth1"].model == "mlp"
    swept = found["llm-depth2-dropout0.5"].swept
    assert swept is not None and (swept.section, swept.values) == ("llm", {"depth": 2, "dropout": 0.5})


def test_a_swept_architecture_depends_on_what_it_is_made_of_alone() -> None:
    swept = audit(architectures={"mlp": {"sweep": {"depth": [1, 2]}}})
    written = audit(architectures={"mlp-depth1": {"model": "mlp", "parameters": {"depth": 1}}})
    assert slices.architecture_slice(swept, "mlp-depth1") == slices.architecture_slice(written, "mlp-depth1")
    again = parse(Audit, swept.model_dump(mode="json"), "dumped")
    assert list(again.architectures) == list(swept.architectures)


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


def test_slices_hold_no_key_that_does_not_apply() -> None:
    first = slices.settings(audit())[0]
    assert "decay_epochs" not in slices.training_slice(audit(), first)
    assert "share" not in slices.membership_slice(audit(), "digits")
    assert '"share": 0.8' in slices.membership_slice(audit(membership={"design": "split"}), "digits")


def test_a_pool_depends_on_the_keys_that_its_section_has() -> None:
    assert (
        slices.pool_slice(audit(), "digits")
        == '{"dataset": {"pool": "digits", "public": 100}, "name": "digits", "seed": 0}'
    )
    private = {"standardise": "private", "standardise_epsilon": 1, "bounds": {"*": [0, 50]}}
    told, other = (
        slices.pool_slice(audit(datasets={"breast_cancer": private | changed}), "breast_cancer")
        for changed in ({}, {"standardise_epsilon": 2})
    )
    assert json.loads(told)["dataset"] == {"pool": "breast_cancer", **private} and told != other


def test_the_files_that_a_pool_is_read_from_are_known(tmp_path: Path) -> None:
    def files(root: Path) -> list[str]:
        return slices.pool_files(audit(datasets={"mine": {"pool": "arrays", "root": str(root)}}), "mine")

    assert files(tmp_path) == []
    paths = [tmp_path / name for name in ("records.npy", "labels.npy", "some.npz")]
    for path in paths:
        path.touch()
    assert files(tmp_path) == [str(path) for path in paths[:2]]
    assert files(paths[2]) == [str(paths[2])]


def test_the_config_hash_ignores_how_work_is_cut() -> None:
    assert slices.config_hash(audit(compute={"threads": 2})) == slices.config_hash(audit())
    assert slices.config_hash(audit(seed=1)) != slices.config_hash(audit())


def test_signal_files_are_grouped_by_family() -> None:
    paths = ["s/ig/000-001.parquet", "s/ig/002-003.parquet", "s/gradient/000-001.parquet"]
    assert slices.by_family(paths, ["gradient", "ig"]) == f"--signals {paths[2]} --signals {paths[0]} {paths[1]}"


def test_explanations_are_compared_within_an_architecture_with_its_unprotected_setting() -> None:
    whole = audit(architectures={"mlp": {}, "vit": {"model": "vision_transformer"}})
    assert list(slices.interpreted(whole)) == ["digits/mlp", "digits/vit"]
    told = json.loads(slices.interpretability_slice(whole, "digits/vit"))
    assert told["settings"] == [["none", "inf"], ["dp-sgd", "8"], ["dp-sgd", "2"]]
    assert told["reference"] == ["none", "inf"] and told["models"] == 17
    assert "ig_nodes" in told["explaining"] and told["measuring"] == {"top_share": 0.1}
    bare = audit(mechanisms={"dp-sgd": {"epsilon": [8]}}, interpretability={"models": 3, "explainers": ["ixg"]})
    told = json.loads(slices.interpretability_slice(bare, "digits/mlp"))
    assert told["reference"] is None and told["models"] == 3 and "ig_nodes" not in told["explaining"]
    assert slices.interpreted_blocks(bare) == ["000-008"]
    assert slices.interpreted(audit(interpretability={"records": 0})) == {}


@pytest.mark.parametrize("changes", [{"records": 5}, {"measures": ["deletion"]}, {"radius": 1.0}, {"shown": 0}])
def test_nothing_before_it_depends_on_how_explanations_are_measured(changes: dict[str, Any]) -> None:
    changed = audit(interpretability=changes)
    for setting in slices.settings(audit()):
        assert slices.training_slice(changed, setting) == slices.training_slice(audit(), setting)
    for told in (slices.attacks_slice, slices.pool_slice, slices.membership_slice):
        assert told(changed, "digits") == told(audit(), "digits")
    same = slices.interpretability_slice(changed, "digits/mlp") == slices.interpretability_slice(audit(), "digits/mlp")
    assert same == ("radius" in changes), "only what the measures asked for read"


STUDY: dict[str, Any] = {
    "architectures": {
        "vit": {"model": "vision_transformer", "parameters": {"depth": 1}},
        "llm": {"model": "locally-linear-maps", "parameters": {"beta": 1}, "sweep": {"maps": [1, 5]}},
    },
    "mechanisms": {
        "none": {},
        "dp-sgd": {"epsilon": [8]},
        "fadp": {"epsilon": [8], "factors": [0.6, 0.8, 1]},
        "mine": {"mechanism": "fadp", "epsilon": [8], "factors": [0.5, 0.7, 1]},
    },
}


@pytest.mark.parametrize(
    ("section", "name", "value", "changed"),
    [
        ("architectures", "vit", {"model": "vision_transformer", "parameters": {"depth": 2}}, "digits/vit/"),
        ("architectures", "llm", {**STUDY["architectures"]["llm"], "parameters": {"beta": 2}}, "digits/llm-"),
        ("architectures", "llm", {**STUDY["architectures"]["llm"], "sweep": {"maps": [1, 5, 9]}}, None),
        ("mechanisms", "fadp", {"epsilon": [8], "factors": [0.7, 0.8, 1]}, "/fadp-eps8"),
        ("mechanisms", "mine", {"mechanism": "fadp", "epsilon": [8], "factors": [0.7, 0.8, 1]}, "/mine-eps8"),
        ("mechanisms", "dp-sgd", {"epsilon": [8], "clip_norm": 2, "clipping": "flat"}, "/dp-sgd-eps8"),
    ],
)
def test_a_change_retrains_exactly_the_models_that_it_is_about(
    section: str, name: str, value: dict[str, Any], changed: str | None
) -> None:
    before = audit(**STUDY)
    after = audit(**STUDY | {section: STUDY[section] | {name: value}})
    retrained = {
        setting.path
        for setting in slices.settings(before)
        if slices.training_slice(before, setting) != slices.training_slice(after, setting)
    }
    every = {setting.path for setting in slices.settings(before)}
    assert every <= {setting.path for setting in slices.settings(after)} and len(every) == 3 * 4
    assert retrained == {path for path in every if changed is not None and changed in path}


def test_a_mechanism_depends_on_the_keys_that_it_reads() -> None:
    importance = {"fadp": {"epsilon": [2]}, "fadp-literal": {"epsilon": [2], "acknowledge-no-guarantee": True}}
    both = audit(mechanisms=CONFIG["mechanisms"] | importance)
    sections = {
        setting.mechanism: json.loads(slices.training_slice(both, setting))["mechanism"]
        for setting in slices.settings(both)
    }
    own = {name: set(section) - set(sections["none"]) for name, section in sections.items()}
    assert own == {
        "none": set(),
        "dp-sgd": set(),
        "fadp": {"factors", "importance"},
        "fadp-literal": {"factors", "acknowledge-no-guarantee"},
    }
    assert [name for name in sections if slices.reads_public_records(both, name)] == ["fadp"]
    for setting in slices.settings(audit()):
        assert slices.training_slice(both, setting) == slices.training_slice(audit(), setting)


def test_a_mechanism_without_a_guarantee_is_not_private_and_says_why() -> None:
    section = {"fadp-literal": {"epsilon": [3], "acknowledge-no-guarantee": True}}
    told = json.loads(slices.report_slice(audit(mechanisms=section)))["settings"][0]
    assert not told["private"] and told["delta"] is None and "private batch" in told["no_guarantee"]


def test_an_attack_asks_for_memory_by_its_records_and_models() -> None:
    small = audit(datasets={"digits": {"records": 1000}}, membership={"models": 10})
    large = audit(datasets={"digits": {"records": 60_000}}, membership={"models": 257})
    assert slices.attack_megabytes(small, "digits") < 500
    assert 1700 < slices.attack_megabytes(large, "digits") == slices.report_megabytes(large) < 2500
    assert slices.attack_megabytes(audit(), "digits") == 4000, "nobody knows how many records remain"
