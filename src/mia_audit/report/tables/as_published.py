"""The attacks of Huang et al. 2024 as published, with the authors' read-out of the ROC curve and the exact one, beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mia_audit.attacks.catalogue import AUTHORS, attacks
from mia_audit.report.tables.catalogue import frame_of, table
from mia_audit.report.tables.columns import (
    ATTACK,
    ATTACK_COLUMNS,
    SETTING,
    identity,
    printed,
    setting_columns,
    spread_column,
)
from mia_audit.report.tables.layout import Layout, laid_out

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.data.findings import Findings
    from mia_audit.report.data.results import Results
    from mia_audit.report.data.spec import Setting

METRICS = ("auc", "tpr_at_fpr_0.001", "tpr_at_fpr_0.01")

CAPTION = (
    "Mean ± standard deviation over targets. The read-out of the authors' code is no TPR at an FPR: it swaps the axes of the "
    "curve and mistakes indices for rates (docs/reproduction.md). It is shown only for comparison with printed numbers."
)


def _layout(results: Results, findings: Findings, frame: pl.DataFrame) -> Layout:
    columns = [
        *setting_columns(results.spec.settings),
        printed("Attacked", "of"),
        *ATTACK_COLUMNS,
        printed("Read-out", "read_out"),
        spread_column("AUC", "auc"),
        spread_column("TPR at 0.1 %", "tpr_at_fpr_0.001", "not resolvable"),
        spread_column("TPR at 1 %", "tpr_at_fpr_0.01", "not resolvable"),
    ]
    return laid_out(columns, frame.iter_rows(named=True), CAPTION)


@table("as_published", _layout, condition=lambda spec: spec.as_published, long=True)
def as_published(results: Results, findings: Findings) -> pl.DataFrame:
    """Return, for the loss and every summary of explanations, the authors' score with both read-outs and all other attacks.

    Attacks with likelihoods use the headline's. `of` is that signal, which some of the attacks read together with others.
    """
    rows: list[dict[str, Any]] = []
    for setting, summary in zip(results.spec.settings, results.summaries, strict=True):
        known = summary.filter(null_control=False, aggregate="none")
        headlines = [row for row in known.iter_rows(named=True) if _headline(row, results.spec.likelihood)]
        theirs = [row["signal"] for row in headlines if row["attack"] == AUTHORS]
        for signal in theirs:
            rows += (identity(setting) | {"of": signal} | row for row in _rows(results, setting, signal, headlines))
    schema: dict[str, type] = SETTING | {"of": str} | ATTACK | {"read_out": str, "targets": int}
    schema |= {f"{metric}_{part}": float for metric in METRICS for part in ("mean", "sd")}
    return frame_of(schema, [{name: row.get(name) for name in schema} for row in rows])


def _headline(row: Mapping[str, Any], likelihood: str) -> bool:
    known = attacks[row["attack"]].likelihoods if row["attack"] in attacks else ()
    own = likelihood if likelihood in known else known[0] if known else "none"
    return bool(row["likelihood"] == own)


def _rows(results: Results, setting: Setting, signal: str, headlines: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    import numpy as np

    from mia_audit.evaluation.authors_read_out import FPRS, authors_read_out

    scored = results.scored(setting, AUTHORS, signal, "none")
    read = [authors_read_out(*pair) for pair in zip(scored.score.T, scored.member.T, strict=True)]
    values = np.array([[auc, *tprs] for tprs, auc in read])
    names = ("auc", *(f"tpr_at_fpr_{fpr:g}" for fpr in FPRS))
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else [None] * len(names)
    yield {
        **{"attack": AUTHORS, "signal": signal, "likelihood": "none", "read_out": "authors'", "targets": len(read)},
        **{f"{name}_mean": float(value) for name, value in zip(names, values.mean(axis=0), strict=True)},
        **{f"{name}_sd": value for name, value in zip(names, spread, strict=True)},
    }
    read_with = {signal, "confidence"} if signal == "loss" else {signal}
    own = [row for row in headlines if read_with & set(row["signal"].split("+")) and _of(row, signal)]
    yield from ({**row, "read_out": "exact"} for row in sorted(own, key=lambda row: row["attack"] != AUTHORS))


def _of(row: Mapping[str, Any], signal: str) -> bool:
    """Return whether an attack is listed under the signal; one that reads explanations with the confidence is not, under the loss."""
    return signal != "loss" or "+" not in row["signal"]
