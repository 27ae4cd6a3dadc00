"""`own:NAME`: the attributions that the `explain` of a user's script returns under that name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mia_audit.errors import UserError
from mia_audit.explain.catalogue import OWN, Explainer, explainers

if TYPE_CHECKING:
    from torch import Tensor

    from mia_audit.explain.batch import Batch


def _asked(batch: Batch, options: Mapping[str, Any]) -> dict[str, Tensor]:
    raise UserError("explainers.methods: own:NAME explains only models whose script defines predict and explain")


def _by_name(match: re.Match[str]) -> Explainer:
    return Explainer(
        _asked,
        family="own",
        quantities=("logit",),
        multiplied=True,
        label=f"the model's own {match['name']}",
        needs_torch_module=False,
        learners=("script",),
    )


explainers.register_pattern(rf"{OWN}(?P<name>\w+)", _by_name, example="own:shap")
