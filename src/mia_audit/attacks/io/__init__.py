"""Signals and scores on disk: Parquet, matrices and published layouts."""
