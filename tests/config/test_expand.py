"""Expanding a config: settings, blocks of shadow models, and the groups that are compared."""

from pathlib import Path

import pytest

from mia_audit.config import expand
from mia_audit.config.load import parse
from mia_audit.config.schema import Audit
from mia_audit.config.specs import ReportSpec, TrainingSpec

from .test_specs import CONFIG, audit


def test_settings_are_all_combinations_in_the_order_of_the_config() -> None:
    assert [setting.path for setting in expand.settings(audit())] == [
        "digits/mlp/none-epsinf",
        "digits/mlp/dp-sgd-eps8",
        "digits/mlp/dp-sgd-eps2",
    ]


def test_imported_signals_are_settings_of_their_own() -> None:
    imported = {"theirs": {"signals": "s.parquet", "epsilon": 3, "delta": 1e-6}}
    expanded = expand.settings(parse(Audit, {"audit": "tiny", "imported": imported}, "tiny.yaml"))
    assert [(setting.path, setting.trained) for setting in expanded] == [("theirs/imported/imported-eps3", False)]
    assert [setting.trained for setting in expand.settings(audit(imported=imported))] == [True, True, True, False]


@pytest.mark.parametrize(
    ("models", "size", "expected"),
    [(17, 9, ["000-008", "009-016"]), (4, 9, ["000-003"]), (4, 1, ["000-000", "001-001", "002-002", "003-003"])],
)
def test_blocks_cover_every_shadow_once(models: int, size: int, expected: list[str]) -> None:
    assert expand.blocks(audit(membership={"models": models}, compute={"shadows_per_job": size})) == expected


def test_one_job_explains_whole_blocks() -> None:
    compute = {"shadows_per_job": 4, "blocks_explained_per_job": 2}
    assert expand.explained_blocks(audit(membership={"models": 10}, compute=compute), "none") == {
        "000-007": ["000-003", "004-007"],
        "008-009": ["008-009"],
    }
    assert expand.explained_blocks(audit(), "none") == {"000-008": ["000-008"], "009-016": ["009-016"]}


def test_a_mechanism_may_have_fewer_models() -> None:
    """They are the first ones, trained as before: neither keys nor other mechanisms change."""
    mechanisms = {"none": {}, "dp-sgd": {"epsilon": [8], "models": 11}}
    fewer, same = (audit(mechanisms=mechanisms, membership={"models": models}) for models in (17, 10))
    assert [fewer.number_of_models(name) for name in ("none", "dp-sgd", "imported")] == [17, 11, 17]
    assert same.number_of_models("dp-sgd") == 10, "no more than the others"
    assert expand.blocks(fewer, "dp-sgd") == ["000-008", "009-010"] and expand.blocks(fewer, "none")[-1] == "009-016"
    assert expand.explained_blocks(fewer, "dp-sgd") == {"000-008": ["000-008"], "009-010": ["009-010"]}
    assert expand.compared_models(fewer) == 11, "explanations are compared where all settings have the model"
    assert expand.compared_blocks(fewer, "none") == ["000-008", "009-016"]
    plain = audit(mechanisms={"none": {}, "dp-sgd": {"epsilon": [8]}})
    names = ("digits", "mlp", "dp-sgd", "8")
    assert TrainingSpec.from_audit(fewer, *names) == TrainingSpec.from_audit(plain, *names)


def test_a_mechanism_overrides_training() -> None:
    assert audit().training_of("mlp", "dp-sgd").epochs == 3
    assert audit().training_of("mlp", "none").epochs == 30


def test_an_architecture_overrides_what_its_mechanisms_say() -> None:
    own = {"training": {"batch": 8}, "mechanisms": {"none": {"training": {"batch": 4}}, "dp-sgd": {"epsilon": [2]}}}
    expanded = audit(architectures={"mlp": own, "wide": {"model": "mlp"}})
    assert expanded.training_of("mlp", "none").batch == 4
    assert expanded.training_of("mlp", "dp-sgd").batch == 8
    assert expanded.training_of("mlp", "dp-sgd").epochs == 3
    assert expanded.training_of("wide", "none").batch == 64
    assert [setting.path for setting in expand.settings(expanded)] == [
        "digits/mlp/none-epsinf",
        "digits/mlp/dp-sgd-eps2",
        "digits/wide/none-epsinf",
        "digits/wide/dp-sgd-eps8",
        "digits/wide/dp-sgd-eps2",
    ]


