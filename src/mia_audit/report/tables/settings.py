"""The table of settings: guarantees, lower bounds on ε, accuracies and the strongest attack on each channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mia_audit.report.data.findings import CHANNELS, Finding, Findings, shadow_estimate
from mia_audit.report.data.provenance import guarantee
from mia_audit.report.tables.catalogue import frame_of, table
from mia_audit.report.tables.columns import (
    ATTACK,
    SETTING,
    SETTING_COLUMNS,
    identity,
    leak_cells,
    parts,
    parts_schema,
    setting_cells,
)
from mia_audit.report.tables.layout import Cell, Column, Layout, text
from mia_audit.report.text.answer import TITLES
from mia_audit.report.text.formatting import (
    at_least,
    at_most,
    capital,
    count,
    fixed,
    percent,
    percent_interval,
    power,
    protection,
    rate,
)
from mia_audit.report.text.statements import gap_sentence, missing_models, most_targets, setting_notes

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.data.baselines import Start
    from mia_audit.report.data.results import Results
    from mia_audit.report.data.spec import Setting

PREFIXES = {"outputs": "output", "explanations": "explanation", "both": "joint", "other": "signal"}
"""Prefixes of the columns of a channel."""
TRAINED = ("train_accuracy", "test_accuracy", "train_loss", "test_loss")
PHASES = ("train", "test")
UNKNOWN = Cell("–")


def present_channels(group: Sequence[Finding]) -> list[str]:
    """List the channels that were attacked in some setting, outputs first."""
    return [channel for channel in CHANNELS if any(channel in finding.strongest for finding in group)]


def settings_layout(
    results: Results, findings: Findings, frame: pl.DataFrame | None = None, page: bool = False
) -> Layout:
    """Return a table with a row per setting and a note per guarantee; on the page it has one column for a setting's name."""
    present = present_channels(findings.settings)
    trained = any(finding.shadows is not None for finding in findings.settings)
    phases = [phase for phase in PHASES if any(getattr(one, f"{phase}_accuracy") for one in findings.settings)]
    tpr = "TPR" if findings.fpr is None else f"TPR at {rate(findings.fpr)} FPR"
    columns = [
        *(text("Setting") if page else SETTING_COLUMNS),
        *([Column("ε spent")] if trained else []),
        Column("lower bound on ε"),
        *(Column(phase, "Accuracy") for phase in phases),
        *(Column(title, TITLES[channel]) for channel in present for title in ("AUC", tpr)),
    ]
    rows: list[list[Cell | str]] = []
    started: set[tuple[str, str]] = set()
    for finding in findings.settings:
        place = finding.setting.group
        if place in results.starts and place not in started:
            started.add(place)
            leaks = [UNKNOWN] * (2 * len(present))
            rows.append([*_start_names(finding, findings, page), *_start_cells(results.starts[place], phases), *leaks])
        cells = [*([_spent_cell(finding)] if trained else []), _bound_cell(finding)]
        cells += [_accuracy_cell(finding, phase, findings.confidence) for phase in phases]
        for channel in present:
            cells += leak_cells(finding.strongest.get(channel), findings.fpr)
        rows.append([*([setting_name(finding, findings)] if page else setting_cells(finding.setting)), *cells])
    lost = [gap.setting for gap in results.spec.gaps if not gap.attacked and not page]
    rows += [[*names, *[UNKNOWN] * (len(columns) - len(names))] for names in map(setting_cells, lost)]
    caption = f"Means over {count(most_targets(findings), 'model')}, with intervals; of each kind the strongest attack by its mean AUC."
    notes = setting_notes(findings)
    notes += list(dict.fromkeys(filter(None, (_chance_note(results, one.setting) for one in findings.settings))))
    notes += [] if page else [gap_sentence(gap) for gap in results.spec.gaps]
    return Layout(columns, rows, caption, notes)


@table("settings", settings_layout)
def settings(results: Results, findings: Findings) -> pl.DataFrame:
    """Return a row per setting, without columns that no setting has; settings that could not be attacked come last."""
    gaps = {gap.setting: missing_models(gap) for gap in results.spec.gaps}
    rows = [_row(finding, findings, results) | {"left_out": gaps.get(finding.setting)} for finding in findings.settings]
    lost = [gap.setting for gap in results.spec.gaps if not gap.attacked]
    rows += [identity(setting) | {"left_out": gaps[setting]} for setting in lost]
    groups = [row["dataset"] for row in rows], [row["architecture"] for row in rows]
    places = list(zip(*groups, strict=True))
    for place in sorted((one for one in results.starts if one in places), key=places.index, reverse=True):
        rows.insert(places.index(place), _start_row(place, results.starts[place]))
    schema = _schema()
    frame = frame_of(schema, [{name: row.get(name) for name in schema} for row in rows])
    absent = tuple(f"{prefix}_" for prefix in PREFIXES.values() if frame[f"{prefix}_attack"].is_null().all())
    unknown = ["no_guarantee"] if frame["no_guarantee"].is_null().all() else []
    return frame.drop(unknown, *(name for name in frame.columns if name.startswith(absent)))


