"""The page's pictures of explanations: the same records in every setting, with each explainer's map drawn over the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from mia_audit.report.data.explanation_metrics import Interpretation
from mia_audit.report.data.findings import Finding
from mia_audit.report.figures.pictures import blend, data_uri, record_picture
from mia_audit.report.text.formatting import titled

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8

    from mia_audit.report.data.results import Results

COVER = 0.75
"""Opacity of the largest attribution."""


def overlaid(results: Results, group: Sequence[Finding], interpretation: Interpretation) -> list[dict[str, Any]]:
    """Return every explainer's pictures of a group, a row per record and a column per setting; empty for tables."""
    place = group[0].setting.group
    metadata = results.pool_metadata(place[0]) or {}
    if metadata.get("kind") != "image" or not results.spec.explanation_maps:
        return []
    stored = np.load(results.root / "pools" / place[0] / "records.npy", mmap_mode="r")
    maps = results.maps(place)
    return [
        {
            "explainer": one.label,
            "settings": [titled(finding.setting) for finding in group],
            "rows": [
                {
                    "record": record,
                    "picture": record_picture(stored[record]),
                    "cells": [_cell(rows, finding, record, stored[record], metadata) for finding in group],
                }
                for record in rows["record"].unique(maintain_order=True).to_list()
            ],
        }
        for one in interpretation.drawn
        for rows in [maps.filter(explainer=one.explainer, quantity=one.quantity)]
        if not rows.is_empty()
    ]


def _cell(
    rows: pl.DataFrame, finding: Finding, record: int, stored: UInt8[np.ndarray, "C H W"], metadata: Mapping[str, Any]
) -> dict[str, str]:
    row = rows.filter(**finding.setting.within_group, record=record).row(0, named=True)
    values = np.reshape(row["map"], (row["height"], row["width"]))
    return {"picture": data_uri(overlay(stored, values)), "class": str(metadata["classes"][row["class"]])}


def overlay(record: UInt8[np.ndarray, "C H W"], values: Float[np.ndarray, "h w"]) -> UInt8[np.ndarray, "H W 3"]:
    """Draw a map over a record in grey: blue below 0, orange above, larger values more opaque.

    Values are relative to the map's largest absolute value. A map of another size is resized to the nearest cells.
    """
    height, width = record.shape[1:]
    rows, columns = (np.arange(size) * cells // size for size, cells in zip((height, width), values.shape, strict=True))
    shares = values[np.ix_(rows, columns)] / (np.abs(values).max() or 1.0)
    grey = np.repeat(record.mean(axis=0)[..., None], 3, axis=2)
    return blend(grey, shares, COVER * np.abs(shares))
