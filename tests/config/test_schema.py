"""The config models: what is accepted, and the one line that every mistake gets."""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from mia_audit.config.expand import settings
from mia_audit.config.load import parse
from mia_audit.config.schema import Audit
from mia_audit.config.specs import TrainingSpec
from mia_audit.errors import UserError
from mia_audit.privacy.mechanisms import Noise
from mia_audit.sections import RESERVED
from mia_audit.storage.digests import LOCAL, MANIFEST, SIGNATURE

SMALLEST: dict[str, Any] = {
    "audit": "tiny",
    "datasets": {"digits": {"public": 100}},
    "architectures": {"mlp": {}},
    "mechanisms": {"none": {}, "dp-sgd": {"epsilon": [8, 0.5]}},
}


def changed(path: str, value: object) -> dict[str, Any]:
    values = deepcopy(SMALLEST)
    *folders, key = path.split("/")
    section = values
    for folder in folders:
        section = section.setdefault(folder, {})
    section[key] = value
    return values


@pytest.mark.parametrize("section", ["datasets", "imported"])
@pytest.mark.parametrize("name", RESERVED)
def test_a_data_set_has_no_name_of_another_folder_of_results(section: str, name: str) -> None:
    values = changed(f"{section}/{name}", {"source": "digits"} if section == "datasets" else {"signals": "s.parquet"})
    with pytest.raises(UserError, match=f"tiny.yaml: {section}.{name}: '{name}' is the name of a file or folder"):
        parse(Audit, values, "tiny.yaml")


def test_all_folders_beside_data_sets_are_reserved() -> None:
    """The workflow writes no other folder, and no folder that SHA256SUMS leaves out can be a data set."""
    rules = Path(__file__).parents[2] / "workflow"
    texts = [path.read_text() for path in rules.rglob("*") if path.suffix in (".smk", "") and path.is_file()]
    written = {name for text in texts for name in re.findall(r"(?:<results>|\{results\})/([A-Za-z][\w.]*)", text)}
    assert written and written <= {*RESERVED}
    assert {*LOCAL, MANIFEST, SIGNATURE} <= {*RESERVED}


def test_the_smallest_config_is_complete_by_defaults() -> None:
    audit = parse(Audit, SMALLEST, "tiny.yaml")
    assert audit.membership.models == 17
    assert audit.mechanisms["dp-sgd"].epsilon == ("8", "0.5")


@pytest.mark.parametrize(
    ("written", "carried"), [(8, "8"), (0.5, "0.5"), ("0.50", "0.50"), (float("inf"), "inf"), ("INF", "inf")]
)
def test_epsilon_is_carried_as_the_user_wrote_it(written: object, carried: str) -> None:
    mechanism = "none" if carried == "inf" else "dp-sgd"
    audit = parse(Audit, changed(f"mechanisms/{mechanism}/epsilon", [written]), "tiny.yaml")
    assert audit.mechanisms[mechanism].epsilon == (carried,)


