"""The tables of an audit as data frames: settings, all attacks, differences over the same targets, null control."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from mia_audit.evaluation.summary import summarise
from mia_audit.interpretability import OTHER, REFERENCE
from mia_audit.report.constants import Releases, columns, releases
from mia_audit.report.explanation_curves import curves_of
from mia_audit.report.findings import (
    Estimate,
    Finding,
    Findings,
    Leak,
    accuracy_difference,
    difference,
    reference,
    shadow_estimate,
)
from mia_audit.report.gaps import left_out_of, told
from mia_audit.report.interpretability import Interpretation, interpretations, peers
from mia_audit.report.latex import render
from mia_audit.report.provenance import guarantee
from mia_audit.report.results import Results, Setting, Spec
from mia_audit.storage import write_table, write_text

SETTING = {"dataset": pl.String, "architecture": pl.String, "mechanism": pl.String, "epsilon": pl.String}
CHANNELS = {"outputs": "output", "explanations": "explanation", "both": "joint", "other": "signal"}
PARTS = ("mean", "sd", "low", "high")
TRAINED = ("train_accuracy", "test_accuracy", "train_loss", "test_loss")


def build(results: Results, findings: Findings) -> dict[str, pl.DataFrame]:
    """Return all tables by name; null means unknown or, for a TPR, not resolvable."""
    summary = _summary(results)
    interpreted = interpretations(results)
    tables = {
        "settings": _settings(findings, results.spec, releases(results)),
        "summary": summary.filter(~pl.col("null_control")).drop("null_control"),
        "differences": _differences(findings, interpreted, results.spec.confidence),
        "null_control": _null_control(summary),
    }
    if interpreted:
        tables["interpretability"] = _interpretability(findings, interpreted)
    if results.spec.curved:
        tables["curves"] = _curves(results, findings)
    return tables


def _identity(setting: Setting) -> dict[str, str]:
    return {name: getattr(setting, name) for name in SETTING} | {"epsilon": setting.promised}


def _parts(name: str, found: Estimate | None) -> dict[str, float | None]:
    values = [getattr(found, part) if found else math.nan for part in PARTS]
    return {f"{name}_{part}": None if math.isnan(value) else value for part, value in zip(PARTS, values, strict=True)}


def _summary(results: Results) -> pl.DataFrame:
    """Every attack × signal × variance on every setting, real and permuted, over targets."""
    frames = []
    for setting, metrics in zip(results.spec.settings, results.metrics, strict=True):
        identity = [pl.lit(value).alias(name) for name, value in _identity(setting).items()]
        frame = summarise(metrics, results.spec.confidence)
        frames.append(frame.select(*identity, pl.all()))
    return pl.concat(frames, how="diagonal")


def _null_control(summary: pl.DataFrame) -> pl.DataFrame:
    columns = [*SETTING, "attack", "signal", "variance", "targets", *(f"auc_{part}" for part in PARTS)]
    null = summary.filter(pl.col("null_control")).select(columns)
    return null.with_columns(
        holds_half=pl.when(pl.col("auc_low").is_not_null()).then(
            (pl.col("auc_low") <= 0.5) & (pl.col("auc_high") >= 0.5)
        )
    )


def _settings(findings: Findings, spec: Spec, released: Releases) -> pl.DataFrame:
    left_out = left_out_of(spec)
    rows = [
        _setting(found, findings) | {"left_out": left_out.get(found.setting)} | columns(found.setting, released)
        for found in findings.settings
    ]
    nothing = dict.fromkeys(_settings_schema())
    rows += [nothing | _identity(gap.setting) | {"left_out": told(gap)} for gap in spec.gaps if not gap.attacked]
    frame = pl.DataFrame(rows, schema=_settings_schema(), orient="row")
    absent = [f"{prefix}_" for prefix in CHANNELS.values() if frame[f"{prefix}_attack"].is_null().all()]
    sometimes = ("no_guarantee", "constants_epsilon", "constants_delta")
    unsaid = [name for name in sometimes if frame[name].is_null().all()]
    return frame.drop(unsaid, *(name for name in frame.columns if name.startswith(tuple(absent))))


def _settings_schema() -> dict[str, Any]:
    schema: dict[str, Any] = SETTING | {"no_guarantee": pl.String}
    schema |= dict.fromkeys(
        ["delta", "epsilon_spent", "epsilon_spent_rdp", "noise_multiplier", "sampling_rate"], pl.Float64
    )
    schema |= dict.fromkeys(["constants_epsilon", "constants_delta"], pl.Float64)
    schema |= dict.fromkeys(["epsilon_shown", "epsilon_shown_delta"], pl.Float64) | {"epsilon_shown_by": pl.String}
    schema |= dict.fromkeys(["accountant", "sampling", "clipping"], pl.String)
    schema |= {"models": pl.Int32}
    schema |= {f"{name}_{part}": pl.Float64 for name in TRAINED for part in PARTS}
    schema |= {"left_out": pl.String, "fpr": pl.Float64}
    for prefix in CHANNELS.values():
        schema |= {f"{prefix}_{name}": pl.String for name in ("attack", "signal", "variance")}
        schema |= {f"{prefix}_attacks_tried": pl.Int32}
        schema |= {f"{prefix}_{metric}_{part}": pl.Float64 for metric in ("auc", "tpr_at_fpr") for part in PARTS}
    return schema


def _setting(found: Finding, findings: Findings) -> dict[str, Any]:
    setting = found.setting
    row: dict[str, Any] = {
        **_identity(setting),
        "no_guarantee": setting.no_guarantee or None,
        "delta": setting.delta,
        "accountant": setting.accountant,
        "clipping": setting.clipping,
        "fpr": findings.fpr,
        **_parts("train_accuracy", found.train_accuracy),
        **_parts("test_accuracy", found.test_accuracy),
        **_parts("train_loss", shadow_estimate(found.shadows, "train_loss", findings.confidence)),
        **_parts("test_loss", shadow_estimate(found.shadows, "test_loss", findings.confidence)),
        **guarantee(found),
    }
    if found.proof:
        names = ("epsilon_shown", "epsilon_shown_delta", "epsilon_shown_by")
        row |= dict(zip(names, (found.proof.epsilon, found.proof.delta, found.proof.method), strict=True))
    for channel, leak in found.strongest.items():
        row |= _leak(CHANNELS[channel], leak)
    row["models"] = len(found.shadows) if found.shadows is not None else _targets(found)
    return {name: row.get(name) for name in _settings_schema()}


def _targets(found: Finding) -> int | None:
    return max((len(leak.targets) for leak in found.strongest.values()), default=None)


def _leak(prefix: str, leak: Leak) -> dict[str, Any]:
    return {
        f"{prefix}_attack": leak.attack,
        f"{prefix}_signal": leak.signal,
        f"{prefix}_variance": leak.variance,
        f"{prefix}_attacks_tried": leak.tried,
        **_parts(f"{prefix}_auc", leak.auc_estimate),
        **_parts(f"{prefix}_tpr_at_fpr", leak.tpr_estimate),
    }


def _interpretability(findings: Findings, interpreted: dict[tuple[str, str], Interpretation]) -> pl.DataFrame:
    """Every measure of every explainer in every setting, over shadow models."""
    rows = [
        {
            **_identity(found.setting),
            **{"explainer": one.explainer, "quantity": one.quantity, "measure": measure, "against": against},
            "models": value.targets,
            **_parts("value", value),
            "same_class": same.mean if same else None,
        }
        for found in findings.settings
        if (interpretation := interpreted.get(found.setting.group))
        for one in interpretation.explained
        for measure in interpretation.measures
        for against in (None, REFERENCE, OTHER)
        if (value := interpretation.estimate(found.setting, one, measure, against))
        for same in [interpretation.estimate(found.setting, one, measure, against, "same_class")]
    ]
    schema: dict[str, Any] = SETTING | dict.fromkeys(("explainer", "quantity", "measure", "against"), pl.String)
    schema |= {"models": pl.Int32} | dict.fromkeys((*(f"value_{part}" for part in PARTS), "same_class"), pl.Float64)
    return pl.DataFrame(rows, schema=schema, orient="row")


def _curves(results: Results, findings: Findings) -> pl.DataFrame:
    """Every curve of every explainer in every setting, a row a step, over shadow models."""
    rows = [
        {
            **_identity(curve.found.setting),
            **{"explainer": curve.one.explainer, "quantity": curve.one.quantity, "measure": curve.measure},
            "share": share,
            "models": height.targets,
            **_parts("value", height),
        }
        for group in findings.groups().values()
        if group[0].setting.trained
        for curve in curves_of(results, group, results.spec.confidence)
        for share, height in zip(curve.shares, curve.heights, strict=True)
    ]
    schema: dict[str, Any] = SETTING | dict.fromkeys(("explainer", "quantity", "measure"), pl.String)
    schema |= {"share": pl.Float64, "models": pl.Int32} | {f"value_{part}": pl.Float64 for part in PARTS}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _differences(
    findings: Findings, interpreted: dict[tuple[str, str], Interpretation], confidence: float
) -> pl.DataFrame:
    """Paired differences: each channel minus outputs within a setting, each private setting minus its reference, and
    mechanisms of the same ε."""
    rows = [
        {**_identity(found.setting), **row}
        for group in findings.groups().values()
        for found in group
        for row in _compare(found, reference(group), findings.fpr, confidence)
    ]
    rows += [
        {**_identity(peer.first.setting), **_row(peer.what, _name(peer.first), _name(peer.second), peer.found)}
        for place, group in findings.groups().items()
        for peer in peers(group, interpreted.get(place), confidence)
    ]
    schema = SETTING | {"metric": pl.String, "minuend": pl.String, "subtrahend": pl.String, "targets": pl.Int32}
    return pl.DataFrame(rows, schema=schema | dict.fromkeys(PARTS, pl.Float64), orient="row")


def _compare(found: Finding, base: Finding | None, fpr: float | None, confidence: float) -> Iterator[dict[str, Any]]:
    metrics = {"auc": "auc", **({"tpr": f"tpr_at_fpr_{fpr:g}"} if fpr is not None else {})}
    outputs = found.strongest.get("outputs")
    for channel, leak in found.strongest.items():
        for metric, column in metrics.items():
            if outputs is not None and channel != "outputs":
                yield _row(column, channel, "outputs", difference(leak, outputs, metric))
            if base is not None and base is not found and channel in base.strongest:
                yield _row(
                    column, channel, f"{channel} of {_name(base)}", difference(leak, base.strongest[channel], metric)
                )
    if base is not None and base is not found and (gap := accuracy_difference(found, base, confidence)):
        yield _row("test_accuracy", "test_accuracy", f"test_accuracy of {_name(base)}", gap)


def _name(found: Finding) -> str:
    nominal = " (no guarantee)" if found.setting.no_guarantee else ""
    return f"{found.setting.mechanism}-eps{found.setting.epsilon}{nominal}"


def _row(metric: str, minuend: str, subtrahend: str, found: Estimate) -> dict[str, Any]:
    values = {part: value for part in PARTS if not math.isnan(value := getattr(found, part))}
    return {"metric": metric, "minuend": minuend, "subtrahend": subtrahend, "targets": found.targets, **values}


def write(tables: dict[str, pl.DataFrame], out: Path, spec: Spec) -> None:
    """Write every table as Parquet (exact), CSV (six significant digits) and LaTeX (three decimals) into a folder."""
    facts = {"audit": spec.audit, "config_hash": spec.config_hash, "confidence": spec.confidence}
    for name, frame in tables.items():
        write_table(out / f"{name}.parquet", frame.to_arrow(), name, len(frame), facts)
        write_text(out / f"{name}.csv", to_csv(frame))
        write_text(out / f"{name}.tex", render(name, frame, spec))


def to_csv(frame: pl.DataFrame) -> str:
    """Write a table as CSV; a TPR that the pool is too small for says so."""
    floats = [name for name, kind in frame.schema.items() if kind == pl.Float64]
    text = frame.with_columns(pl.col(floats).map_elements(lambda value: f"{value:.6g}", return_dtype=pl.String))
    text = text.with_columns(
        pl.when(frame[name].is_null() & known).then(pl.lit("not resolvable")).otherwise(pl.col(name)).alias(name)
        for name, known in _resolvable(frame)
    )
    return text.write_csv()


def _resolvable(frame: pl.DataFrame) -> Iterator[tuple[str, pl.Series]]:
    """Yield the means of TPRs, and where an attack was made whose TPR is missing because the pool is too small."""
    for name in frame.columns:
        if "tpr_at_fpr" in name and name.endswith("_mean"):
            prefix = name.partition("tpr_at_fpr")[0]
            yield name, frame[f"{prefix}attack"].is_not_null()
