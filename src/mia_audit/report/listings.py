"""The page's tables, cell by cell: the answer's bars, the settings, all attacks, the null control."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from mia_audit.report.answer import TITLES
from mia_audit.report.findings import CHANNELS, Finding, Findings, Leak, reference, shadow_estimate
from mia_audit.report.provenance import guarantee
from mia_audit.report.signals import read_signal
from mia_audit.report.statements import (
    guarantee_sentence,
    most_targets,
    no_guarantee_sentence,
    null_ceiling,
    null_sentence,
    proof_sentences,
)
from mia_audit.report.words import (
    at_least,
    at_most,
    capital,
    count,
    fixed,
    interval,
    percent,
    percent_interval,
    plus_minus,
    power,
    protection,
    rate,
    significant,
)

COST = "What a training step took is measured, other on every run, and so not on this page: see benchmarks/cost.csv."


def present_channels(group: Sequence[Finding]) -> list[str]:
    """List the channels that were attacked in some setting, outputs first."""
    return [channel for channel in CHANNELS if any(channel in found.strongest for found in group)]


def answer_table(group: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return the answer's rows: per setting the strongest attack on each channel, as a number and a bar, and the accuracy."""
    present, bounds = present_channels(group), _bounds(group)
    return [_row(found, present, bounds) for found in group]


def _bounds(group: Sequence[Finding]) -> tuple[float, float]:
    found = [leak.auc_estimate for one in group for leak in one.strongest.values()]
    values = [0.5, *(value for one in found for value in (one.mean, one.low, one.high) if not math.isnan(value))]
    margin = 0.06 * (max(values) - min(values)) or 0.01
    return min(values) - margin, max(values) + margin


def _row(found: Finding, present: Sequence[str], bounds: tuple[float, float]) -> dict[str, Any]:
    accuracy = found.test_accuracy
    return {
        "name": capital(protection(found.setting)),
        "cells": [_cell(channel, found.strongest.get(channel), bounds) for channel in present],
        "accuracy": percent(accuracy.mean) if accuracy else "",
        "accuracy_interval": percent_interval(accuracy) if accuracy else "",
    }


def _cell(channel: str, leak: Leak | None, bounds: tuple[float, float]) -> dict[str, Any]:
    cell: dict[str, Any] = {"channel": TITLES[channel], "kind": channel, "known": leak is not None}
    if leak is None:
        return cell
    found = leak.auc_estimate
    low, high = (found.mean if math.isnan(value) else value for value in (found.low, found.high))
    places = {"chance": 0.5, "low": low, "mean": found.mean, "high": high}
    cell |= {name: f"{100 * (value - bounds[0]) / (bounds[1] - bounds[0]):.1f}" for name, value in places.items()}
    return cell | {"auc": fixed(found.mean), "interval": interval(found), "leaks": leak.beats_guessing}


def settings_table(findings: Findings) -> dict[str, Any]:
    """Describe the table of settings: one head over AUC and TPR of each channel, a row per setting, a note per guarantee."""
    present = present_channels(findings.settings)
    trained = any(found.shadows is not None for found in findings.settings)
    rows = []
    for found in findings.settings:
        epsilon, *accuracies = _training_cells(found, findings.confidence) if trained else [None]
        cells = [cell for cell in (epsilon, _proof_cell(found), *accuracies) if cell]
        for channel in present:
            cells += _leak_cells(found.strongest.get(channel), findings.fpr)
        rows.append({"name": _setting_name(found, findings), "cells": cells})
    private = [found for found in findings.settings if found.setting.private]
    return {
        "models": count(most_targets(findings), "model"),
        "trained": trained,
        "heads": [TITLES[channel] for channel in present],
        "tpr": "TPR" if findings.fpr is None else f"TPR at {rate(findings.fpr)} FPR",
        "rows": rows,
        "notes": [
            *dict.fromkeys(f"{capital(guarantee_sentence(found, guarantee(found)))}." for found in private),
            *(f"{no_guarantee_sentence(found)}." for found in findings.settings if found.setting.no_guarantee),
            *proof_sentences(findings),
            *([COST] if trained else []),
        ],
    }


