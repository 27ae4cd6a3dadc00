"""Reproduction: the published numbers of Huang et al. 2024 beside those computed from their score matrices."""
