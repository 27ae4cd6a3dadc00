"""The registry of explainers."""

from typing import Any

from mia_audit.registry import Registry

explainers: Registry[Any] = Registry("explainer", "mia_audit.explain.methods", "_")
