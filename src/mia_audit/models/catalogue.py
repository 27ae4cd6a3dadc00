"""The registry of architectures, and what a family of models has to offer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from mia_audit.registry import Registry

if TYPE_CHECKING:
    from torch import nn

Parameters = Mapping[str, bool | int | float | str]


class Family(Protocol):
    """Models that are built alike: one registered name, or every timm model that has no family of its own."""

    def arguments(self, model: str, parameters: Parameters, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
        """Resolve the user's parameters for records of `shape` ([C, H, W] or [d]); UserError where they do not fit."""

    def construct(self, model: str, arguments: Mapping[str, Any]) -> nn.Module:
        """Build the model from resolved arguments; a plain exception of the model's own says what it refuses."""

    def input_shape(self, arguments: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the shape of one record as the model takes it."""


architectures: Registry[Family] = Registry("architecture", "mia_audit.models.families", "_", eager=True)
