"""Reproduction: the published numbers of papers beside those of their score matrices, and beside those of finished audits."""
