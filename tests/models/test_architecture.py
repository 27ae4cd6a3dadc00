"""Models are built by name, refuse what does not fit, and come back from disk as they were."""

import json
from pathlib import Path

import pytest
import torch

from mia_audit.errors import UserError
from mia_audit.models.architecture import build, construct, describe, load
from mia_audit.models.weights import save_weights

from ..builders import refused

VIT = {"img_size": 8, "patch_size": 2, "embed_dim": 16, "depth": 1, "num_heads": 2}
SMALL = {"patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2}


@pytest.mark.parametrize(
    ("model", "parameters", "shape", "input_shape"),
    [
        ("vision_transformer", VIT, (1, 8, 8), [1, 8, 8]),
        ("vision_transformer", {**VIT, "img_size": 16}, (1, 8, 8), [1, 16, 16]),
        ("vision_transformer", SMALL, (3, 12, 12), [3, 12, 12]),
        ("beit_base_patch16_224", {**SMALL, "img_size": 8}, (3, 8, 8), [3, 8, 8]),
        ("vit_relpos_base_patch16_224", {**SMALL, "img_size": 8}, (1, 8, 8), [1, 8, 8]),
        ("vit_tiny_patch16_224", {"depth": 1}, (3, 8, 8), [3, 224, 224]),
        ("resnet10t", {}, (3, 32, 32), [3, 32, 32]),
        ("mlp", {"width": 8}, (5,), [5]),
    ],
)
def test_any_model_is_built_on_the_pools_shape(
    model: str, parameters: dict[str, int], shape: tuple[int, ...], input_shape: list[int]
) -> None:
    metadata = json.loads(json.dumps(describe("name", model, parameters, shape, 3)))
    built = construct(metadata, seed=0)
    assert metadata["input_shape"] == input_shape
    assert metadata["parameters"] == sum(parameter.numel() for parameter in built.parameters())
    assert built.eval()(torch.zeros(2, *input_shape)).shape == (2, 3)


def test_batch_norm_layers_are_named() -> None:
    metadata = describe("name", "resnet10t", {}, (3, 32, 32), 3)
    assert metadata["batch_norm"] and "conv1.1" in metadata["batch_norm_layers"]
    assert describe("name", "mlp", {}, (5,), 3)["batch_norm"] is False


@pytest.mark.parametrize(
    ("model", "parameters", "shape", "mend"),
    [
        ("vit_tny_patch16_224", {}, (3, 8, 8), "did you mean 'vit_tiny_patch16_224'?"),
        ("qqqqqq", {}, (3, 8, 8), "known: cnn, cnn-strided, locally-linear-maps, mlp, mobilenet_groupnorm"),
        ("vision_transformer", {**VIT, "img_size": 9}, (1, 8, 8), "img_size 9 is no multiple of the patch"),
        ("vit_tiny_patch16_224", {"img_size": 8}, (3, 8, 8), "16 fits"),
        ("vision_transformer", {**VIT, "img_size": 8.5}, (1, 8, 8), "expected a whole number"),
        ("vision_transformer", {**VIT, "num_heads": 3}, (1, 8, 8), "divisible"),
        ("vision_transformer", {"dept": 1}, (1, 8, 8), "did you mean 'depth'?"),
        ("vision_transformer", {}, (30,), "choose a table model such as 'mlp'"),
        ("vit_tiny_patch16_224", {"no_such": 1}, (3, 8, 8), "no_such"),
        ("mlp", {}, (1, 8, 8), "choose an image model"),
        ("mlp", {"widht": 3}, (5,), "did you mean 'width'?"),
        ("mlp", {"width": "wide"}, (5,), "width=wide"),
    ],
)
def test_what_does_not_fit_is_one_line(
    model: str, parameters: dict[str, object], shape: tuple[int, ...], mend: str
) -> None:
    with refused(mend):
        describe("name", model, parameters, shape, 3)  # type: ignore[arg-type]


def test_initial_weights_are_keyed_by_the_seed_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, same, other = (build("mlp", {"width": 8}, (5,), 2, seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(one[0].weight, same[0].weight)
    assert not torch.equal(one[0].weight, other[0].weight)


def test_weights_return_frozen_and_in_eval_mode(tmp_path: Path) -> None:
    metadata = describe("name", "vision_transformer", VIT, (1, 8, 8), 3)
    model = construct(metadata, seed=3)
    save_weights(model, tmp_path / "a.safetensors")
    save_weights(model, tmp_path / "b.safetensors")
    loaded = load(metadata, tmp_path / "a.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    assert not loaded.training and not any(parameter.requires_grad for parameter in loaded.parameters())
    records = torch.randn(2, 1, 8, 8)
    assert torch.equal(loaded(records), model.eval()(records))


@pytest.mark.parametrize("damage", ["truncated", "foreign", "missing", "other"])
def test_bad_weights_are_one_line_that_names_the_file(tmp_path: Path, damage: str) -> None:
    metadata = describe("name", "mlp", {"width": 8}, (5,), 3)
    path = tmp_path / "w.safetensors"
    if damage == "other":
        save_weights(build("mlp", {"width": 9}, (5,), 3, 0), path)
    elif damage != "missing":
        save_weights(construct(metadata, seed=0), path)
        path.write_bytes(path.read_bytes()[:-7] if damage == "truncated" else b"not weights at all")
    with pytest.raises(UserError, match=r"w\.safetensors") as raised:
        load(metadata, path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "parameter",
    ["checkpoint_path", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir", "state_dict"],
)
def test_no_parameter_loads_weights(tmp_path: Path, parameter: str) -> None:
    """timm's create_model takes them, and reads what they name."""
    from mia_audit.models import timm_models

    said = f"parameter '{parameter}' loads weights"
    with pytest.raises(UserError, match=said):
        describe("name", "vit_tiny_patch16_224", {"depth": 1, parameter: str(tmp_path / "w.pth")}, (3, 8, 8), 3)
    with pytest.raises(UserError, match=said):
        timm_models.timm_family.construct("vit_tiny_patch16_224", {parameter: str(tmp_path / "w.pth")})


@pytest.mark.parametrize("model", ["hf-hub:a/b", "hf_hub:a/b", "local-dir:here", "../resnet18", "a/resnet18"])
def test_no_name_is_a_place_to_load_from(tmp_path: Path, model: str) -> None:
    """Neither in a config nor in the architecture.json of somebody's results."""
    from mia_audit.models.architecture import read_architecture

    with pytest.raises(UserError, match="unknown model"):
        describe("name", model, {}, (3, 8, 8), 3)
    stored = describe("name", "mlp", {}, (5,), 3) | {"model": model}
    (tmp_path / "architecture.json").write_text(json.dumps(stored))
    with pytest.raises(UserError, match=r"architecture\.json: unknown model"):
        read_architecture(tmp_path / "architecture.json")
    stored |= {"model": "resnet10t", "arguments": {"checkpoint_path": "w.pth"}}
    (tmp_path / "architecture.json").write_text(json.dumps(stored))
    with pytest.raises(UserError, match=r"architecture\.json: model 'resnet10t': parameter 'checkpoint_path'"):
        read_architecture(tmp_path / "architecture.json")
