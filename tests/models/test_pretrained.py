"""Weights to start from: the hub's, a file's, fitted to the pool; what does not fit is one line, and no pickle is run."""

import json
import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mia_audit.cli import main
from mia_audit.errors import UserError
from mia_audit.models.architecture import build, construct, describe, fetch, own_normalisation, read_start
from mia_audit.models.weights import save_weights, write_weights

from ..builders import Trap

SHAPE, CLASSES = (3, 32, 32), 4
TINY = {"img_size": 32, "patch_size": 16, "embed_dim": 8, "depth": 2, "num_heads": 1}
VIT = "vit_small_patch16_224"
WHERE = "architectures.some.pretrained"


def architecture(model: str = VIT, shape: tuple[int, ...] = SHAPE, **parameters: Any) -> dict[str, Any]:
    return describe("some", model, TINY | parameters, shape, CLASSES)


def published(model: str = VIT, classes: int = 1000, **parameters: Any) -> nn.Module:
    return build(model, TINY | parameters, SHAPE, classes, seed=7)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Tensor]:
    """Stand in for the download: what timm would have fetched."""
    weights = published().state_dict()
    from timm.models import _builder

    monkeypatch.setattr(_builder, "load_state_dict_from_hf", lambda *_, **__: dict(weights))
    return weights


def everything_but_the_classifier(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in weights.items() if not name.startswith("head.")}


def assert_same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
    assert set(one) == set(other)
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_the_hubs_weights_come_without_their_classifier(hub: Mapping[str, Tensor]) -> None:
    assert_same(fetch(architecture(), "hub", WHERE), everything_but_the_classifier(hub))


def test_the_hubs_weights_are_fitted_to_grey_images_and_to_their_size(hub: Mapping[str, Tensor]) -> None:
    grey = fetch(architecture(shape=(1, 32, 32)), "hub", WHERE)
    torch.testing.assert_close(
        grey["patch_embed.proj.weight"], hub["patch_embed.proj.weight"].sum(dim=1, keepdim=True), rtol=1e-5, atol=1e-6
    )
    larger = fetch(architecture(img_size=64), "hub", WHERE)
    assert larger["pos_embed"].shape == (1, 17, 8)


@pytest.mark.parametrize("suffix", ["safetensors", "pth"])
@pytest.mark.parametrize("classes", [1000, CLASSES])
def test_a_file_of_weights(tmp_path: Path, suffix: str, classes: int) -> None:
    weights, path = published(classes=classes).state_dict(), tmp_path / f"weights.{suffix}"
    write_weights(weights, path) if suffix == "safetensors" else torch.save({"state_dict": weights, "epoch": 3}, path)
    assert_same(fetch(architecture(), str(path), WHERE), everything_but_the_classifier(weights))


def test_a_file_without_a_classifier(tmp_path: Path) -> None:
    weights = everything_but_the_classifier(published().state_dict())
    torch.save({f"module.{name}": value for name, value in weights.items()}, tmp_path / "weights.pth")
    assert_same(fetch(architecture(), str(tmp_path / "weights.pth"), WHERE), weights)


def test_a_file_for_a_model_that_is_not_timms(tmp_path: Path) -> None:
    metadata = describe("some", "mlp", {"width": 8}, (5,), CLASSES)
    model = build("mlp", {"width": 8}, (5,), 9, seed=7)
    save_weights(model, tmp_path / "mlp.safetensors")
    start = fetch(metadata, str(tmp_path / "mlp.safetensors"), WHERE)
    assert set(model.state_dict()) - set(start) == {"6.weight", "6.bias"}
    with pytest.raises(UserError, match="hub: there are no published weights of 'mlp'"):
        fetch(metadata, "hub", WHERE)


def test_every_shadow_has_a_classifier_of_its_own(tmp_path: Path, hub: Mapping[str, Tensor]) -> None:
    from mia_audit.privacy.catalogue import Mechanism
    from mia_audit.training.section import Training
    from mia_audit.training.shadow import Recipe
    from mia_audit.training.shadow import start as start_of

    metadata = architecture()
    write_weights(fetch(metadata, "hub", WHERE), tmp_path / "start.safetensors")
    start = read_start(metadata, tmp_path / "start.safetensors")
    recipe = Recipe(metadata, start, Mechanism(mechanism="none"), Training(), float("inf"), 8, (0,))
    one, other = (start_of(recipe, shadow).state_dict() for shadow in (0, 1))
    assert_same(everything_but_the_classifier(one), everything_but_the_classifier(other))
    assert torch.equal(one["cls_token"], hub["cls_token"])
    assert one["head.weight"].shape == (CLASSES, 8)
    assert not torch.equal(one["head.weight"], other["head.weight"])


