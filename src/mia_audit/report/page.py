"""report.html: one file that loads nothing, with the answer first."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mia_audit.report import charts
from mia_audit.report.answer import TITLES, answer
from mia_audit.report.exposed import most_exposed
from mia_audit.report.findings import CHANNELS, Finding, Findings, Leak, reference
from mia_audit.report.provenance import guarantee
from mia_audit.report.results import Results
from mia_audit.report.series import curves, series
from mia_audit.report.signals import read_signal
from mia_audit.report.statements import (
    caught_sentences,
    design_of,
    exposed_sentences,
    guarantee_sentence,
    most_targets,
    null_ceiling,
    null_sentence,
    scope,
)
from mia_audit.report.words import (
    count,
    fixed,
    interval,
    joined,
    percent,
    percent_interval,
    plus_minus,
    power,
    protection,
    rate,
    significant,
)

ROC_CAPTION = (
    "ROC curves on logarithmic axes: mean over targets, read as steps and never interpolated, down to one false alarm among "
    "all records that were not trained on. Above the dashed diagonal an attack beats guessing; the left end is where "
    "records are named with hardly any false alarms. Bands: ± one standard deviation over targets, for the first two. "
    "A click on a name in the legend shows it alone; pointing at a curve shows its numbers."
)
AUC_CAPTION = (
    "AUC of the strongest attack on each kind of information, setting by setting, with intervals. Dashed: guessing."
)
TPR_CAPTION = (
    "The share of training records named at {fpr} false alarms, setting by setting, with intervals. Dashed: guessing."
)
TRADEOFF_CAPTION = "The price of protection: accuracy against leakage, with intervals. Down and to the right is better."


def render(results: Results, findings: Findings, sources: Mapping[str, Any]) -> str:
    """Write the page of an audit; `sources` is what provenance.json says."""
    import jinja2

    loader = jinja2.PackageLoader("mia_audit.report", "templates")
    options: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": jinja2.StrictUndefined}
    template = jinja2.Environment(loader=loader, autoescape=True, **options).get_template("report.html.j2")
    specifications: dict[str, dict[str, Any]] = {}
    groups = [
        _group(results, findings, group, index, specifications)
        for index, group in enumerate(findings.groups().values())
    ]
    exposed = list(_exposed(results, findings))
    null = _null(findings)
    spec = results.spec
    private = [found for found in findings.settings if found.setting.private]
    return template.render(
        title=spec.title or spec.audit,
        version=sources["versions"].get("mia-audit", ""),
        scope=scope(results, findings),
        contents=_contents(bool(exposed), bool(null)),
        level=f"{spec.confidence * 100:g}\u00a0%",
        fpr=rate(findings.fpr) if findings.fpr is not None else "",
        channels={channel for found in findings.settings for channel in found.strongest},
        private=bool(private),
        sampling=joined(sorted({str(facts["sampling"]) for found in private if (facts := guarantee(found))})),
        groups=groups,
        settings=_settings(findings),
        exposed=exposed,
        null=null,
        facts=list(_facts(results, findings, sources)),
        hashes=sources["inputs_sha256"],
        config=_yaml(spec.config),
        charts=_safe(json.dumps(specifications, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")),
        bundle=_safe(_bundle()),
    )


def _safe(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)


def _bundle() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script, for all charts of the page."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")


def _contents(exposed: bool, null: bool) -> list[tuple[str, str]]:
    entries = [
        ("answer", "Answer", True),
        ("words", "Words", True),
        ("curves", "Curves", True),
        ("settings", "Settings", True),
        ("records", "Exposed records", exposed),
        ("null", "Null control", null),
        ("attacks", "All attacks", True),
        ("limits", "Limits", True),
        ("provenance", "Provenance", True),
    ]
    return [(anchor, name) for anchor, name, shown in entries if shown]


def _group(
    results: Results, findings: Findings, group: list[Finding], index: int, specifications: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Describe one data set and architecture; its charts' specifications are added to `specifications` by their id."""
    present = [channel for channel in CHANNELS if any(channel in found.strongest for found in group)]
    bounds = _bounds(group)
    figures = []
    for name, label, caption, chart in _charts(results, findings, group):
        specifications[f"chart-{index}-{name}"] = chart
        figures.append({"id": f"chart-{index}-{name}", "label": label, "caption": caption})
    return {
        "name": ", ".join(group[0].setting.group),
        "answer": answer(group, findings, results.spec.confidence),
        "channels": [TITLES[channel] for channel in present],
        "trained": any(found.test_accuracy for found in group),
        "rows": [_row(found, present, bounds) for found in group],
        "null_sentence": null_sentence(group),
        "figures": figures,
        "attacks": list(_all_attacks(group)),
    }