def test_a_stated_noise_multiplier_names_a_setting_instead_of_epsilon() -> None:
    audit = parse(Audit, changed("mechanisms/coarse", {"mechanism": "dp-sgd", "noise_multiplier": 1.30}), "tiny.yaml")
    assert audit.budgets("mlp") == {"none": ("inf",), "dp-sgd": ("8", "0.5"), "coarse": ("z1.3",)}
    spec = TrainingSpec.from_audit(audit, "digits", "mlp", "coarse", "z1.3")
    assert spec.mechanism.read(Noise).noise_multiplier == 1.3 and spec.epsilon == "z1.3"
    assert (
        "noise_multiplier" not in TrainingSpec.from_audit(audit, "digits", "mlp", "dp-sgd", "8").contents()["mechanism"]
    )
    assert settings(audit)[-1].label == "coarse, noise multiplier 1.3"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("mechanisms/dp-sgd/noise_multiplier", 1.3, "noise_multiplier: given together with epsilon"),
        ("mechanisms/dp-sgd/clip_norm", 1e13, "mechanisms.dp-sgd.clip_norm: input should be less than or equal to"),
        ("mechanisms/dp-sgd/clip_norm", 1e-25, "mechanisms.dp-sgd.clip_norm: input should be greater than or equal to"),
        ("mechanisms/dp-sgd/epsilon", ["z1.3"], "expected a positive number or inf as ε, got 'z1.3'"),
        ("datasets/digits/pubic", 5, "unknown key 'datasets.digits.pubic': did you mean 'public'?"),
        ("architectures/mlp/pretraining", {"epoch": 3}, "mlp.pretraining.epoch': did you mean 'epochs'?"),
        ("mechanisms/dp-sgd/training", {"lr": 3}, "dp-sgd.training.lr': did you mean 'learning_rate'? (known: batch"),
        ("seed", "soon", "seed: input should be a valid integer"),
        ("mechanisms/dp-sgd/epsilon", [-1], "dp-sgd.epsilon.0: expected a positive number or inf as ε, got '-1'"),
        ("mechanisms/dp-sgd/epsilon", ["nan"], "expected a positive number or inf as ε, got 'nan'"),
        ("datasets/a b", {"source": "digits"}, "'a b' becomes the name of a folder"),
        ("audit", "../up", "audit: '../up' becomes the name of a folder"),
        ("explainers/methods", ["ixq"], "explainers.methods: unknown explainer 'ixq': did you mean 'ixg'?"),
        ("explanation_metrics/measures", ["ssmi"], "unknown measure 'ssmi': did you mean 'ssim'?"),
        ("explanation_metrics/explainers", ["ixq"], "explanation_metrics.explainers: unknown explainer 'ixq'"),
        ("attacks/methods", ["l1_lrt"], "attacks.methods: unknown attack 'l1_lrt': did you mean 'l1-lrt'?"),
        ("architectures", {}, "missing key 'architectures': an audit needs datasets, architectures and mechanisms"),
        ("imported/digits", {"signals": "s.parquet"}, "imported.digits: a data set has the same name"),
        ("imported/other", {"signals": "s.parquet", "epsilon": 8}, "imported.other: a guarantee has an ε and a δ"),
        ("imported/other", {"signals": "s.parquet", "delta": 1e-5}, "imported.other: a guarantee has an ε and a δ"),
        ("datasets/digits/standardise", "audited", "should be 'none', 'public' or 'stated'"),
        ("explainers", {"methods": ["llm-global"], "explain": ["probability"]}, "llm-global explains only the logit"),
        ("membership", {"design": "split", "share": 1}, "membership.share: input should be less than 1"),
        ("training/decay", 0.5, "training: decay: requires schedule step, but schedule is cosine"),
        ("mechanisms/none/training", {"decay_epochs": 2}, "mlp under none: decay_epochs: requires schedule step"),
        ("training/floor", {"digit": 0.5}, "mlp under none: floor: unknown data set 'digit'"),
        ("architectures/mlp/pretraining", {"floor": 0.5}, "mlp: pretraining.floor: only shadow"),
        ("architectures/mlp/sweep", {"depth": 2}, "architectures.mlp.sweep.depth: input should be a valid"),
        ("architectures/mlp/sweep", {"depth": []}, "architectures.mlp.sweep.depth: "),
        ("architectures/mlp/sweep", {"depth": [2, 2]}, "mlp.sweep: two combinations are named 'mlp-depth2'"),
        ("architectures/mlp/sweep", {"note": ["a/b"]}, "'mlp-notea/b' becomes the name of a folder"),
        ("architectures/mlp", {"sweep": {"depth": [1]}, "parameters": {"depth": 2}}, "mlp: sweep.depth: also given in"),
        ("architectures/mlp/sweep", {"training.epoch": [1]}, "sweep.training.epoch: not a key of training"),
        ("architectures/mlp/sweep", {"training.floor": [0.5]}, "sweep.training.floor: not a key of training"),
        ("architectures/mlp/sweep", {"training.epochs": [0]}, "mlp.sweep.training.epochs: input should be"),
        (
            "architectures/mlp",
            {"sweep": {"training.epochs": [1]}, "mechanisms": {"none": {"training": {"epochs": 3}}}},
            "epochs: also given in mechanisms.none",
        ),
        ("architectures", {"mlp": {"sweep": {"depth": [1]}}, "mlp-depth1": {}}, "'mlp-depth1' is the name of a sweep"),
        ("architectures/mlp/mechanisms", {"dp-sgd": {"epsilon": [4]}}, "4 is no value of the mechanism"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(path: str, value: object, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(Audit, changed(path, value), "tiny.yaml")
    message = str(caught.value)
    assert message.startswith("tiny.yaml: ")
    assert expected in message
    assert "\n" not in message


def test_several_mistakes_are_named_at_once() -> None:
    values = changed("seed", "soon") | {"explaners": {}}
    with pytest.raises(UserError, match=r"seed: .*; unknown key 'explaners'"):
        parse(Audit, values, "tiny.yaml")


def test_keys_of_other_mechanisms_and_missing_acknowledgements_are_one_line() -> None:
    public = {"digits": {"public": 10}}
    base = {"audit": "tiny", "architectures": {"mlp": {}}}

    def refusal(mechanism: str, section: dict[str, Any], datasets: dict[str, Any] = public) -> str:
        mechanisms = {mechanism: {"epsilon": [3]} | section}
        with pytest.raises(UserError) as error:
            parse(Audit, base | {"datasets": datasets, "mechanisms": mechanisms}, "tiny.yaml")
        assert "\n" not in str(error.value)
        return str(error.value)

    foreign = refusal("dp-sgd", {"factors": [0.5, 0.7, 1]})
    assert "mechanisms.dp-sgd.factors: 'dp-sgd' does" in foreign and "a key of fadp and fadp-literal" in foreign
    foreign = refusal("dp-sgd", {"acknowledge_no_guarantee": True})
    assert (
        "mechanisms.dp-sgd.acknowledge_no_guarantee: 'dp-sgd' does not" in foreign and "key of fadp-literal" in foreign
    )
    assert "'fadp-literal' guarantees nothing: the" in refusal("fadp-literal", {})
    bare = refusal("fadp", {}, {"digits": {}})
    assert "mechanisms.fadp: 'fadp' reads public" in bare and "but datasets.digits.public is 0" in bare
    flat = {"clipping": "flat", "clip_norm": 1e12}
    for clip in (1e-13, 1e13):  # times the clipping norm it would be in range
        assert "mechanisms.fadp.group_clips.0: " in refusal("fadp", flat | {"group_clips": [clip, 1, 1, 1]})
    assert "mechanisms.fadp.factors.0: " in refusal("fadp", {"factors": [0, 0.8, 1]})
    assert "mechanisms.fadp.factors.0: " in refusal(
        "fadp", {"factors": [1e-4, 0.8, 1]}
    )  # squares would vanish in float32
    past = {"fadp": {"epsilon": [3], "importance": "past"}}
    parse(Audit, base | {"datasets": {"digits": {}}, "mechanisms": past}, "tiny.yaml")


@pytest.mark.parametrize(("unit", "refused"), [(None, True), ("person", True), ("record", False)])
def test_a_canary_is_no_person(unit: str | None, refused: bool) -> None:
    values = changed("canaries/settings", ["visits/mlp/dp-sgd-eps8"])
    values["datasets"] = {"visits": {"source": "table", "path": "v.csv", "label": "y", "person": "id"}}
    values["mechanisms"]["dp-sgd"] |= {} if unit is None else {"unit": unit}
    if refused:
        with pytest.raises(UserError, match=r"canaries\.settings: .*protects persons, but a canary is one record"):
            parse(Audit, values, "tiny.yaml")
    else:
        parse(Audit, values, "tiny.yaml")
