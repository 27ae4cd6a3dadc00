"""Paired differences over the same targets: between channels, between settings and their reference, and between mechanisms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mia_audit.report.data.explanation_metrics import Peer, interpretations, margin_of, peers
from mia_audit.report.data.findings import Estimate, Finding, Findings, accuracy_difference, difference, reference
from mia_audit.report.tables.catalogue import frame_of, table
from mia_audit.report.tables.columns import PARTS, SETTING, identity, interval_column, printed, setting_columns
from mia_audit.report.tables.layout import Column, Layout, laid_out
from mia_audit.report.tables.summary import level
from mia_audit.report.text.formatting import fixed

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.data.results import Results


def _layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    columns = [
        *setting_columns(results.spec.settings),
        printed("Metric", "metric"),
        printed("Minuend", "minuend"),
        printed("Subtrahend", "subtrahend"),
        (Column("Difference"), lambda row: fixed(row["mean"])),
        interval_column(),
    ]
    caption = f"Paired over the same targets (accuracy: the same shadow models), {level(results)}."
    return laid_out(columns, frame.iter_rows(named=True), caption)


@table("differences", _layout)
def differences(results: Results, findings: Findings) -> pl.DataFrame:
    """Return each channel minus outputs, each private setting minus its reference, and mechanisms at the same ε."""
    confidence, interpreted = results.spec.confidence, interpretations(results)
    rows = [
        {**identity(finding.setting), **row}
        for group in findings.groups().values()
        for finding in group
        for row in _compare(finding, reference(group), findings.fpr, confidence)
    ]
    rows += [
        {
            **identity(peer.first.setting),
            **_row(peer.metric, _name(peer.first), _name(peer.second), peer.gap),
            **_equivalence(peer, results.spec.margins, confidence),
        }
        for place, group in findings.groups().items()
        for peer in peers(group, interpreted.get(place), confidence)
    ]
    schema = SETTING | dict.fromkeys(("metric", "minuend", "subtrahend"), str) | {"targets": int}
    tested = ("margin", "p_equivalence") if results.spec.margins else ()
    return frame_of(schema | dict.fromkeys((*PARTS, *tested), float), rows)


def _equivalence(peer: Peer, margins: Mapping[str, float], confidence: float) -> dict[str, float]:
    margin = margin_of(peer.metric, margins)
    p = math.nan if margin is None else peer.gap.equivalence(margin, confidence)
    return {} if margin is None or math.isnan(p) else {"margin": margin, "p_equivalence": p}


def _compare(finding: Finding, base: Finding | None, fpr: float | None, confidence: float) -> Iterator[dict[str, Any]]:
    metrics = {"auc": "auc", **({"tpr": f"tpr_at_fpr_{fpr:g}"} if fpr is not None else {})}
    outputs = finding.strongest.get("outputs")
    for channel, leak in finding.strongest.items():
        for metric, column in metrics.items():
            if outputs is not None and channel != "outputs":
                yield _row(column, channel, "outputs", difference(leak, outputs, metric))
            if base is not None and base is not finding and channel in base.strongest:
                yield _row(
                    column, channel, f"{channel} of {_name(base)}", difference(leak, base.strongest[channel], metric)
                )
    if base is not None and base is not finding and (gap := accuracy_difference(finding, base, confidence)):
        yield _row("test_accuracy", "test_accuracy", f"test_accuracy of {_name(base)}", gap)


def _name(finding: Finding) -> str:
    nominal = " (no guarantee)" if finding.setting.no_guarantee else ""
    return f"{finding.setting.mechanism}-eps{finding.setting.named}{nominal}"


def _row(metric: str, minuend: str, subtrahend: str, value: Estimate) -> dict[str, Any]:
    values = {part: known for part in PARTS if not math.isnan(known := getattr(value, part))}
    return {"metric": metric, "minuend": minuend, "subtrahend": subtrahend, "targets": value.targets, **values}
