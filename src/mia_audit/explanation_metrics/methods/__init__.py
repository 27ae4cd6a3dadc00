"""Measures of explanations, a file per kind."""
