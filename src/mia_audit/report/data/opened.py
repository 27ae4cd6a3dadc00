"""Open the results of an audit: settings with too few models left are listed as gaps.

Finished results are opened without their config: the specification is read back from provenance.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Any

from mia_audit.errors import UserError
from mia_audit.foreign_json import read_object
from mia_audit.report.data.results import Results
from mia_audit.report.data.spec import Gap, Setting, Spec
from mia_audit.report.text.statements import gap_sentence
from mia_audit.runtime.versions import refuse_other_version
from mia_audit.sections import STATED
from mia_audit.seeds import folder_of_seed
from mia_audit.storage import open_table, read_frame
from mia_audit.storage.tables import diverged_models

PROVENANCE = "provenance.json"
DIGITS = 3
"""Significant digits of a computed ε, which is rounded up."""


def audited(root: Path, spec: Spec) -> Results:
    """Open an audit's results, with the settings that could not be attacked moved to the spec's `gaps`.

    If a setting states a noise multiplier, its ε is the largest that any of its models spent. Raises UserError if no
    setting is left.
    """
    spec = replace(spec, settings=tuple(_computed(root, setting) for setting in spec.settings))
    gaps = tuple(_gaps(root, spec))
    lost = [gap.setting for gap in gaps if not gap.attacked]
    left = tuple(setting for setting in spec.settings if setting not in lost)
    if not left and spec.settings:
        raise UserError(f"{root}: no setting has enough models left: {' '.join(map(gap_sentence, gaps))}")
    return Results(root, replace(spec, settings=left, gaps=gaps))


def _computed(root: Path, setting: Setting) -> Setting:
    if not setting.epsilon.startswith(STATED) or setting.no_guarantee:
        return setting
    spent = read_frame(root / setting.path / "training.parquet", "training")["epsilon"].drop_nulls()
    if spent.is_empty():
        return setting
    above = Context(DIGITS, ROUND_CEILING).create_decimal(repr(float(spent.to_numpy().max())))
    return replace(setting, epsilon=f"{above.normalize():f}", budget=setting.epsilon)


def _gaps(root: Path, spec: Spec) -> Iterator[Gap]:
    for setting in spec.settings:
        path = root / setting.path / "metrics.parquet"
        if models := diverged_models(path, "metrics"):
            yield Gap(setting, models, attacked=open_table(path, "metrics").metadata.num_rows > 0)


def read_provenance(root: Path) -> dict[str, Any]:
    """Return the content of a finished audit's provenance.json; UserError where it is missing, damaged or of another version."""
    refuse_other_version(root)
    content = read_object(root / PROVENANCE, "the results of a finished audit, results/NAME")
    if "seeds" in content:
        raise UserError(
            f"{root}: an audit of several seeds; name the folder of one, such as {root / folder_of_seed(content['seeds'][0])}"
        )
    if not isinstance(content.get("settings"), list):
        raise UserError(f"{root / PROVENANCE}: damaged; expected the provenance of a report")
    return content


def finished(root: Path) -> Results:
    """Open the results of a finished audit; UserError if there are none, or no setting was attacked."""
    sources = read_provenance(root)
    try:
        config = sources.get("config") or {}
        settings = tuple(_setting(root, one) for one in [*sources["settings"], *sources.get("not_attacked", [])])
        evaluation = config.get("evaluation", {})
        spec = Spec(
            str(sources["audit"]),
            settings,
            title=(config.get("report") or {}).get("title") or str(sources["audit"]),
            likelihood=_likelihood(config),
            confidence=float(evaluation.get("confidence", config.get("confidence", 0.95))),
            config=config,
            config_hash=sources.get("config_sha256"),
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UserError(
            f"{root / PROVENANCE}: damaged ({type(error).__name__}: {error}); expected what an audit wrote"
        ) from None
    if not settings:
        raise UserError(f"{root}: no setting was attacked; expected the results of an audit with attacks")
    return audited(root, spec)


def _likelihood(config: Mapping[str, Any]) -> str:
    known = (config.get("attacks") or {}) if isinstance(config.get("attacks"), Mapping) else {}
    listed = known.get("likelihoods") or config.get("likelihoods") or ["pooled"]
    return str(listed[0])


def _setting(root: Path, stated: Mapping[str, Any]) -> Setting:
    path = Path(str(stated["path"]))
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"a setting outside of the results: {path}")
    return Setting(
        dataset=str(stated["dataset"]),
        architecture=str(stated["architecture"]),
        mechanism=str(stated["mechanism"]),
        epsilon=str(stated.get("nominal_epsilon", stated["epsilon"])),
        budget=str(stated.get("budget", "")),
        private=bool(stated["private"]),
        delta=stated["delta"],
        accountant=stated["accountant"],
        clipping=stated["clipping"],
        trained=(root / path / "training.parquet").exists(),
        design=str(stated.get("design", "")),
        explained=stated.get("explained"),
        folder=str(stated["path"]),
        no_guarantee=str(stated.get("no_guarantee", "")),
    )
