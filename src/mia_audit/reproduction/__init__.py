"""Reproduction: the published numbers of papers beside numbers from their score matrices and from finished audits."""
