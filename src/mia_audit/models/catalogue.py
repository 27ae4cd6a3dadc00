"""The registry of architectures, and the interface of a family of models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mia_audit.errors import UserError, suggest
from mia_audit.registry import Registry

if TYPE_CHECKING:
    from torch import nn

Parameters = Mapping[str, bool | int | float | str]


class Family(Protocol):
    """Models that are built the same way: one registered name, or all of timm's models."""

    def arguments(self, model: str, parameters: Parameters, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
        """Resolve the user's parameters for records of `shape` ([C, H, W] or [d]); UserError if they are invalid for these."""

    def construct(self, model: str, arguments: Mapping[str, Any]) -> nn.Module:
        """Build the model from resolved arguments. The library's exceptions say which arguments it does not accept."""

    def input_shape(self, arguments: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the shape of one record at the model's input."""


def check_known(model: str, parameters: Parameters, known: Collection[str]) -> None:
    """Raise UserError for a parameter that a model does not have."""
    for name in parameters:
        if name not in known:
            raise UserError(f"model '{model}' has no parameter '{name}': {suggest(name, known)}")


def whole(name: str, value: object, least: int = 1, more: str = "") -> int:
    """Return a parameter that is a whole number; UserError for anything else, which says what `more` is accepted."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"parameters.{name}: expected a whole number of at least {least}{more}, not {value!r}")
    return value


architectures: Registry[Family] = Registry("architecture", "mia_audit.models.architectures")
"""Architectures by name; a file may register several."""

Build = Callable[..., "nn.Module"]


@dataclass(frozen=True)
class FunctionFamily:
    """Models that are built by a function of the record's shape, the number of classes and the user's parameters."""

    build: Build

    def arguments(self, model: str, parameters: Parameters, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
        return {**parameters, "shape": list(shape), "classes": classes}

    def construct(self, model: str, arguments: Mapping[str, Any]) -> nn.Module:
        return self.build(**{**arguments, "shape": tuple(arguments["shape"])})

    def input_shape(self, arguments: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple(arguments["shape"])


def architecture(name: str = "") -> Callable[[Build], Build]:
    """Register the decorated function `build(shape, classes, **parameters)` as an architecture.

    `build` gets the shape of the pool's records, [C, H, W] or [d], and draws weights from torch's global generator.
    """

    def decorate(build: Build) -> Build:
        architectures.register(name, build)(FunctionFamily(build))
        return build

    return decorate
