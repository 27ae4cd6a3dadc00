"""The registry of privacy mechanisms."""

from typing import Any

from mia_audit.registry import Registry

mechanisms: Registry[Any] = Registry("mechanism", "mia_audit.training.mechanisms", "-")
