"""Locally linear maps (Harder et al. 2020): several linear maps per class, weighted by the input, for images and tables."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.models.catalogue import Parameters, architectures, check_known, whole
from mia_audit.models.inputs import image_size

NAME = "locally-linear-maps"
DEFAULTS: dict[str, bool | int | float | str] = {"maps": 30, "beta": 1.0, "projection": "none"}
OPTIONAL = ("scale", "initial", "img_size")


class LocallyLinearMaps(nn.Module):
    """f_k(x) = Σ_m σ_m^k g_m^k with g_m^k = w_m^k · R_m x + b_m^k and σ^k = softmax_m(β g^k): [B, …] to [B, classes].

    R_m is a random projection to D' numbers that all classes share, drawn once and never trained (a buffer, stored with
    the weights); without projections R_m is the identity. With biases there are M·K·(D' + 1) trained parameters.
    """

    projections: Tensor | None

    def __init__(
        self,
        features: int,
        classes: int,
        maps: int,
        beta: float,
        projected: int | None,
        deviation: float,
        kaiming: bool = False,
    ) -> None:
        super().__init__()
        self.beta = beta
        width = projected or features
        projections = None if projected is None else deviation * torch.randn(maps, projected, features)
        self.register_buffer("projections", projections)
        self.weight = nn.Parameter(torch.empty(maps, classes, width).uniform_(-1, 1) / math.sqrt(width))
        self.bias = nn.Parameter(torch.zeros(maps, classes))
        if kaiming:
            bound = (classes * (maps if projected is None else width + 1)) ** -0.5
            for parameter in (self.weight, self.bias):
                nn.init.uniform_(parameter, -bound, bound)

    def forward(self, inputs: Float[Tensor, "B ..."]) -> Float[Tensor, "B K"]:
        return self.mixed(self.scores(self.projected(inputs)))

    def projected(self, inputs: Float[Tensor, "B ..."]) -> Float[Tensor, "B D"] | Float[Tensor, "B M P"]:
        """Return R_m x for all maps in one matrix product. Without projections return x, flattened."""
        flat = inputs.flatten(1)
        if self.projections is None:
            return flat
        return (flat @ self.projections.flatten(0, 1).T).reshape(len(flat), *self.projections.shape[:2])

    def scores(self, projected: Tensor) -> Float[Tensor, "B M K"]:
        """Return g_m^k for all maps and classes in one (batched) matrix product."""
        if self.projections is None:
            return (projected @ self.weight.flatten(0, 1).T).reshape(len(projected), *self.bias.shape) + self.bias
        return torch.einsum("bmp,mkp->bmk", projected, self.weight) + self.bias

    def shares(self, scores: Float[Tensor, "B M K"]) -> Float[Tensor, "B M K"]:
        """Return σ_m^k, which sum to 1 over the maps of a class."""
        return (self.beta * scores).softmax(dim=1)

    def mixed(self, scores: Float[Tensor, "B M K"]) -> Float[Tensor, "B K"]:
        """Return f_k, the mean of the maps' scores weighted by their shares."""
        return (self.shares(scores) * scores).sum(dim=1)

    def filters(self) -> Float[Tensor, "M K D"]:
        """Return w_m^k R_m, every map's filter in the space of the (flattened) inputs."""
        return self.weight if self.projections is None else torch.einsum("mkp,mpd->mkd", self.weight, self.projections)

    @torch.no_grad()
    def clipped_gradients(
        self,
        inputs: Float[Tensor, "B ..."],
        labels: Int[Tensor, " B"],
        factors: Callable[[Tensor, Tensor], Float[Tensor, " B"]],
    ) -> tuple[list[Tensor], Float[Tensor, " B"]]:
        """Return Σ factor g over records of the gradients g of the cross-entropy, by parameter, float64, and the losses.

        A record's gradient for w_m^k is a_m^k R_m x with a = (p_k − y_k) σ_m^k [1 + β (g_m^k − f_k)], so its norm and
        the clipped sum can be computed without per-record gradients. `factors` maps norms and losses to factors; a
        factor of 0 leaves a record out. The maps' scores are computed in the precision of the pass, and everything
        after them in float64. If the norm were rounded differently from the sum, a record could exceed its share.
        """
        projected = self.projected(inputs)
        scores = self.scores(projected).double()
        projected = projected.double()
        with torch.autocast(inputs.device.type, enabled=False):
            shares = self.shares(scores)
            logits = (shares * scores).sum(dim=1)
            losses = F.cross_entropy(logits, labels, reduction="none")
            errors = logits.softmax(dim=1) - F.one_hot(labels, logits.shape[1])
            signals = errors[:, None] * shares * (1 + self.beta * (scores - logits[:, None]))
            lengths = 1 + projected.square().sum(dim=-1)  # squared norm of [R_m x; 1], for every map or for all of them
            norms = (signals.square().sum(dim=2) * lengths.reshape(len(inputs), -1)).sum(dim=1).sqrt()
            by_record = factors(norms, losses)
            out = (by_record == 0).nonzero()[:, 0]  # 0 times infinity is not 0
            clipped = (signals * by_record[:, None, None]).index_fill_(0, out, 0)
            inside = projected.index_fill(0, out, 0)
            shared = self.projections is None
            weight = clipped.flatten(1).T @ inside if shared else torch.einsum("bmk,bmp->mkp", clipped, inside)
        return [weight, clipped.sum(dim=0)], losses


class LocallyLinearMapsFamily:
    """`locally-linear-maps`: maps (M), beta (β), projection (D', or none), scale (standard deviation of R's entries) and initial.

    The defaults are the paper's, where it has one value for all data sets: M = 30, entries drawn from N(0, 1/D').
    Initial weights are uniform within 1/√D' and biases 0; with `initial: kaiming`, as in the authors' code, both are within
    1/√(K (D' + 1)), or without projections 1/√(K M).
    """

    def arguments(self, model: str, parameters: Parameters, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
        check_known(model, parameters, [*DEFAULTS, *OPTIONAL])
        size = _input_shape(model, parameters, shape)
        features = math.prod(size)
        given = {**DEFAULTS, **parameters}
        maps, beta = whole("maps", given["maps"]), _positive("beta", given["beta"])
        projected = (
            None if given["projection"] == "none" else whole("projection", given["projection"], more=", or none")
        )
        if projected is not None and projected > features:
            raise UserError(
                f"parameters.projection: {projected} dimensions, but a record has only {features}; expected at most {features}, or none"
            )
        if projected is None and "scale" in given:
            raise UserError("parameters.scale: scales random projections, but projection is none; leave the key out")
        deviation = _positive("scale", given["scale"]) if "scale" in given else (projected or 1) ** -0.5
        if given.get("initial", "kaiming") != "kaiming":
            raise UserError(f"parameters.initial: kaiming was expected, not {given['initial']!r}, or leave the key out")
        return {
            "input_shape": list(size),
            "classes": classes,
            "maps": maps,
            "beta": beta,
            "projected": projected,
            "deviation": deviation,
            **({"kaiming": True} if "initial" in given else {}),
        }

    def construct(self, model: str, arguments: Mapping[str, Any]) -> nn.Module:
        own = {name: value for name, value in arguments.items() if name != "input_shape"}
        return LocallyLinearMaps(features=math.prod(arguments["input_shape"]), **own)

    def input_shape(self, arguments: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple(arguments["input_shape"])


def _input_shape(model: str, parameters: Parameters, shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) == 3:
        size = image_size(parameters, (shape[1], shape[2]))
        return (shape[0], *((size, size) if isinstance(size, int) else size))
    if "img_size" in parameters:
        raise UserError(
            f"parameters.img_size: model '{model}' receives a table of {shape[0]} columns, not images: leave this key out"
        )
    return shape


def _positive(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise UserError(f"parameters.{name}: a number above 0 was expected, not {value!r}")
    return float(value)


architectures.register(NAME)(LocallyLinearMapsFamily())
