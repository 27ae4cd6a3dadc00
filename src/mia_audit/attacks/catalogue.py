"""The registry of attacks."""

from typing import Any

from mia_audit.registry import Registry

attacks: Registry[Any] = Registry("attack", "mia_audit.attacks.methods", "-")
