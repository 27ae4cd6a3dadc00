"""Pools: the records that an audit is about, and the public records."""

from mia_audit.pools.section import pools

__all__ = ["pools"]
