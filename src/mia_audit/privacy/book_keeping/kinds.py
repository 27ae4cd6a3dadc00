"""The kinds of modules and operations that book-keeping covers; models of anything else take vmap.

Tests compare models of all these kinds with plain autograd in float64, one record at a time, over records from 1e-44 to
1e34. None of them mixes records, keeps a state, or branches on values.
"""

from collections.abc import Iterable
from inspect import isfunction

import torch
import torch.nn.functional as F
from torch import nn

from mia_audit.privacy.book_keeping.rules import NotCovered

MODULES: dict[str, str] = {
    "mia_audit.models.architectures.small": "CNN MLP MobileNet",
    "mia_audit.training.trainable": "Adapter",
    "timm.layers.activations": "GELU GELUTanh",
    "timm.layers.adaptive_avgmax_pool": "SelectAdaptivePool2d",
    "timm.layers.attention": "Attention AttentionRope",
    "timm.layers.attention_pool": "AttentionPoolLatent",
    "timm.layers.classifier": "ClassifierHead NormMlpClassifierHead",
    "timm.layers.drop": "DropPath",
    "timm.layers.layer_scale": "LayerScale",
    "timm.layers.mlp": "GatedMlp GluMlp Mlp",
    "timm.layers.norm": "GroupNorm GroupNorm1 LayerNorm LayerNorm2d RmsNorm",
    "timm.layers.norm_act": "GroupNormAct LayerNormAct2d",
    "timm.layers.patch_embed": "PatchEmbed",
    "timm.layers.pos_embed_rel": "RelPosMlp",
    "timm.layers.pos_embed_sincos": "RotaryEmbeddingCat",
    "timm.models._efficientnet_blocks": (
        "ConvBnAct DepthwiseSeparableConv EdgeResidual InvertedResidual SqueezeExcite"
    ),
    "timm.models.beit": "Attention Beit Block",
    "timm.models.cait": "Cait ClassAttn LayerScaleBlock LayerScaleBlockClassAttn TalkingHeadAttn",
    "timm.models.convnext": "ConvNeXt ConvNeXtBlock ConvNeXtStage",
    "timm.models.crossvit": "CrossAttention CrossAttentionBlock CrossVit MultiScaleBlock PatchEmbed",
    "timm.models.deit": "VisionTransformerDistilled",
    "timm.models.efficientnet": "EfficientNet",
    "timm.models.eva": "Eva EvaAttention EvaBlock",
    "timm.models.focalnet": "Downsample FocalModulation FocalNet FocalNetBlock FocalNetStage",
    "timm.models.mambaout": "Downsample GatedConvBlock MambaOut MambaOutStage MlpHead Stem",
    "timm.models.metaformer": (
        "Attention Downsampling GroupNorm1NoBias LayerNorm2dNoBias LayerNormNoBias MetaFormer MetaFormerBlock "
        "MetaFormerStage MlpHead Pooling Scale SepConv SquaredReLU StarReLU Stem"
    ),
    "timm.models.mlp_mixer": "MixerBlock MlpMixer SpatialGatingBlock SpatialGatingUnit",
    "timm.models.naflexvit": "NaFlexEmbeds NaFlexVit",
    "timm.models.nest": "Attention ConvPool Nest NestLevel TransformerLayer",
    "timm.models.pit": "ConvEmbedding Pooling PoolingVisionTransformer SequentialTuple Transformer",
    "timm.models.pvt_v2": (
        "Attention Block MlpWithDepthwiseConv OverlapPatchEmbed PyramidVisionTransformerStage PyramidVisionTransformerV2"
    ),
    "timm.models.resnet": "Bottleneck ResNet",
    "timm.models.twins": "Block GlobalSubSampleAttn LocallyGroupedAttn PatchEmbed PosConv Twins",
    "timm.models.vision_transformer": "Block VisionTransformer",
    "timm.models.vision_transformer_relpos": "RelPosAttention RelPosBlock VisionTransformerRelPos",
    "torch.nn.modules.activation": (
        "CELU ELU GELU Hardswish LeakyReLU Mish ReLU ReLU6 SELU SiLU Sigmoid Softplus Tanh"
    ),
    "torch.nn.modules.container": "ModuleList Sequential",
    "torch.nn.modules.conv": "Conv2d",
    "torch.nn.modules.dropout": "Dropout Dropout2d",
    "torch.nn.modules.flatten": "Flatten Unflatten",
    "torch.nn.modules.linear": "Identity Linear",
    "torch.nn.modules.normalization": "GroupNorm LayerNorm RMSNorm",
    "torch.nn.modules.pooling": "AdaptiveAvgPool2d AdaptiveMaxPool2d AvgPool2d MaxPool2d",
}
"""Kinds by the file that defines them."""