def test_an_overridden_schedule_leaves_the_decay_behind() -> None:
    step = {"schedule": "step", "decay_epochs": 2}
    own = {"mechanisms": {"dp-sgd": {"training": {"schedule": "constant"}}}}
    expanded = audit(training=step, architectures={"mlp": own})
    assert (expanded.training_of("mlp", "none").decay, expanded.training_of("mlp", "none").decay_epochs) == (0.8, 2)
    assert expanded.training_of("mlp", "dp-sgd").decay is None


def test_a_sweep_is_an_architecture_per_combination() -> None:
    llm = {"model": "mlp", "parameters": {"width": 8}, "sweep": {"depth": [0, 2], "dropout": [0.5, False]}}
    expanded = audit(architectures={"llm": llm, "mlp": {"sweep": {"depth": [1]}}}).architectures
    assert list(expanded) == [
        "llm-depth0-dropout0.5",
        "llm-depth0-dropoutfalse",
        "llm-depth2-dropout0.5",
        "llm-depth2-dropoutfalse",
        "mlp-depth1",
    ]
    assert expanded["llm-depth2-dropout0.5"].parameters == {"width": 8, "depth": 2, "dropout": 0.5}
    assert expanded["mlp-depth1"].model == "mlp"
    swept = expanded["llm-depth2-dropout0.5"].swept
    assert swept is not None and (swept.section, swept.values) == ("llm", {"depth": 2, "dropout": 0.5})


def test_a_sweep_takes_keys_of_training_too() -> None:
    net = {"model": "mlp", "training": {"batch": 16}, "sweep": {"training.epochs": [2, 4], "width": [8]}}
    expanded = audit(architectures={"net": net})
    assert list(expanded.architectures) == ["net-epochs2-width8", "net-epochs4-width8"]
    one = expanded.architectures["net-epochs4-width8"]
    assert one.parameters == {"width": 8}
    training = expanded.training_of("net-epochs4-width8", "none")
    assert (training.epochs, training.batch) == (4, 16)
    assert one.swept is not None and one.swept.values == {"epochs": 4, "width": 8}
    plain = ReportSpec.from_audit(audit(architectures={"net": {"model": "mlp"}}))
    assert plain.settings[0].parameters == {}
    swept = ReportSpec.from_audit(expanded).settings
    assert [one.parameters for one in swept if one.epsilon == "inf"] == [
        {"width": 8, "epochs": 2},
        {"width": 8, "epochs": 4},
    ]


def test_the_files_that_a_pool_is_read_from_are_known(tmp_path: Path) -> None:
    def files(root: Path) -> list[str]:
        return audit(datasets={"mine": {"source": "arrays", "path": str(root)}}).datasets["mine"].files

    assert files(tmp_path) == []
    paths = [tmp_path / name for name in ("records.npy", "labels.npy", "some.npz")]
    for path in paths:
        path.touch()
    assert files(tmp_path) == [str(path) for path in paths[:2]]
    assert files(paths[2]) == [str(paths[2])]


def test_explanations_are_compared_within_an_architecture() -> None:
    whole = audit(architectures={"mlp": {}, "vit": {"model": "vision_transformer"}})
    assert list(expand.compared_settings(whole)) == ["digits/mlp", "digits/vit"]
    few = audit(explanation_metrics={"models": 3})
    assert expand.compared_models(few) == 3 and expand.compared_blocks(few, "none") == ["000-008"]
    assert expand.compared_settings(audit(explanation_metrics={"records": 0})) == {}


def test_public_records_are_read_by_the_mechanisms_that_say_so() -> None:
    literal = {"epsilon": [2], "acknowledge_no_guarantee": True}
    mechanisms = CONFIG["mechanisms"] | {
        "fadp": {"epsilon": [2]},
        "past": {"mechanism": "fadp", "epsilon": [2], "importance": "past"},
        "fadp-literal": literal,
    }
    both = audit(mechanisms=mechanisms)
    resolved = {name: expand.resolved_mechanism(both, name) for name in mechanisms}
    assert [name for name, section in resolved.items() if section.kind.reads_public_records(section)] == ["fadp"]
    assert [name for name, section in resolved.items() if not section.kind.private] == ["none"]
