"""What an explainer gives for a batch, as tests ask for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mia_audit.explain.batch import explained_batch
from mia_audit.explain.catalogue import GRADIENT, explainers

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor, nn


def attribute(
    model: nn.Module,
    inputs: Float[Tensor, "B ..."],
    labels: Int[Tensor, " B"],
    records: Sequence[int],
    explainer: str,
    options: Mapping[str, Any],
    seed: int,
) -> dict[str, Float[Tensor, "B ..."]]:
    """Return the attributions of every quantity of `options["explain"]`, shaped as the inputs (a layer's: as the layer).

    `model` is in eval mode with frozen parameters, `inputs` are as it takes them, `records` the records' numbers in the
    pool; `options` are the config's `explainers` section or a family's part of it, `seed` is the audit's. Raises
    UserError for an unknown explainer.
    """
    member = explainers[explainer]
    gradients = member.family == GRADIENT
    return member.attribute(explained_batch(model, inputs, labels, records, options, seed, gradients), options)