OPERATIONS = (
    "__get__ __getitem__ adaptive_avg_pool2d adaptive_max_pool2d add add_ avg_pool2d cat celu chunk contiguous "
    "conv2d div dropout dropout2d elu expand flatten gelu group_norm hardswish hardtanh interpolate "
    "layer_norm leaky_relu linear matmul max_pool2d mean mish mul neg pad permute pow relu reshape rms_norm "
    "scaled_dot_product_attention selu sigmoid silu softmax softplus split square stack sub tanh to "
    "transpose type_as unbind unflatten unsqueeze view"
)
"""Functions and methods that may be called on what is computed from the records."""

ZEROING = frozenset({"adaptive_max_pool2d", "hardswish", "hardtanh", "max_pool2d", "relu"})
"""Operations whose gradient is 0 for whole ranges of values, so that records decide at which positions there is none."""

PRECISION = "mia_audit.runtime.device"
"""The file whose replacement of a classifier's forward pass, which keeps it in float32, is allowed."""

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def check_kinds(model: nn.Module) -> None:
    """Raise NotCovered unless every module of a model is of a covered kind, as it was defined."""
    if any(getattr(nn.modules.module, f"_global{hooks}") for hooks in HOOKS):
        raise NotCovered("hooks of all modules are registered")
    if patched := next((name for name in OPERATIONS.split() for owner in (F, torch) if _foreign(owner, name)), None):
        raise NotCovered(f"the function {patched} of torch was replaced")
    for name, module in model.named_modules():
        what = f"'{name}' ({type(module).__name__})" if name else f"{type(module).__name__}"
        if not _covered(type(module)):
            raise NotCovered(f"{what} is not of a kind that is known to be covered")
        for own, value in vars(module).items():
            if callable(value) and (own, getattr(value, "__module__", "")) != ("forward", PRECISION):
                raise NotCovered(f"'{own}' of {what} was replaced")
        if replaced := _replaced(type(module)):
            raise NotCovered(f"'{replaced}' of all modules like {what} was replaced")
        if any(getattr(module, hooks) for hooks in HOOKS):
            raise NotCovered(f"{what} has hooks")


CALLED = ("__call__", "_wrapped_call_impl", "_call_impl", "__getattr__")
"""The methods of every module that a pass calls; libraries such as transformers add others to `nn.Module`, which none calls."""


def _replaced(kind: type) -> str | None:
    """Name a method of a class that is defined in another file than the class, or the base, that has it."""
    methods = ((one, name, value) for one in kind.__mro__ for name, value in vars(one).items() if isfunction(value))
    passed = ((one, name, value) for one, name, value in methods if one is not nn.Module or name in CALLED)
    return next((name for one, name, value in passed if value.__module__ != one.__module__), None)


def _foreign(owner: object, name: str) -> bool:
    """Return whether a function of torch is another library's."""
    function = getattr(owner, name, None)
    return callable(function) and (getattr(function, "__module__", None) or "torch").partition(".")[0] != "torch"


def check_operations(names: Iterable[str]) -> None:
    """Raise NotCovered unless all operations of a pass are covered."""
    if unknown := sorted(set(names) - set(OPERATIONS.split())):
        raise NotCovered(f"{unknown[0]} is not an operation that is known to be covered")


def _covered(kind: type) -> bool:
    """Return whether a class, or the first of its bases that defines more than how it is built, is of a covered kind."""
    for one in kind.__mro__:
        if one.__qualname__ in MODULES.get(one.__module__, "").split():
            return True
        if any(callable(value) or hasattr(value, "__get__") for name, value in vars(one).items() if name != "__init__"):
            return False
    return False
