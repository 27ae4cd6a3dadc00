"""Figures for a paper: each file registers its figures in `catalogue.figures`."""
