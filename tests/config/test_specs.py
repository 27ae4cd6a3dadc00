"""Specifications: all that a stage's output depends on, and nothing else, in a file named by its digest."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mia_audit.cli import main
from mia_audit.config import expand, specs
from mia_audit.config import specs as report_specs
from mia_audit.config.load import load_audit, parse
from mia_audit.config.schema import Audit
from mia_audit.errors import UserError

CONFIG: dict[str, Any] = {
    "audit": "tiny",
    "datasets": {"digits": {"public": 100}},
    "architectures": {"mlp": {}},
    "mechanisms": {"none": {}, "dp-sgd": {"epsilon": [8, 2], "training": {"epochs": 3}}},
}


def audit(**changes: Any) -> Audit:
    return parse(Audit, CONFIG | changes, "tiny.yaml")


def training(of: Audit, setting: expand.Setting) -> specs.TrainingSpec:
    return specs.TrainingSpec.from_audit(of, setting.dataset, setting.architecture, setting.mechanism, setting.epsilon)


def test_a_file_is_named_by_its_content_and_written_once(tmp_path: Path) -> None:
    spec = specs.PoolSpec.from_audit(audit(), "digits")
    path = spec.write(tmp_path / "specs")
    assert path == spec.path(tmp_path / "specs") and path.name.startswith("pool-") and path.suffix == ".json"
    assert specs.PoolSpec.read(path) == spec
    before = path.stat().st_mtime_ns
    assert spec.write(tmp_path / "specs") == path and path.stat().st_mtime_ns == before
    path.write_text("{}")
    spec.write(tmp_path / "specs")
    assert specs.PoolSpec.read(path) == spec, "a file with other content is written again"
    assert specs.PoolSpec.from_audit(audit(seed=1), "digits").path(tmp_path) != spec.path(tmp_path)


def every_spec(of: Audit) -> list[specs.Spec]:
    """Return the specifications of all stages that train, explain, attack and report."""
    setting = expand.settings(of)[1]
    names = (setting.dataset, setting.architecture)
    return [
        specs.PoolSpec.from_audit(of, names[0]),
        specs.GroupsSpec.from_audit(of, names[0]),
        specs.MembershipSpec.from_audit(of, names[0]),
        specs.ArchitectureSpec.from_audit(of, names[1]),
        specs.WeightsSpec.from_audit(of, names[1]),
        specs.PretrainingSpec.from_audit(of, *names),
        training(of, setting),
        specs.SignalsSpec.from_audit(of, *names),
        specs.MergeSpec.from_audit(of, names[1], setting.mechanism),
        specs.ExplanationMetricsSpec.from_audit(of, *names),
        specs.FiltersSpec.from_audit(of, names[0]),
        specs.AttackSpec.from_audit(of, names[0]),
        specs.EvaluationSpec.from_audit(of),
        specs.BlackBoxSpec.from_audit(of, names[0], "forest"),
        specs.PrivateExplanationsSpec.from_audit(of, names[0]),
        specs.ExplanationSignalsSpec.from_audit(of, names[0], "forest", "1"),
        report_specs.ReportSpec.from_audit(of),
        report_specs.PaperSpec.from_audit(of),
    ]


STUDIED = audit(private_explanations={"digits": {"architectures": ["mlp"], "attacked": ["inf", 1]}})


@pytest.mark.parametrize("spec", every_spec(STUDIED), ids=lambda spec: type(spec).__name__)
def test_a_file_holds_the_whole_specification(spec: specs.Spec, tmp_path: Path) -> None:
    path = spec.write(tmp_path)
    read = type(spec).read(path)
    assert read == spec and read.path(tmp_path) == path


def test_no_two_stages_share_a_name() -> None:
    kinds = {type(spec) for spec in every_spec(STUDIED)}
    assert len({kind.stage() for kind in kinds}) == len(kinds)
    assert specs.ExplanationMetricsSpec.stage() == "explanation-metrics"


@pytest.mark.parametrize("spec", every_spec(STUDIED), ids=lambda spec: type(spec).__name__)
def test_how_a_job_runs_is_no_part_of_a_specification(spec: specs.Spec) -> None:
    """Threads, device, checkpoints and what to do with divergence change no digest."""
    compute = {"threads": 3, "device": "cpu", "checkpoint_seconds": 1, "keep_going": True, "micro_batch": 7}
    other = parse(Audit, STUDIED.model_dump(mode="json") | {"compute": compute}, "other.yaml")
    assert spec in every_spec(other)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"seed": 0, "dataset": "digits"}', "spec.json: missing key 'membership'"),
        ('{"seed": 0, "dataset": "digits", "membership": {"modelz": 4}}', "unknown key 'membership.modelz'"),
        ('{"seed": 0, "dataset": "digits", "membership": {"models": 1}}', "membership.models: "),
        ("[]", "spec.json: expected keys and values (seed, dataset, membership, unit), got list"),
        ("{", "spec.json: not JSON: "),
        (None, "spec.json: no such file or directory; expected the JSON file of a specification"),
    ],
)
def test_a_mistake_in_a_specification_is_one_line(
    text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec.json"
    if text is not None:
        spec.write_text(text)
    files = {"spec": spec, "records": tmp_path / "records.parquet", "out": tmp_path / "membership.parquet"}
    assert main(["membership", *(word for name, path in files.items() for word in (f"--{name}", str(path)))]) == 2
    error = capsys.readouterr().err
    assert error.startswith("mia-audit: ") and error.count("\n") == 1 and message in error


@pytest.mark.parametrize("spec", every_spec(STUDIED), ids=lambda spec: type(spec).__name__)
def test_a_missing_key_is_named(spec: specs.Spec, tmp_path: Path) -> None:
    required = [name for name, field in type(spec).model_fields.items() if field.is_required()]
    values = spec.contents()
    for name in required:
        (tmp_path / "spec.json").write_text(json.dumps({key: value for key, value in values.items() if key != name}))
        with pytest.raises(UserError, match=f"missing key '{name}'"):
            type(spec).read(tmp_path / "spec.json")
    assert required


def test_a_swept_architecture_depends_on_what_it_is_made_of_alone() -> None:
    swept = audit(architectures={"mlp": {"sweep": {"depth": [1, 2]}}})
    written = audit(architectures={"mlp-depth1": {"model": "mlp", "parameters": {"depth": 1}}})
    assert specs.ArchitectureSpec.from_audit(swept, "mlp-depth1") == specs.ArchitectureSpec.from_audit(
        written, "mlp-depth1"
    )
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
        {"training": {"floor": 0.5}},
        {"mechanisms": {"none": {}, "dp-sgd": {"epsilon": [8, 2, 1], "training": {"epochs": 3}}}},
    ],
)
def test_training_does_not_depend_on_what_comes_after_it(changes: dict[str, Any]) -> None:
    for setting in expand.settings(audit()):
        assert training(audit(**changes), setting) == training(audit(), setting)
    assert specs.PoolSpec.from_audit(audit(**changes), "digits") == specs.PoolSpec.from_audit(audit(), "digits")


def test_specifications_hold_no_key_that_does_not_apply() -> None:
    first = expand.settings(audit())[0]
    assert "decay_epochs" not in training(audit(), first).contents()["training"]
    assert "share" not in specs.MembershipSpec.from_audit(audit(), "digits").contents()["membership"]
    split = specs.MembershipSpec.from_audit(audit(membership={"design": "split"}), "digits")
    assert split.contents()["membership"]["share"] == 0.8


def test_a_pool_depends_on_the_keys_that_its_section_has() -> None:
    values = specs.PoolSpec.from_audit(audit(), "digits").contents()
    assert values == {"dataset": {"public": 100, "source": "digits"}, "name": "digits", "seed": 0}
    scaled = {"standardise": "public", "public": 100}
    one, other = (
        specs.PoolSpec.from_audit(audit(datasets={"breast_cancer": scaled | changed}), "breast_cancer").contents()
        for changed in ({}, {"public": 99})
    )
    assert one["dataset"] == {"source": "breast_cancer", **scaled} and one != other


def test_groups_and_chosen_architectures_build_and_train_nothing_again() -> None:
    chosen = {"public": 100, "groups": ["class"], "architectures": ["mlp"]}
    plain, grouped = audit(), audit(datasets={"digits": chosen})
    assert specs.PoolSpec.from_audit(grouped, "digits") == specs.PoolSpec.from_audit(plain, "digits")
    assert specs.GroupsSpec.from_audit(grouped, "digits").contents()["dataset"]["groups"] == ["class"]
    assert "architectures" not in specs.GroupsSpec.from_audit(grouped, "digits").contents()["dataset"]
    (setting, *_) = expand.settings(grouped)
    assert training(grouped, setting) == training(plain, setting)
    assert {one.architecture for one in expand.settings(grouped)} == {"mlp"}
    assert expand.grouped_settings(grouped) == expand.settings(grouped) and expand.grouped_settings(plain) == []
    with pytest.raises(UserError, match=r"datasets\.digits\.architectures: unknown architecture 'mlpp'"):
        audit(datasets={"digits": chosen | {"architectures": ["mlpp"]}})


def test_a_data_set_names_a_sweep_by_its_section() -> None:
    swept = {"deep": {"model": "mlp", "sweep": {"depth": [1, 2]}}, "wide": {"model": "mlp"}}
    found = audit(datasets={"digits": {"architectures": ["deep"]}}, architectures=swept)
    assert len(found.architectures_of("digits")) == 2 and "wide" not in found.architectures_of("digits")


def test_a_floor_is_overridden_by_mechanism_and_told_by_data_set() -> None:
    mechanisms = {"none": {}, "dp-sgd": {"epsilon": [8], "training": {"floor": 0.3}}}
    found = audit(training={"floor": {"digits": 0.9}}, mechanisms=mechanisms)
    assert {one.mechanism: one.floor for one in report_specs.reported_settings(found)} == {"none": 0.9, "dp-sgd": 0.3}
    assert (
        expand.floor_of(found, "digits", "mlp", "none") == 0.9
        and expand.floor_of(audit(), "digits", "mlp", "none") == 0
    )


def test_the_config_hash_ignores_how_work_is_divided() -> None:
    assert report_specs.config_hash(audit(compute={"threads": 2})) == report_specs.config_hash(audit())
    assert report_specs.config_hash(audit(seed=1)) != report_specs.config_hash(audit())


def test_explanations_are_compared_with_the_setting_without_privacy() -> None:
    whole = audit(architectures={"mlp": {}, "vit": {"model": "vision_transformer"}})
    spec = specs.ExplanationMetricsSpec.from_audit(whole, "digits", "vit")
    assert spec.settings == (("none", "inf"), ("dp-sgd", "8"), ("dp-sgd", "2"))
    assert spec.reference == ("none", "inf") and spec.models == 17
    assert "ig_nodes" in spec.explaining and spec.measuring == {"top_share": 0.1}
    bare = audit(mechanisms={"dp-sgd": {"epsilon": [8]}}, explanation_metrics={"models": 3, "explainers": ["ixg"]})
    spec = specs.ExplanationMetricsSpec.from_audit(bare, "digits", "mlp")
    assert spec.reference is None and spec.models == 3 and "ig_nodes" not in spec.explaining


@pytest.mark.parametrize("changes", [{"records": 5}, {"measures": ["deletion"]}, {"radius": 1.0}, {"shown": 0}])
def test_nothing_before_it_depends_on_how_explanations_are_measured(changes: dict[str, Any]) -> None:
    changed = audit(explanation_metrics=changes)
    for setting in expand.settings(audit()):
        assert training(changed, setting) == training(audit(), setting)
    for stage in (specs.AttackSpec, specs.PoolSpec, specs.MembershipSpec):
        assert stage.from_audit(changed, "digits") == stage.from_audit(audit(), "digits")  # type: ignore[attr-defined]
    one, other = (specs.ExplanationMetricsSpec.from_audit(one, "digits", "mlp") for one in (changed, audit()))
    assert (one == other) == ("radius" in changes), "only options that the chosen measures read count"


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
        for setting in expand.settings(before)
        if training(before, setting) != training(after, setting)
        or specs.ArchitectureSpec.from_audit(before, setting.architecture)
        != specs.ArchitectureSpec.from_audit(after, setting.architecture)
    }
    every = {setting.path for setting in expand.settings(before)}
    assert every <= {setting.path for setting in expand.settings(after)} and len(every) == 3 * 4
    assert retrained == {path for path in every if changed is not None and changed in path}


def test_a_mechanism_depends_on_the_keys_that_it_reads() -> None:
    importance = {"fadp": {"epsilon": [2]}, "fadp-literal": {"epsilon": [2], "acknowledge_no_guarantee": True}}
    both = audit(mechanisms=CONFIG["mechanisms"] | importance)
    sections = {setting.mechanism: training(both, setting).contents()["mechanism"] for setting in expand.settings(both)}
    noise, unit = {"accountant", "clipping", "clip_norm"}, {"unit", "records_per_person"}
    own = {name: set(section) - set(sections["none"]) for name, section in sections.items()}
    assert own == {
        "none": set(),
        "dp-sgd": noise | unit,
        "fadp": noise | unit | {"factors", "importance"},
        "fadp-literal": noise | {"factors", "acknowledge_no_guarantee"},
    }
    for setting in expand.settings(audit()):
        assert training(both, setting) == training(audit(), setting)


def test_a_mechanism_without_a_guarantee_is_not_private_and_says_why() -> None:
    section = {"fadp-literal": {"epsilon": [3], "acknowledge_no_guarantee": True}}
    setting = report_specs.reported_settings(audit(mechanisms=section))[0]
    assert not setting.private and setting.delta is None and "private batch" in setting.no_guarantee


def test_a_pool_depends_on_what_its_files_hold_and_not_on_their_dates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("people.csv")
    path.write_text("age,label\n1.5,a\n2.5,b\n")
    values = {"datasets": {"people": {"source": "table", "path": "people.csv"}}, "architectures": {"mlp": {}}}
    audit = parse(Audit, {"audit": "a", "mechanisms": {"none": {}}, **values}, "a.yaml")
    before = specs.PoolSpec.from_audit(audit, "people").path(tmp_path)
    os.utime(path, (1, 1))
    assert specs.PoolSpec.from_audit(audit, "people").path(tmp_path) == before
    path.write_text("age,label\n1.5,a\n9.5,b\n")
    assert specs.PoolSpec.from_audit(audit, "people").path(tmp_path) != before


def test_labels_are_by_mechanism_or_by_mechanism_and_epsilon() -> None:
    labels = {
        "datasets": {"digits": "Digits"},
        "settings": {"dp-sgd": "DP-SGD", "dp-sgd-eps2": "ours", "none": "plain"},
    }
    mechanisms = {"none": {}, "dp-sgd": {"epsilon": [8, 2]}}
    settings = report_specs.reported_settings(audit(mechanisms=mechanisms, report={"labels": labels}))
    assert {one.dataset_label for one in settings if one.dataset == "digits"} == {"Digits"}
    found = {f"{one.mechanism}-eps{one.epsilon}": (one.label, one.mechanism_label) for one in settings}
    assert found["none-epsinf"] == ("plain", "plain")
    assert found["dp-sgd-eps8"] == ("", "DP-SGD") and found["dp-sgd-eps2"] == ("ours", "DP-SGD")


def test_what_a_script_trains_is_named_by_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may protect its models itself, so that the report does not say of them that nothing does."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("def train(task): ...\n")
    own = {"plain": {"model": "train.py"}, "mlp": {}}
    values = {"audit": "a", "datasets": {"breast_cancer": {}}, "architectures": own, "mechanisms": {"none": {}}}
    settings = report_specs.reported_settings(parse(Audit, values, "a.yaml"))
    assert {one.architecture: one.label for one in settings} == {"plain": "train.py", "mlp": ""}


def test_settings_with_more_models_than_others_are_evaluated_by_as_many_too() -> None:
    of = audit(
        membership={"models": 9}, mechanisms={"none": {}, "few": {"mechanism": "dp-sgd", "epsilon": [8], "models": 5}}
    )
    models = {name: specs.EvaluationSpec.from_audit(of, name).models for name in ("none", "few", "imported")}
    assert models == {"none": 5, "few": None, "imported": None}


def test_the_digest_of_a_pool_stays() -> None:
    """The bytes of a pool have it, and the noise and the batches of all trainings from a public start follow from these."""
    known = specs.PoolSpec.from_audit(
        load_audit(Path(__file__).parents[2] / "config" / "digits.yaml"), "digits"
    ).dataset.digest
    assert known == "af7384328f29f009445b1244b76b98775a348c86b8d5fecc3c9538aed7bdb4c7"
