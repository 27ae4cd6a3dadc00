"""Evaluation: what membership scores say, with exact curves and intervals."""