def _schema() -> dict[str, type]:
    numbers = ("delta", "epsilon_spent", "epsilon_spent_rdp", "noise_multiplier", "sampling_rate")
    bounds = ("epsilon_lower_bound", "epsilon_lower_bound_delta")
    schema = SETTING | {"no_guarantee": str} | dict.fromkeys([*numbers, *bounds], float)
    schema |= dict.fromkeys(["epsilon_lower_bound_method", "accountant", "sampling", "clipping"], str)
    schema |= {"models": int} | parts_schema(*TRAINED) | {"left_out": str, "fpr": float}
    for prefix in PREFIXES.values():
        schema |= {f"{prefix}_{name}": str for name in ATTACK}
        schema |= {f"{prefix}_attacks_tried": int} | parts_schema(f"{prefix}_auc", f"{prefix}_tpr_at_fpr")
    return schema


def _row(finding: Finding, findings: Findings, results: Results) -> dict[str, Any]:
    setting, bound = finding.setting, finding.bound
    losses = {name: shadow_estimate(finding.shadows, name, findings.confidence) for name in ("train_loss", "test_loss")}
    estimates = {"train_accuracy": finding.train_accuracy, "test_accuracy": finding.test_accuracy, **losses}
    row: dict[str, Any] = {
        **identity(setting),
        "no_guarantee": setting.no_guarantee or None,
        "delta": setting.delta,
        "accountant": setting.accountant,
        "clipping": setting.clipping,
        "fpr": findings.fpr,
        **guarantee(finding),
    }
    for name, value in estimates.items():
        row |= parts(name, value)
    if bound:
        names = ("epsilon_lower_bound", "epsilon_lower_bound_delta", "epsilon_lower_bound_method")
        row |= dict(zip(names, (bound.epsilon, bound.delta, bound.method), strict=True))
    for channel, leak in finding.strongest.items():
        prefix = PREFIXES[channel]
        row |= {f"{prefix}_{name}": getattr(leak, name) for name in ATTACK}
        row |= {f"{prefix}_attacks_tried": leak.tried, **parts(f"{prefix}_auc", leak.auc_estimate)}
        row |= parts(f"{prefix}_tpr_at_fpr", leak.tpr_estimate)
    targets = max((len(leak.targets) for leak in finding.strongest.values()), default=None)
    return row | {"models": len(finding.shadows) if finding.shadows is not None else targets}


PUBLIC_START = "public start"


def _start_row(place: tuple[str, str], start: Start) -> dict[str, Any]:
    """Return the row of the public model from which the trainings of a group start; it spends no privacy of the audited records."""
    where = dict(zip(SETTING, (*place, PUBLIC_START, "0"), strict=True))
    return where | {"test_accuracy_mean": start.accuracy, "test_loss_mean": start.loss, "models": 1}


def _start_names(finding: Finding, findings: Findings, page: bool) -> list[Cell | str]:
    setting = finding.setting
    if not page:
        return [setting.dataset_name, setting.architecture_name, PUBLIC_START, "0"]
    return ["Public start" if len(findings.groups()) == 1 else f"{setting.place}: {PUBLIC_START}"]


def _start_cells(start: Start, phases: Sequence[str]) -> list[Cell]:
    """Return the cells of ε spent, the lower bound on ε, and the accuracies."""
    accuracies = {
        "train": Cell("–", (f"{start.public_records} public records",)),
        "test": Cell(percent(start.accuracy), (f"loss {fixed(start.loss)}",)),
    }
    return [Cell("0"), UNKNOWN, *(accuracies[phase] for phase in phases)]


def _chance_note(results: Results, setting: Setting) -> str:
    """State accuracy and loss of guessing on a data set used for training."""
    chance = results.guessing(setting)
    if chance is None:
        return ""
    return (
        f"On {setting.dataset_name}, the most frequent class alone has an accuracy of {percent(chance.accuracy)}, and answering the classes'"
        f" shares a loss of {fixed(chance.loss)}."
    )


def setting_name(finding: Finding, findings: Findings) -> str:
    """Return a setting's name among all settings, including its group only if there are several."""
    name = protection(finding.setting)
    return capital(name) if len(findings.groups()) == 1 else f"{finding.setting.place}: {name}"


def _spent_cell(finding: Finding) -> Cell:
    setting = finding.setting
    spent = guarantee(finding).get("epsilon_spent")
    delta = f"δ = {power(setting.delta)}" if setting.delta else ""
    if setting.explained and setting.private:
        spent, delta = float(setting.epsilon), f"each, {delta}"
    if setting.claimed:
        return Cell(f"{setting.epsilon} claimed", (delta,))
    if spent is not None and not setting.no_guarantee:
        return Cell(at_most(spent), (delta,))
    return Cell("none" if setting.no_guarantee else "∞", ("no guarantee",))


def _accuracy_cell(finding: Finding, phase: str, confidence: float) -> Cell:
    accuracy = finding.test_accuracy if phase == "test" else finding.train_accuracy
    if accuracy is None:
        return Cell("unknown")
    loss = shadow_estimate(finding.shadows, f"{phase}_loss", confidence)
    losses = [f"loss {fixed(loss.mean)}"] if loss else []
    return Cell(percent(accuracy.mean), (percent_interval(accuracy), *losses))


def _bound_cell(finding: Finding) -> Cell:
    bound = finding.bound
    return Cell(at_least(bound.epsilon), (f"δ = {power(bound.delta)}",)) if bound else UNKNOWN