def test_the_command_writes_weights_that_training_starts_from(
    tmp_path: Path, hub: Mapping[str, Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "architecture.json").write_text(json.dumps(architecture()))
    arguments = ["--architecture", str(tmp_path / "architecture.json"), "--out", str(tmp_path / "start.safetensors")]
    (tmp_path / "spec.json").write_text(json.dumps({"name": "some", "pretrained": "hub"}))
    assert main(["weights", *arguments, "--spec", str(tmp_path / "spec.json")]) == 0
    assert_same(read_start(architecture(), tmp_path / "start.safetensors"), everything_but_the_classifier(hub))
    assert "the classifier is new" in capsys.readouterr().out


def test_an_unreachable_hub_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        UserError, match=f"{WHERE}: hub: the published weights of '{VIT}' cannot be downloaded; .*name the file"
    ) as error:
        fetch(architecture(), "hub", WHERE)
    assert "\n" not in str(error.value)


def test_a_pickle_of_code_is_refused_and_not_run(tmp_path: Path) -> None:
    torch.save({"state_dict": Trap(tmp_path / "sprung")}, tmp_path / "trap.pth")
    with pytest.raises(
        UserError, match=r"trap\.pth: a pickle that holds more than weights.*none of its code was run"
    ) as error:
        fetch(architecture(), str(tmp_path / "trap.pth"), WHERE)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "sprung").exists()


def test_a_bare_pickle_of_code_is_one_line_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trap.pth").write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    (tmp_path / "architecture.json").write_text(json.dumps(architecture()))
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"name": "vit", "pretrained": str(tmp_path / "trap.pth")}))
    out = tmp_path / "out" / "start.safetensors"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        arguments = ["--architecture", str(tmp_path / "architecture.json"), "--spec", str(spec), "--out", str(out)]
        assert main(["weights", *arguments]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and "none of its code was run" in said[0]
    assert not told and not (tmp_path / "sprung").exists() and not out.parent.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"depth": 3}, r"another architecture than 'vit_small_patch16_224'.* \(Unexpected key\(s\) in .*: \"blocks\.2"),
        ({"depth": 1}, r"Missing key\(s\) in state_dict: \"blocks\.1"),
        ({"embed_dim": 16}, r"size mismatch for cls_token\)"),
        ({"model": "beit_base_patch16_224"}, r"Missing key\(s\) in state_dict: \"pos_embed\""),
    ],
)
def test_weights_of_another_architecture_are_one_line(tmp_path: Path, content: dict[str, Any], words: str) -> None:
    path = tmp_path / "other.safetensors"
    save_weights(published(**content), path)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=rf"{WHERE}: .*other\.safetensors: .*{words}") as error:
        fetch(architecture(), str(path), WHERE)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.pth", None, "no such file; expected weights"),
        ("text.pth", b"text", "truncated or not weights|a pickle that holds more than weights, or no weights"),
        ("text.safetensors", b"text", "truncated, or not safetensors"),
        ("list.pth", [1, 2], "no state_dict: expected names and tensors"),
    ],
)
def test_a_file_that_is_no_weights_is_one_line(tmp_path: Path, name: str, content: Any, words: str) -> None:
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif content is not None:
        torch.save(content, tmp_path / name)
    with pytest.raises(UserError, match=words) as error:
        fetch(architecture(), str(tmp_path / name), WHERE)
    assert name in str(error.value) and "\n" not in str(error.value)


def test_weights_to_start_from_are_checked(tmp_path: Path) -> None:
    save_weights(construct(architecture(embed_dim=16), seed=0), tmp_path / "start.safetensors")
    with pytest.raises(UserError, match=r"start\.safetensors: weights of another architecture"):
        read_start(architecture(), tmp_path / "start.safetensors")


def test_normalisation_is_that_of_the_published_weights() -> None:
    imagenet = [0.485, 0.456, 0.406]
    assert own_normalisation("beitv2_base_patch16_224.in1k_ft_in22k_in1k", 3)["mean"] == imagenet
    assert own_normalisation("beitv2_base_patch16_224.in1k_ft_in22k_in1k", 1)["mean"] == [
        pytest.approx(sum(imagenet) / 3)
    ]
    assert own_normalisation(VIT, 3) == {"mean": [0.5] * 3, "std": [0.5] * 3}
    assert own_normalisation("mlp", 3) == {}
