"""Games about the audit behind a release: another training than was audited, and verdicts about something else."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from mia_audit.config.load import check_audit
from mia_audit.config.specs import PretrainingSpec
from mia_audit.errors import UserError
from mia_audit.learners.protocol import Compute
from mia_audit.models.architecture import construct, keyed
from mia_audit.models.weights import save_weights
from mia_audit.releasing.audited import training_sha256
from mia_audit.releasing.recipe import ReleaseRecipe
from mia_audit.releasing.release import release
from mia_audit.report.provenance import trained
from mia_audit.storage import sha256
from mia_audit.storage.digests import audit_id
from mia_audit.training.task import identity

from .conftest import ROWS, config
from .test_release import SETTING

NAMES = {"path": SETTING, "dataset": "rows", "architecture": "mlp", "mechanism": "dp-sgd", "epsilon": "4"}

MECHANISM = """
from mia_audit.privacy.catalogue import Unit, mechanism
from mia_audit.privacy.mechanisms import DPSGD, Noise

@mechanism(options=(Noise, Unit))
class Mine(DPSGD):
    times = {noise}
"""


def finish(recipe):
    """Write what the report of a finished audit says about its config; return the digest of the training."""
    config = recipe.audit.model_dump(mode="json", exclude={"compute"})
    read = ("pools/rows/records.parquet", "pools/rows/public.parquet", "rows/mlp/architecture.json")
    values = {
        "audit": "tiny",
        "settings": [NAMES | trained(config, NAMES)],
        "inputs_sha256": {name: sha256(recipe.results / name) for name in read},
    }
    (recipe.results / "provenance.json").write_text(json.dumps(values))
    return trained(config, NAMES)["training_sha256"]


def verdicts(recipe, **changes):
    values = {
        "audit_id": audit_id(recipe.results),
        "training_sha256": {SETTING: training_sha256(recipe)},
        "provenance_sha256": sha256(known) if (known := recipe.results / "provenance.json").exists() else "",
        "policy_sha256": "a" * 64,
        "verdict": "fail",
    }
    path = Path("gate.json")
    path.write_text(json.dumps(values | changes))
    return path


def released(prepared, out="out", gate=None):
    return release(prepared, "0" * 64, Path(out), Compute(), verdicts=gate)


def test_a_card_says_which_policy_was_checked_on_which_audit_and_with_what_result(recipe):
    prepared = recipe()
    digest = finish(prepared)
    gate = verdicts(prepared)
    card = released(prepared, gate=gate)
    assert card["audit"]["training_sha256"] == digest == training_sha256(prepared)
    assert card["audit"]["gate"] == {
        "policy_sha256": "a" * 64,
        "verdicts_sha256": sha256(gate),
        "training_sha256": digest,
        "verdict": "fail",
    }
    assert "**Policy: fail.**" in Path("out", "card.md").read_text()


def test_a_card_without_a_policy_or_an_audit_says_so(recipe):
    card = released(recipe())
    assert card["audit"]["gate"] is None and card["audit"]["training_sha256"] is None
    page = Path("out", "card.md").read_text()
    assert "No policy was checked" in page and "No finished audit" in page


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"epochs": 6, "batch": 10}},
        {"mechanisms": {"dp-sgd": {"epsilon": [4], "clipping": "flat", "clip_norm": 2}}},
        {"architectures": {"mlp": {"parameters": {"width": 9}}}},
        {"training": {"epochs": 2, "batch": 10}, "mechanisms": {"dp-sgd": {"epsilon": [4], "training": {"epochs": 3}}}},
        {"architectures": {"mlp": {"parameters": {"width": 8}, "training": {"epochs": 3}}}},
    ],
)
def test_another_training_than_was_audited_is_refused(recipe, changes):
    audited = recipe()
    finish(audited)
    gate = verdicts(audited)
    other = recipe(**changes)
    with pytest.raises(UserError, match="of another training than the config describes"):
        released(other)
    (other.results / "provenance.json").unlink()
    with pytest.raises(UserError, match="about another training of"):
        released(other, gate=gate)
    assert not Path("out").exists() and not Path(".out.unfinished").exists()


def network(training=None, under=None):
    return {"mlp": {"parameters": {"width": 8}, "training": training or {}, "mechanisms": {"dp-sgd": under or {}}}}


@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"epochs": 2, "batch": 10, "floor": 0.1}},
        {"mechanisms": {"none": {}, "dp-sgd": {"epsilon": [4], "training": {"floor": 0.1}}}},
        {"architectures": network({"floor": 0.1})},
        {"architectures": network(under={"training": {"floor": {"rows": 0.1}}})},
    ],
)
def test_a_floor_of_the_accuracy_is_no_part_of_a_training(recipe, changes):
    audited = recipe(architectures=network())
    finish(audited)
    gate = verdicts(audited)
    other = recipe(**({"architectures": network()} | changes))
    assert other.audit != audited.audit
    assert released(other, gate=gate)["audit"]["training_sha256"] == training_sha256(audited)


def test_code_in_two_files_of_one_name_is_compared_file_by_file(recipe, tmp_path):
    for noise, folder in ((1, tmp_path / "x"), (2, tmp_path / "y")):
        folder.mkdir()
        folder.joinpath("mine.py").write_text(MECHANISM.format(noise=noise))

    def of(first, second):
        listed = {"dp-sgd": {"mechanism": f"{tmp_path / first}/mine.py:Mine", "epsilon": [4]}}
        return recipe(mechanisms=listed | {"b": {"mechanism": f"{tmp_path / second}/mine.py:Mine", "epsilon": [4]}})

    finish(of("x", "y"))
    with pytest.raises(UserError, match="of another training than the config describes"):
        released(of("y", "x"))
    assert training_sha256(of("x", "y")) == training_sha256(of("x", "x"))


def test_settings_and_budgets_that_are_added_leave_an_audit_valid(recipe):
    finish(recipe())
    more = {"none": {}, "dp-sgd": {"epsilon": [4, 2]}, "other": {"mechanism": "dp-sgd", "epsilon": [1]}}
    assert released(recipe(mechanisms=more))["audit"]["training_sha256"]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"audit_id": "b" * 32}, "about the audit b+; expected that in"),
        ({"training_sha256": {"rows/mlp/none-epsinf": "c"}}, "not about rows/mlp/dp-sgd-eps4"),
        ({"training_sha256": {SETTING: "c"}}, "about another training"),
    ],
)
def test_verdicts_about_something_else_are_refused(recipe, changes, match):
    prepared = recipe()
    with pytest.raises(UserError, match=match):
        released(prepared, gate=verdicts(prepared, **changes))


def test_verdicts_about_an_earlier_state_of_the_audit_are_refused(recipe):
    prepared = recipe()
    finish(prepared)
    gate = verdicts(prepared)
    finish(recipe(swapped=True))  # the same config, id and training, but other records
    with pytest.raises(UserError, match="about an earlier state of the audit"):
        released(recipe(swapped=True), gate=gate)


def test_a_pool_that_changed_after_the_audit_is_refused(recipe):
    finish(recipe())
    with pytest.raises(UserError, match=r"records\.parquet: changed since the audit"):
        released(recipe(swapped=True))


@pytest.mark.parametrize("name", ["pools/rows/public.parquet", "rows/mlp/architecture.json"])
def test_what_the_models_start_from_is_what_was_audited(recipe, name):
    prepared = recipe()
    finish(prepared)
    path = prepared.results / name
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(UserError, match="changed since the audit"):
        released(prepared)


@pytest.mark.parametrize("left_out", [{"public": 20}, {"label_noise": 0.2}, {"take": "sample", "records": 60}])
def test_a_pool_that_was_built_before_the_config_changed_is_refused(audited, left_out):
    audit, results = audited(datasets={"rows": ROWS | left_out})
    audit = check_audit(config(), "config")
    with pytest.raises(UserError, match="pools/rows: not what the config describes"):
        released(ReleaseRecipe.from_audit(audit, SETTING, results))
    assert not Path("out").exists() and not Path(".out.unfinished").exists()


def test_an_architecture_of_a_vocabulary_that_was_collected_is_refused(audited):
    _, results = audited(datasets={"rows": ROWS | {"classes": [0, 1, "a third"]}})
    before = (results / "rows/mlp/architecture.json").read_bytes()
    audit, _ = audited()
    (results / "rows/mlp/architecture.json").write_bytes(before)  # a kill after the pool leaves it
    with pytest.raises(UserError, match=r"architecture\.json: not what the config describes"):
        released(ReleaseRecipe.from_audit(audit, SETTING, results))
    assert not Path("out").exists() and not Path(".out.unfinished").exists()


@pytest.mark.parametrize("changed", ["", "public", "epochs"])
def test_initial_weights_of_another_public_training_are_refused(recipe, changed):
    section = {"parameters": {"width": 8}, "pretrained": "public"}
    prepared = recipe(architectures={"mlp": section})
    spec = PretrainingSpec.from_audit(prepared.audit, "rows", "mlp").contents()
    public = "0" * 64 if changed == "public" else sha256(prepared.pool / "public.parquet")
    trained_from = identity(spec=spec, architecture=keyed(prepared.architecture), public=public)
    save_weights(construct(prepared.architecture, 0), prepared.folder / "public.safetensors", trained_from)
    now = recipe(architectures={"mlp": section | ({"pretraining": {"epochs": 3}} if changed == "epochs" else {})})
    with pytest.raises(UserError, match="not what the config describes") if changed else nullcontext():
        released(now)


@pytest.mark.parametrize("finished", [False, True])
def test_files_that_changed_since_the_audit_read_them_are_refused(recipe, finished):
    save_weights(construct(recipe(where="other").architecture, 0), Path("weights.safetensors"))
    weights = Path("weights.safetensors").absolute()
    prepared = recipe(architectures={"mlp": {"parameters": {"width": 8}, "pretrained": str(weights)}})
    start = prepared.folder / "start.safetensors"
    start.write_bytes(weights.read_bytes())
    start.with_suffix(".json").write_text(json.dumps({"pretrained": str(weights), "file": sha256(weights)}))
    if finished:
        finish(prepared)
    released(prepared)
    before = weights.read_bytes()
    for path, match in ((weights, "start.safetensors: not what"), (Path("data/records.npy"), "pools/rows: not what")):
        path.write_bytes(path.read_bytes() + b" ")
        with pytest.raises(UserError, match=match):
            released(prepared, out="again")
        weights.write_bytes(before)


def test_another_file_of_the_same_name_is_not_what_was_audited(audited):
    audit, results = audited()
    finish(ReleaseRecipe.from_audit(audit, SETTING, results))
    shutil.copytree("data", "later/data")
    later = check_audit(config(datasets={"rows": ROWS | {"path": "later/data"}}), "config")
    with pytest.raises(UserError, match="pools/rows: not what the config describes"):
        released(ReleaseRecipe.from_audit(later, SETTING, results))
    assert not Path("out").exists() and not Path(".out.unfinished").exists()


def test_an_architecture_of_other_parameters_is_refused(audited):
    _, results = audited()
    other = check_audit(config(architectures={"mlp": {"parameters": {"width": 9}}}), "config")
    with pytest.raises(UserError, match=r"architecture\.json: not what the config describes"):
        released(ReleaseRecipe.from_audit(other, SETTING, results))
