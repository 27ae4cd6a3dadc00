"""Open finished results without their config: the report's specification is read back from provenance.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mia_audit.errors import UserError
from mia_audit.report.data.diverged import audited
from mia_audit.report.data.results import Results
from mia_audit.report.data.spec import Setting, Spec

PROVENANCE = "provenance.json"


def read_provenance(root: Path) -> dict[str, Any]:
    """Return the content of a finished audit's provenance.json; UserError where it is missing or damaged."""
    path = root / PROVENANCE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; expected the results of a finished audit, results/NAME") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read ({type(error).__name__}); expected what an audit wrote") from None
    if not isinstance(content, dict) or not isinstance(content.get("settings"), list):
        raise UserError(f"{path}: damaged; expected the provenance of a report")
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
