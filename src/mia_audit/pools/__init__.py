"""Pools: the records that an audit is about, and the public ones beside them."""

from mia_audit.pools.catalogue import pools

__all__ = ["pools"]
