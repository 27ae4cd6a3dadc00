"""The page's pictures of explanations: the same few records in every setting, each explainer's map laid over the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from mia_audit.report.findings import Finding
from mia_audit.report.interpretability import Interpretation
from mia_audit.report.pictures import NEGATIVE, POSITIVE, data_uri, record_picture
from mia_audit.report.words import capital, protection

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8

    from mia_audit.report.results import Results

COVER = 0.75
"""How much of the record the largest attribution hides."""


def overlaid(results: Results, group: Sequence[Finding], interpretation: Interpretation) -> list[dict[str, Any]]:
    """Describe every explainer's pictures of a group: a row a record, a column a setting; nothing for a table's records."""
    place = group[0].setting.group
    facts = results.pool_facts(place[0]) or {}
    if facts.get("kind") != "image" or not results.spec.shown:
        return []
    stored = np.load(results.root / "pools" / place[0] / "records.npy", mmap_mode="r")
    maps = results.maps(place)
    return [
        {
            "explainer": one.label,
            "settings": [capital(protection(found.setting)) for found in group],
            "rows": [
                {
                    "record": record,
                    "picture": record_picture(stored[record]),
                    "cells": [_cell(rows, found, record, stored[record], facts) for found in group],
                }
                for record in rows["record"].unique(maintain_order=True).to_list()
            ],
        }
        for one in interpretation.drawn
        for rows in [maps.filter(explainer=one.explainer, quantity=one.quantity)]
        if not rows.is_empty()
    ]


def _cell(
    rows: pl.DataFrame, found: Finding, record: int, stored: UInt8[np.ndarray, "C H W"], facts: Mapping[str, Any]
) -> dict[str, str]:
    setting = found.setting
    row = rows.filter(mechanism=setting.mechanism, epsilon=setting.epsilon, record=record).row(0, named=True)
    values = np.reshape(row["map"], (row["height"], row["width"]))
    return {"picture": data_uri(overlay(stored, values)), "class": str(facts["classes"][row["class"]])}


def overlay(record: UInt8[np.ndarray, "C H W"], values: Float[np.ndarray, "h w"]) -> UInt8[np.ndarray, "H W 3"]:
    """Lay a map over a record in grey: blue below 0, orange above, the stronger the larger; where the map is 0 the record shows.

    Values are in shares of the map's largest absolute value. A map of another size than the record's is read at the
    nearest place.
    """
    height, width = record.shape[1:]
    rows, columns = (np.arange(size) * had // size for size, had in zip((height, width), values.shape, strict=True))
    shares = values[np.ix_(rows, columns)] / (np.abs(values).max() or 1.0)
    grey = np.repeat(record.mean(axis=0)[..., None], 3, axis=2)
    weight = COVER * np.abs(shares)[..., None]
    colours = np.where(shares[..., None] < 0, NEGATIVE, POSITIVE)
    return np.asarray((grey + (colours - grey) * weight).round().astype(np.uint8))
