"""Evaluation of membership scores, with exact ROC curves and intervals."""