def _setting_name(found: Finding, findings: Findings) -> str:
    """Name a setting among all, not only among those of its group."""
    name = protection(found.setting)
    return capital(name) if len(findings.groups()) == 1 else f"{', '.join(found.setting.group)}: {name}"


def _training_cells(found: Finding, confidence: float) -> list[dict[str, str]]:
    spent = guarantee(found).get("epsilon_spent")
    delta = f"δ = {power(found.setting.delta)}" if found.setting.delta else ""
    without = {"main": "none", "note": "no guarantee"} if found.setting.no_guarantee else None
    if found.setting.explained and found.setting.private:
        spent = float(found.setting.epsilon)
        delta = f"each, {delta}"
    spent_cell = {"main": at_most(spent), "note": delta} if spent is not None else None
    cells = [without or spent_cell or {"main": "∞", "note": "no guarantee"}]
    for phase, accuracy in (("train", found.train_accuracy), ("test", found.test_accuracy)):
        loss = shadow_estimate(found.shadows, f"{phase}_loss", confidence)
        told = {"more": f"loss {fixed(loss.mean)}"} if loss else {}
        known = {"main": percent(accuracy.mean), "note": percent_interval(accuracy)} | told if accuracy else None
        cells.append(known or {"main": "unknown", "note": ""})
    return cells


def _proof_cell(found: Finding) -> dict[str, str]:
    if found.proof is None:
        return {"main": "–", "note": ""}
    return {"main": at_least(found.proof.epsilon), "note": f"δ = {power(found.proof.delta)}"}


def _leak_cells(leak: Leak | None, fpr: float | None) -> list[dict[str, str]]:
    if leak is None:
        return [{"main": "–", "note": ""}] * 2
    auc, tpr = leak.auc_estimate, leak.tpr_estimate
    named = {"main": fixed(auc.mean), "note": f"{interval(auc)}"}
    if fpr is None:
        return [named, {"main": "not resolvable", "note": ""}]
    return [named, {"main": percent(tpr.mean), "note": percent_interval(tpr)}]


def attacks_table(group: Sequence[Finding]) -> Iterator[dict[str, Any]]:
    """Yield a row per attack and signal, strongest first in the reference setting."""
    by_setting = [{leak.key: leak for listed in found.leaks.values() for leak in listed} for found in group]
    base = reference(group) or group[0]
    first = by_setting[group.index(base)]
    keys = list(dict.fromkeys(key for found in (first, *by_setting) for key in found))
    keys.sort(key=lambda key: -first[key].auc.mean() if key in first else 0.0)
    for key in keys:
        cells = [plus_minus(found[key].auc_estimate) if key in found else "–" for found in by_setting]
        yield {"attack": key[0], "signal": read_signal(key[1]).label, "cells": cells}


def null_table(findings: Findings) -> dict[str, Any] | None:
    """Describe the null control of the strongest attacks, in words and rows; None where there is none."""
    rows = [
        {
            "name": _setting_name(found, findings),
            "channel": TITLES[channel].lower(),
            "attack": f"{leak.attack} on {read_signal(leak.signal).label}",
            "real": fixed(leak.auc_estimate.mean),
            "real_interval": interval(leak.auc_estimate),
            "null": fixed(one.mean),
            "null_interval": interval(one),
            "holds": f"no, by {significant(max(one.low - 0.5, 0.5 - one.high), 1)}" if one.excludes(0.5) else "yes",
        }
        for found in findings.settings
        if found.null
        for channel, one in found.null.headline.items()
        for leak in [found.strongest[channel]]
    ]
    return {"text": f"{null_sentence(findings.settings)} {null_ceiling(findings)}", "rows": rows} if rows else None
