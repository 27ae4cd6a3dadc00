"""Models of every covered kind against plain autograd in float64, one record at a time, over records of all scales."""

import importlib
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mia_audit.models.architecture import build
from mia_audit.privacy.book_keeping.engine import BookKeeping, checked_pass
from mia_audit.privacy.book_keeping.kinds import MODULES, OPERATIONS, check_kinds, check_operations
from mia_audit.training.section import Lora
from mia_audit.training.trainable import add_adapters

SCALES = (0.0, 1e-44, 1e-30, 1e-15, 1e-7, 1e-3, 1.0, 1.0, 1e3, 1e7, 1e15, 1e30, 1e34)
OVERFLOW = 1e18
"""Norm from which squares may not be finite in float32: such a record contributes nothing."""
SHORT = 1e-12

TOKENS = {"img_size": 32, "patch_size": 16, "embed_dim": 48, "depth": 2, "num_heads": 3}
STAGES = {"depths": (1, 1, 1, 1)}
META = STAGES | {"dims": (32, 32, 64, 64)}
MIXER = {"img_size": 64, "patch_size": 32, "embed_dim": 48, "num_blocks": 2}
BY_CLASS = {"mlp_mixer": "MlpMixer", "metaformer": "MetaFormer", "focalnet": "FocalNet", "nest": "Nest"}
"""Files of families whose registered models fix their sizes, so that smaller ones are built from these classes."""

FAMILIES: dict[str, dict[str, Any]] = {
    "vit_tiny_patch16_224": TOKENS,
    "deit3_small_patch16_224": TOKENS,
    "deit_tiny_distilled_patch16_224": TOKENS,
    "beit_base_patch16_224": TOKENS,
    "vit_relpos_base_patch16_224": TOKENS | {"init_values": 0.1},
    "cait_xxs24_224": TOKENS,
    "eva02_tiny_patch14_224": TOKENS,
    "naflexvit_base_patch16_gap": {"embed_dim": 48, "depth": 2, "num_heads": 3},
    "convnext_atto": META,
    "mambaout_femto": META,
    "crossvit_tiny_240": {"depth": ((1, 1, 0),) * 3},
    "mixer_s32_224": MIXER,
    "gmlp_ti16_224": MIXER,
    "poolformer_s12": META,
    "poolformerv2_s12": META,
    "caformer_s18": META,
    "test_vit": {},
    "test_vit2": {},
    "test_vit3": {},
    "test_vit4": {},
    "test_convnext": {},
    "test_convnext2": {},
    "test_efficientnet_gn": {},
    "test_efficientnet_ln": {},
    "convformer_s18": META,
    "focalnet_tiny_srf": STAGES | {"embed_dim": 16},
    "nest_tiny": {"img_size": 64, "depths": (1, 1, 1), "embed_dims": (16, 32, 32), "num_heads": (1, 2, 2)},
    "pit_ti_224": {"img_size": 64, "base_dims": (16, 16, 16), "depth": (1, 1, 1), "heads": (1, 2, 2)},
    "pvt_v2_b0": STAGES | {"embed_dims": (16, 16, 32, 32), "num_heads": (1, 2, 2, 2)},
    "resnet50_gn": {"layers": (1, 1, 1, 1)},
    "twins_svt_small": {
        "depths": (2, 1, 1, 1),
        "img_size": 64,
        "embed_dims": (16, 32, 32, 64),
        "num_heads": (1, 2, 2, 4),
    },
    "vit_small_patch16_rope_224": TOKENS,
}

IMAGES = (1, 8, 8)
BUILT_IN: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "mlp": ("mlp", {"width": 8, "dropout": 0.1}, (5,)),
    "logistic regression": ("mlp", {"depth": 0}, (5,)),
    "cnn": ("cnn", {"first": 4, "second": 6, "hidden": 8}, (1, 28, 28)),
    "cnn-strided": ("cnn-strided", {}, (1, 28, 28)),
    "mobilenet_groupnorm": ("mobilenet_groupnorm", {"width": 0.25, "stages": 3, "stem_stride": 1}, (3, 16, 16)),
    "vision_transformer": ("vision_transformer", TOKENS | {"img_size": 8, "patch_size": 4}, IMAGES),
    "vision_transformer of many options": (
        "vision_transformer",
        TOKENS
        | {"img_size": 8, "patch_size": 4, "global_pool": "avg", "class_token": False, "reg_tokens": 2}
        | {"init_values": 0.1, "qk_norm": True, "drop_path_rate": 0.1},
        IMAGES,
    ),
}

ACTIVATIONS = [
    "ReLU",
    "GELU",
    "SiLU",
    "Tanh",
    "Sigmoid",
    "ELU",
    "LeakyReLU",
    "Softplus",
    "Hardswish",
    "Mish",
    "SELU",
    "ReLU6",
    "CELU",
]


def of_activation(name: str) -> nn.Module:
    middle = [getattr(nn, name)(), nn.RMSNorm(8), nn.Unflatten(1, (2, 4)), nn.Identity(), nn.Flatten()]
    return nn.Sequential(nn.Linear(6, 8), *middle, nn.Linear(8, 3))


