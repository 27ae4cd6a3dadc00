"""Summarise measures per record to one number per shadow model."""

from __future__ import annotations

import polars as pl

KEY = ("mechanism", "epsilon", "explainer", "quantity", "measure", "against", "shadow")


def per_model(measured: pl.DataFrame) -> pl.DataFrame:
    """Average explanation_metrics.parquet over the records of every model, with keys in the order of their first appearance.

    `value` is null if no record has a value, `records` is the number of records that have one, and `same_class` the
    share of records for which both models explain the same class.
    """
    return measured.group_by(*KEY, maintain_order=True).agg(
        pl.col("value").mean(), pl.col("value").count().cast(pl.Int32).alias("records"), pl.col("same_class").mean()
    )
