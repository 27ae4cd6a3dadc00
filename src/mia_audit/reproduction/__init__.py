"""Reproduction: printed numbers of papers beside those computed from their score matrices and from finished audits."""
