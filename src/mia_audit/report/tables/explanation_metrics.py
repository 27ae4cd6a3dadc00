"""Measures of explanations, and deletion and insertion curves, over shadow models."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from mia_audit.explanation_metrics import OTHER, REFERENCE
from mia_audit.report.data.explanation_metrics import curves_of, interpretations
from mia_audit.report.data.findings import Findings
from mia_audit.report.tables.catalogue import frame_of, table
from mia_audit.report.tables.columns import (
    SETTING,
    identity,
    interval_column,
    parts,
    parts_schema,
    printed,
    setting_columns,
    spread_column,
)
from mia_audit.report.tables.layout import Column, Layout, laid_out
from mia_audit.report.tables.summary import level
from mia_audit.report.text.formatting import fixed

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.data.results import Results

EXPLAINED = [printed("Explainer", "explainer"), printed("Quantity", "quantity"), printed("Measure", "measure")]


def _layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    columns = [
        *setting_columns(results.spec.settings),
        *EXPLAINED,
        printed("Compared with", "against"),
        spread_column("Value", "value"),
        interval_column("value_"),
    ]
    caption = f"Mean over records, then mean ± standard deviation over shadow models, {level(results)}."
    return laid_out(columns, frame.iter_rows(named=True), caption)


@table("explanation_metrics", _layout, condition=lambda spec: spec.explanation_metrics, long=True)
def explanation_metrics(results: Results, findings: Findings) -> pl.DataFrame:
    """Return every measure of every explainer in every setting."""
    interpreted = interpretations(results)
    rows = [
        {
            **identity(finding.setting),
            **{"explainer": one.explainer, "quantity": one.quantity, "measure": measure, "against": against},
            "models": value.targets,
            **parts("value", value),
            "same_class": same.mean if same else None,
        }
        for finding in findings.settings
        if (interpretation := interpreted.get(finding.setting.group))
        for one in interpretation.explained
        for measure in interpretation.measures
        for against in (None, REFERENCE, OTHER)
        if (value := interpretation.estimate(finding.setting, one, measure, against))
        for same in [interpretation.estimate(finding.setting, one, measure, against, "same_class")]
    ]
    schema = SETTING | dict.fromkeys(("explainer", "quantity", "measure", "against"), str) | {"models": int}
    return frame_of(schema | parts_schema("value") | {"same_class": float}, rows)


def _curves_layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    shares = frame["share"].unique().sort().to_list()
    curves = [
        curve.row(0, named=True) | dict(zip(curve["share"], curve["value_mean"], strict=True))
        for _, curve in frame.group_by(*SETTING, "explainer", "quantity", "measure", maintain_order=True)
    ]
    heights = [(Column(fixed(share, 2)), partial(_height, share)) for share in shares]
    caption = (
        "The class's probability when this share of the coordinates is removed (deletion) or inserted (insertion): mean over "
        "records, then over shadow models."
    )
    return laid_out([*setting_columns(results.spec.settings), *EXPLAINED, *heights], curves, caption)


def _height(share: float, curve: Mapping[Any, Any]) -> str:
    return fixed(curve[share]) if share in curve else "–"


@table("curves", _curves_layout, condition=lambda spec: spec.curves, long=True)
def curves(results: Results, findings: Findings) -> pl.DataFrame:
    """Return every curve of every explainer in every setting, a row per step."""
    rows = [
        {
            **identity(curve.finding.setting),
            **{"explainer": curve.explained.explainer, "quantity": curve.explained.quantity, "measure": curve.measure},
            **{"share": share, "models": height.targets},
            **parts("value", height),
        }
        for group in findings.groups().values()
        if group[0].setting.trained
        for curve in curves_of(results, group, results.spec.confidence)
        for share, height in zip(curve.shares, curve.heights, strict=True)
    ]
    schema = SETTING | dict.fromkeys(("explainer", "quantity", "measure"), str) | {"share": float, "models": int}
    return frame_of(schema | parts_schema("value"), rows)
