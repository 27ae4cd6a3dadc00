"""Training: shadow models under a privacy mechanism, and what the mechanism promises."""

from mia_audit.training.catalogue import mechanisms

__all__ = ["mechanisms"]
