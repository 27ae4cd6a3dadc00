"""Attacks: from the signals of all models to a membership score per target and record, higher meaning member."""

from mia_audit.attacks.catalogue import attacks

__all__ = ["attacks"]
