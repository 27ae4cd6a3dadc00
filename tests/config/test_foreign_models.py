"""Models that are not built in: what goes with them is known when the config is read, and nothing of theirs is run for it."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from mia_audit.config import expand, specs
from mia_audit.config import specs as report_specs
from mia_audit.config.load import parse
from mia_audit.config.schema import Audit
from mia_audit.errors import UserError
from mia_audit.registry import code_files

FOREST = {"model": "sklearn.ensemble:RandomForestClassifier"}
SCRIPT = {"model": "train.py", "outputs": "logits"}
FILES = {
    "train.py": "raise SystemExit('not run')\ndef train(task): ...\ndef predict(model, records): ...\n",
    "fit.py": "",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def audit(architectures: dict[str, Any], **changes: Any) -> Audit:
    values = {"audit": "tiny", "datasets": {"digits": {"public": 9}}, "mechanisms": {"none": {}}}
    return parse(Audit, values | {"architectures": deepcopy(architectures)} | changes, "tiny.yaml")


def test_each_is_trained_by_its_own_learner() -> None:
    known = audit({"forest": FOREST, "mine": SCRIPT, "mlp": {}})
    assert [section.learner for section in known.architectures.values()] == ["estimator", "script", "torch-module"]
    families = expand.families_of(known)
    assert {name: list(one) for name, one in families.items()} == {
        "forest": ["gradient"],
        "mine": ["gradient"],
        "mlp": ["gradient", "ig", "gradient_shap"],
    }
    assert families["forest"]["gradient"]["explainers"] == [] and families["mine"]["gradient"]["explainers"]
    assert list(expand.compared_settings(known)) == ["digits/mlp"]
    assert [one.measured for one in report_specs.reported_settings(known)] == [False, False, True]
    assert [expand.reads_public_records(known, name, "none") for name in known.architectures] == [False, True, False]


def test_a_script_is_explained_by_what_the_config_names() -> None:
    known = audit({"mine": SCRIPT}, explainers={"methods": ["ixg", "own:shap"]})
    assert list(expand.families_of(known)["mine"]) == ["gradient", "own"]
    assert list(expand.compared_settings(known)) == ["digits/mine"]


@pytest.mark.parametrize("one", [FOREST, SCRIPT])
def test_files_of_code_are_part_of_the_specification(one: dict[str, Any], folder: Path) -> None:
    known = audit({"mine": one})
    spec = specs.ArchitectureSpec.from_audit(known, "mine")
    files = ["train.py"] if one is SCRIPT else []
    assert list(spec.contents().get("code", {})) == files == code_files(known)
    before = spec.path(folder)
    for name in files:
        (folder / name).write_text(FILES[name] + "# changed\n")
    assert (spec.path(folder) != before) == bool(files)
    json.dumps(spec.contents())


def test_estimators_do_not_depend_on_the_training_section() -> None:
    architectures = {"forest": FOREST, "mine": SCRIPT}
    first, second = audit(architectures), audit(architectures, training={"epochs": 7})
    changed = [
        specs.TrainingSpec.from_audit(first, "digits", name, "none", "inf")
        != specs.TrainingSpec.from_audit(second, "digits", name, "none", "inf")
        for name in architectures
    ]
    assert changed == [False, True]
    assert specs.TrainingSpec.from_audit(first, "digits", "forest", "none", "inf").training.epochs == 1


@pytest.mark.parametrize(
    ("architectures", "changes", "message"),
    [
        ({"forest": FOREST}, {"mechanisms": {"dp-sgd": {"epsilon": [8]}}}, "forest is trained by its own fit"),
        ({"mine": SCRIPT}, {"mechanisms": {"fadp": {"epsilon": [8]}}}, "is trained by your script: pass ε on to it"),
        ({"mlp": {}}, {"mechanisms": {"own": {"epsilon": [8]}}}, "architectures.mlp is trained by the built-in"),
        ({"forest": FOREST}, {"mechanisms": {"own": {"epsilon": [8]}}}, "such as architectures.forest receives no ε"),
        ({"forest": FOREST}, {"explainers": {"methods": ["ixg"]}}, "ixg explains only torch modules"),
        ({"forest": FOREST}, {"explainers": {"methods": ["own:shap"]}}, "own:shap explains only script"),
        ({"forest": FOREST | {"pretrained": "public"}}, {}, "pretrained: only built-in models"),
        ({"mlp": {"outputs": "logits"}}, {}, "outputs: only for models of your own, but 'mlp' is built in"),
        ({"mlp": {"votes": 3}}, {}, "votes: only for models of your own"),
        ({"mine": {"model": "train.py"}}, {}, "outputs: missing; state what predict of train.py returns"),
        ({"mine": {"model": "missing.py"}}, {}, "no such file: missing.py in"),
        ({"mine": {"model": "fit.py"}}, {}, "fit.py has no function 'train(task)': it has none"),
        ({"forest": FOREST | {"outputs": "votes"}}, {}, "forest.outputs: input should be 'logits', 'probabilities'"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    architectures: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        audit(architectures, **changes)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_mechanisms_apply_where_they_can() -> None:
    mechanisms = {"none": {}, "dp-sgd": {"epsilon": [8]}, "own": {"epsilon": [8, 2], "delta": 1e-4}}
    architectures = {
        "mlp": {"mechanisms": {"none": {}, "dp-sgd": {}}},
        "mine": SCRIPT | {"mechanisms": {"none": {}, "own": {}}},
    }
    known = audit(architectures, mechanisms=mechanisms)
    (claimed, *_) = [one for one in report_specs.reported_settings(known) if one.mechanism == "own"]
    assert (claimed.accountant, claimed.delta, claimed.private) == ("claimed", 1e-4, True)


def test_a_finished_model_is_a_setting_whose_references_are_trained() -> None:
    release = {"architecture": "forest", "model": "release.skops", "members": "members.txt"}
    known = audit({"forest": FOREST, "mine": SCRIPT}, targets={"release": release})
    assert [one.path for one in expand.settings(known)] == [
        "digits/forest/none-epsinf",
        "digits/mine/none-epsinf",
        "digits/release/none-epsinf",
    ]
    assert expand.references(known, "release").path == "digits/forest/none-epsinf"
    assert expand.target_files(known, "release") == ["release.skops", "members.txt"]
    assert specs.TargetSpec.from_audit(known, "release").number == known.membership.models
    assert list(specs.MergeSpec.of_target(known, "release").shadows) == [known.membership.models]
    assert [one.finished for one in report_specs.reported_settings(known)] == ["", "", "release.skops"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "forrest"}, "unknown architecture 'forrest': did you mean 'forest'"),
        ({"mechanism": "no"}, "targets.release.mechanism: unknown mechanism 'no'"),
        ({"epsilon": 3}, "targets.release.epsilon: name one of inf"),
        ({"dataset": "digit"}, "targets.release.dataset: unknown dataset 'digit'"),
        ({"id": "x", "members": "column:y"}, "targets.release: id: names the column of ids if members is a file"),
    ],
)
def test_a_finished_model_that_fits_nothing_is_refused(changes: dict[str, Any], message: str) -> None:
    release = {"architecture": "forest", "model": "release.skops", "members": "members.txt"} | changes
    with pytest.raises(UserError) as error:
        audit({"forest": FOREST}, targets={"release": release})
    assert message in str(error.value)


def test_a_finished_model_was_not_trained_on_wrong_labels() -> None:
    release = {"architecture": "forest", "model": "release.skops", "members": "members.txt"}
    with pytest.raises(UserError, match=r"targets.release: .* datasets.digits.label_noise adds; leave label_noise out"):
        audit({"forest": FOREST}, targets={"release": release}, datasets={"digits": {"label_noise": 0.1}})
