"""Reproduction: the published numbers of Huang et al. 2024 beside what their score matrices say."""