def pooled(pool: nn.Module, features: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        nn.SiLU(inplace=True),
        nn.Dropout2d(0.1),
        pool,
        nn.Flatten(),
        nn.Linear(features, 3),
    )


POOLS = {
    "average": lambda: pooled(nn.AvgPool2d(2), 36),
    "all": lambda: pooled(nn.AdaptiveAvgPool2d(1), 4),
    "largest": lambda: pooled(nn.AdaptiveMaxPool2d(2), 16),
}


def seeded(make: Any) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make()  # type: ignore[no-any-return]


def of_timm(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    from mia_audit.runtime.torchvision_guard import guard

    guard()
    import timm

    options = FAMILIES[name]
    file = importlib.import_module(timm.model_entrypoint(name).__module__)
    short = file.__name__.rpartition(".")[2]
    if short in BY_CLASS:
        kind = getattr(file, BY_CLASS[short])
        create = "_create_mixer" if short == "mlp_mixer" else f"_create_{short}"
        smaller = lambda variant, pretrained, **own: kind(**(own | options), num_classes=3)  # noqa: E731
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(file, create, smaller)
            return seeded(timm.model_entrypoint(name)), (3, 64, 64)
    model = seeded(lambda: timm.create_model(name, num_classes=3, **options))
    side = options.get("img_size") or (0 if model.default_cfg.get("fixed_input_size") else 64)  # type: ignore[operator, union-attr]
    return model, (3, side, side) if side else tuple(model.default_cfg["input_size"])  # type: ignore[index, union-attr, call-overload]


def adapted() -> nn.Module:
    model = build(*BUILT_IN["vision_transformer"], 3, 0)
    add_adapters(model, Lora(targets=("attn.qkv", "mlp.fc2")), 0)
    for name, value in model.named_parameters():
        if name.endswith(".up"):
            nn.init.normal_(value, std=0.1)
    return model


SMALL: dict[str, Any] = {
    "adapters": lambda: (seeded(adapted), IMAGES),
    **{name: lambda one=one: (build(*one, 3, 0), one[2]) for name, one in BUILT_IN.items()},
    **{name: lambda name=name: (seeded(lambda: of_activation(name)), (6,)) for name in ACTIVATIONS},
    **{f"pool: {name}": lambda make=make: (seeded(make), (1, 8, 8)) for name, make in POOLS.items()},
}
MODELS: dict[str, Any] = SMALL | {name: lambda name=name: of_timm(name) for name in FAMILIES}


def drawn(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    records = torch.randn(len(SCALES), *shape, generator=generator, dtype=torch.float64)
    return records * torch.tensor(SCALES, dtype=torch.float64).view(-1, *[1] * len(shape)), torch.arange(
        len(SCALES)
    ) % 3


@pytest.mark.parametrize("name", [*SMALL, *[pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES]])
def test_covered_models_agree_with_a_loop_over_records(name: str) -> None:
    model, shape = MODELS[name]()
    model.train()
    for layer in model.modules():
        for key in ("p", "drop_prob"):
            if isinstance(getattr(layer, key, None), float):
                setattr(layer, key, 0.0)
    check_kinds(model)
    checked = checked_pass(model, shape)
    check_operations(checked.operations)
    model.double()
    inputs, labels = drawn(shape)
    parameters = [value for value in model.parameters() if value.requires_grad]
    done = BookKeeping(parameters, checked).run(model, inputs, labels)
    rows, kept = [], done.norms.isfinite()
    for number in range(len(labels)):
        loss = F.cross_entropy(model(inputs[number : number + 1]), labels[number : number + 1])
        given = torch.autograd.grad(loss, parameters, allow_unused=True)
        row = [(torch.zeros_like(v) if g is None else g).flatten() for g, v in zip(given, parameters, strict=True)]
        rows.append(torch.cat(row))
    expected = torch.stack(rows)
    lengths = expected.norm(dim=1)
    assert bool((kept | ~(lengths < OVERFLOW)).all()), (done.norms, lengths)
    torch.testing.assert_close(done.norms[kept], lengths[kept], rtol=1e-5, atol=SHORT)
    weights = torch.where(kept, 1 / (done.norms + 0.01), 0.0)
    total = torch.zeros(expected.shape[1], dtype=torch.float64)
    BookKeeping(parameters, checked).add(done, weights, total)
    right = weights[kept] @ expected[kept]
    assert (total - right).norm() <= 1e-5 * right.norm()


@pytest.mark.slow
def test_every_kind_on_the_list_is_in_a_model_that_is_compared() -> None:
    used = {(type(one).__module__, type(one).__qualname__) for make in MODELS.values() for one in make()[0].modules()}
    listed = {(file, kind) for file, kinds in MODULES.items() for kind in kinds.split()}
    assert listed <= used, sorted(listed - used)


@pytest.mark.slow
def test_every_operation_on_the_list_is_in_a_model_that_is_compared() -> None:
    called: set[str] = set()
    for make in MODELS.values():
        model, shape = make()
        called |= checked_pass(model.train(), shape).operations
    assert set(OPERATIONS.split()) <= called, sorted(set(OPERATIONS.split()) - called)
