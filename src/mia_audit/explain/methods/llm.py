"""Explanations built into locally linear maps (Harder et al. 2020, section 3): the maps' filters, and their weights for a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import PositiveInt

from mia_audit.errors import UserError
from mia_audit.explain.catalogue import explainer
from mia_audit.sections import Section

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from mia_audit.explain.batch import Batch
    from mia_audit.models.architectures.locally_linear_maps import LocallyLinearMaps

FAMILY = "llm"
MODELS = ("locally-linear-maps",)


class TopKeys(Section):
    """The key of llm-top."""

    llm_top: PositiveInt = 3
    """Number of maps in the explanation: those with the largest shares."""


@explainer("llm-global", family=FAMILY, models=MODELS, quantities=("logit",), label="the maps' filters")
def llm_global(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return all filters of the explained class, w_m^k R_m, concatenated.

    Within a model, all records of a class have the same filters, and so the same summaries.
    """
    filters = _maps(batch, "llm-global").filters()
    return {"logit": _side_by_side(filters[:, batch.classes].transpose(0, 1), batch)}


@explainer("llm-local", family=FAMILY, models=MODELS, label="the weighted map")
def llm_local(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weighted map Σ_m σ_m^k w_m^k R_m of the explained class.

    For the probability, it is the sum of all classes' maps, weighted by the probability's derivatives with respect to
    the logits.
    """
    model = _maps(batch, "llm-local")
    shares = model.shares(_scores(model, batch))
    return _mixtures(model, batch, shares)


@explainer("llm-gradient", family=FAMILY, models=MODELS, label="the maps' gradient")
def llm_gradient(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the exact gradient Σ_m σ_m^k [1 + β (g_m^k − f_k)] w_m^k R_m, in closed form."""
    model = _maps(batch, "llm-gradient")
    scores = _scores(model, batch)
    shares = model.shares(scores)
    return _mixtures(model, batch, shares * (1 + model.beta * (scores - (shares * scores).sum(dim=1, keepdim=True))))


@explainer(
    "llm-top", family=FAMILY, models=MODELS, options=(TopKeys,), quantities=("logit",), label="the strongest maps"
)
def llm_top(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the filters with the largest shares for the explained class, multiplied by their shares, the largest first."""
    model = _maps(batch, "llm-top")
    shares = model.shares(_scores(model, batch))
    of_class = shares.gather(2, batch.classes[:, None, None].expand(-1, shares.shape[1], 1)).squeeze(2)
    top = of_class.topk(min(options["llm_top"], of_class.shape[1]), dim=1)
    filters = model.filters()[top.indices, batch.classes[:, None]]
    return {"logit": _side_by_side(top.values[..., None] * filters, batch)}


def _maps(batch: Batch, name: str) -> LocallyLinearMaps:
    from mia_audit.models.architectures.locally_linear_maps import LocallyLinearMaps

    if not isinstance(batch.model, LocallyLinearMaps):
        raise UserError(f"explainer '{name}' explains only {MODELS[0]}, not {type(batch.model).__name__}")
    return batch.model


def _scores(model: LocallyLinearMaps, batch: Batch) -> Float[Tensor, "B M K"]:
    return model.scores(model.projected(batch.inputs))


def _mixtures(model: LocallyLinearMaps, batch: Batch, weights: Float[Tensor, "B M K"]) -> dict[str, Tensor]:
    """Return, for every quantity, the sum over classes of the mixed maps, weighted by the quantity's derivatives with respect to the logits."""
    from mia_audit.explain.batch import QUANTITIES

    filters = model.filters().flatten(0, 1)
    mixed = {}
    for name in batch.quantities:
        derivative = QUANTITIES[name].gradient(batch.logits, batch.classes).to(weights.dtype)
        mixed[name] = ((weights * derivative[:, None]).flatten(1) @ filters).reshape(batch.inputs.shape)
    return mixed


def _side_by_side(filters: Float[Tensor, "B T D"], batch: Batch) -> Tensor:
    """Stack the T filters of each record along the channels of one image; for tables the filters stay [B, T, d]."""
    count, several = filters.shape[:2]
    if batch.inputs.ndim == 2:
        return filters
    channels, *size = batch.inputs.shape[1:]
    return filters.reshape(count, several * channels, *size)