def _bounds(group: Sequence[Finding]) -> tuple[float, float]:
    found = [leak.auc_estimate for one in group for leak in one.strongest.values()]
    values = [0.5, *(value for one in found for value in (one.mean, one.low, one.high) if not math.isnan(value))]
    margin = 0.06 * (max(values) - min(values)) or 0.01
    return min(values) - margin, max(values) + margin


def _row(found: Finding, present: Sequence[str], bounds: tuple[float, float]) -> dict[str, Any]:
    accuracy = found.test_accuracy
    return {
        "name": _capital(protection(found.setting)),
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


def _charts(
    results: Results, findings: Findings, group: list[Finding]
) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yield id, label, caption and specification of the charts of a group."""
    drawn = series(group)
    named = [(_capital(protection(found.setting)), found) for found in group]
    lines = {name: curves(results, found, drawn, charts.POINTS) for name, found in named}
    if any(lines.values()):
        yield "roc", "Log-log ROC curves", ROC_CAPTION, charts.roc_chart(lines, drawn)
    if len(group) > 1:
        yield "auc", "AUC in every setting", AUC_CAPTION, charts.leak_chart(named, drawn, "auc", None)
        if findings.fpr is not None:
            caption = TPR_CAPTION.format(fpr=rate(findings.fpr))
            yield "tpr", "TPR in every setting", caption, charts.leak_chart(named, drawn, "tpr", findings.fpr)
        if sum(found.test_accuracy is not None for found in group) > 1:
            yield "tradeoff", "Accuracy against leakage", TRADEOFF_CAPTION, charts.tradeoff_chart(named)


def _settings(findings: Findings) -> dict[str, Any]:
    """Describe the table of settings: one head over AUC and TPR of each channel, a row per setting, a note per guarantee."""
    present = [channel for channel in CHANNELS if any(channel in found.strongest for found in findings.settings)]
    trained = any(found.shadows is not None for found in findings.settings)
    rows = []
    for found in findings.settings:
        cells = _training_cells(found) if trained else []
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
        "notes": [f"{_capital(guarantee_sentence(found, guarantee(found)))}." for found in private],
    }


def _setting_name(found: Finding, findings: Findings) -> str:
    """Name a setting among all, not only among those of its group."""
    name = protection(found.setting)
    return _capital(name) if len(findings.groups()) == 1 else f"{', '.join(found.setting.group)}: {name}"


def _training_cells(found: Finding) -> list[dict[str, str]]:
    spent = guarantee(found).get("epsilon_spent")
    delta = f"δ = {power(found.setting.delta)}" if found.setting.delta else ""
    cells = [
        {"main": significant(spent), "note": delta} if spent is not None else {"main": "∞", "note": "no guarantee"}
    ]
    for accuracy in (found.train_accuracy, found.test_accuracy):
        known = {"main": percent(accuracy.mean), "note": percent_interval(accuracy)} if accuracy else None
        cells.append(known or {"main": "unknown", "note": ""})
    return cells


def _leak_cells(leak: Leak | None, fpr: float | None) -> list[dict[str, str]]:
    if leak is None:
        return [{"main": "–", "note": ""}] * 2
    auc, tpr = leak.auc_estimate, leak.tpr_estimate
    named = {"main": fixed(auc.mean), "note": f"{interval(auc)}"}
    if fpr is None:
        return [named, {"main": "not resolvable", "note": ""}]
    return [named, {"main": percent(tpr.mean), "note": percent_interval(tpr)}]


def _all_attacks(group: Sequence[Finding]) -> Iterator[dict[str, Any]]:
    """Yield a row per attack and signal, strongest first in the reference setting."""
    by_setting = [{leak.key: leak for listed in found.leaks.values() for leak in listed} for found in group]
    base = reference(group) or group[0]
    first = by_setting[group.index(base)]
    keys = list(dict.fromkeys(key for found in (first, *by_setting) for key in found))
    keys.sort(key=lambda key: -first[key].auc.mean() if key in first else 0.0)
    for key in keys:
        cells = [plus_minus(found[key].auc_estimate) if key in found else "–" for found in by_setting]
        yield {"attack": key[0], "signal": read_signal(key[1]).label, "cells": cells}


def _exposed(results: Results, findings: Findings) -> Iterator[dict[str, Any]]:
    """Describe the most exposed records of every data set, in the setting that its private ones are compared with."""
    seen: set[str] = set()
    for group in findings.groups().values():
        found = reference(group) or group[0]
        listed = most_exposed(results, found, findings.fpr) if found.setting.dataset not in seen else None
        if listed is None or not listed[1]:
            continue
        seen.add(found.setting.dataset)
        leak, records = listed
        maps, bars = (any(getattr(one, name) for one in records) for name in ("maps", "bars"))
        yield {
            "name": found.setting.dataset,
            "text": exposed_sentences(found, leak, len(records), maps, bars),
            "records": [
                vars(one)
                | {
                    "told": caught_sentences(
                        one.caught, one.inside, one.false_alarms, one.outside, one.percentile, findings.fpr
                    )
                }
                for one in records
            ],
        }


def _null(findings: Findings) -> dict[str, Any] | None:
    rows = [
        {
            "name": _setting_name(found, findings),
            "channel": TITLES[channel].lower(),
            "attack": f"{leak.attack} on {read_signal(leak.signal).label}",
            "real": fixed(leak.auc_estimate.mean),
            "real_interval": interval(leak.auc_estimate),
            "null": fixed(one.mean),
            "null_interval": interval(one),
            "holds": "no" if one.excludes(0.5) else "yes",
        }
        for found in findings.settings
        if found.null
        for channel, one in found.null.headline.items()
        for leak in [found.strongest[channel]]
    ]
    return {"text": f"{null_sentence(findings.settings)} {null_ceiling(findings)}", "rows": rows} if rows else None


def _facts(results: Results, findings: Findings, sources: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "Audit", f"{sources['audit']}" + (f", seed {sources['seed']}" if sources["seed"] is not None else "")
    if sources["config_sha256"]:
        yield "Config", f"SHA-256 {sources['config_sha256']}"
    for name, facts in sources["pools"].items():
        noise = (results.spec.config.get("datasets", {}).get(name) or {}).get("label_noise")
        parts = [
            count(facts["records"], "audited record"),
            f"{count(facts['public'], 'public record')} set aside",
            f"{count(facts.get('duplicates') or 0, 'duplicate')} dropped",
            *([f"{noise * 100:g}\u00a0% of labels replaced"] if noise else []),
        ]
        yield f"Pool {name}", ", ".join(parts)
    design = design_of(results)
    if design:
        yield (
            "Membership",
            f"{DESIGNS.get(design, design)} (design {design}); one draw, shared by all settings of a data set",
        )
    private = [found for found in findings.settings if found.setting.private]
    if private:
        told = "; ".join(guarantee_sentence(found, guarantee(found)) for found in private)
        yield "Guarantees", f"{_capital(told)}. Adjacency: one record added or removed."
    yield "Read-out", READ_OUT.format(variance=results.spec.variance)
    yield "Versions", ", ".join(f"{name} {version}" for name, version in sources["versions"].items())


DESIGNS = {
    "half": "every model trains on its own uniformly random half of the pool",
    "bernoulli": "a fair coin for every record and model",
}
READ_OUT = (
    "Exact ROC over all thresholds, ties as one vertex; TPR at an FPR is the largest at or below it; AUC with ties at ½; "
    "means over targets with Student-t intervals; likelihood ratios with the {variance} variance."
)


def _yaml(config: Mapping[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)) if config else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] if text.startswith(("no ", "given", "with")) else text
