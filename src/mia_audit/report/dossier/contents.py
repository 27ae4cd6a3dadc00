"""The content of a dossier: the files of an audit, of a release, of its ledger and of a policy's verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mia_audit.errors import UserError
from mia_audit.foreign_json import read_object
from mia_audit.report.data.canaries import CANARIES, CanaryBound, canary_bound
from mia_audit.report.data.find import find
from mia_audit.report.data.findings import Finding, Findings
from mia_audit.report.data.opened import PROVENANCE, finished, read_provenance
from mia_audit.report.data.results import Results
from mia_audit.storage.manifest import MANIFEST, SIGNATURE

CARD, CARD_TEXT = "card.json", "card.md"
LEDGER, VERDICTS, CONFIG, PAGE, ANSWERS = "ledger.json", "gate.json", "config.yaml", "dossier.html", "dossier.json"
REPORT = "report.html"


@dataclass(frozen=True)
class Contents:
    """The sources of a dossier; each of `release`, `ledger`, `verdicts` and `policy` is empty if there is none."""

    results: Results
    sources: Mapping[str, Any]
    """The content of provenance.json."""
    release: Path | None = None
    card: Mapping[str, Any] = field(default_factory=dict)
    ledger: Mapping[str, Any] = field(default_factory=dict)
    verdicts: Mapping[str, Any] = field(default_factory=dict)
    setting: str = ""
    """The setting that was released; empty if the dossier is about all."""

    @cached_property
    def findings(self) -> Findings:
        """The findings of the audit."""
        return find(self.results)

    @property
    def promise(self) -> Mapping[str, Any]:
        """The privacy section of the released model's card; empty if there is no card."""
        promise: Mapping[str, Any] = self.card.get("privacy", {})
        return promise

    @property
    def chosen(self) -> list[Finding]:
        """The settings that the dossier is about."""
        return [one for one in self.findings.settings if self.setting in ("", one.setting.path)]

    def canaries(self, finding: Finding) -> Iterator[tuple[CanaryBound, str]]:
        """Yield the bound from a setting's canaries and the path of its file, if there is one."""
        bound = canary_bound(self.results.root / finding.setting.path)
        if bound:
            yield bound, f"{finding.setting.path}/{CANARIES}"

    def files(self) -> Iterator[tuple[Path, str]]:
        """Yield the files that are copied, each with its path in the dossier."""
        root = self.results.root
        for name in (REPORT, PROVENANCE, MANIFEST, SIGNATURE):
            if (root / name).is_file():
                yield root / name, name
        for folder in ("tables", "figures"):
            for path in sorted((root / folder).rglob("*")):
                if path.is_file() and not path.is_symlink():
                    yield path, path.relative_to(root).as_posix()
        for finding in self.chosen:
            for _, name in self.canaries(finding):
                yield root / name, name
        if self.release:
            for path in sorted(self.release.iterdir()):
                if path.is_file() and not path.is_symlink() and _is_paper(path.name):
                    yield path, f"release/{path.name}"


def _is_paper(name: str) -> bool:
    """Whether a file of a release describes the model, as opposed to weights, which are passed on separately."""
    return name in (CARD, CARD_TEXT, MANIFEST, SIGNATURE)


def gather(
    root: Path, release: Path | None = None, ledger: Path | None = None, verdicts: Path | None = None, setting: str = ""
) -> Contents:
    """Read the sources of a dossier; UserError for a file that is missing, damaged, or from another audit."""
    results, sources = finished(root), read_provenance(root)
    if not (root / REPORT).is_file():
        raise UserError(f"{root / REPORT}: no such file; expected the results of a finished audit, results/NAME")
    card = read_object(release / CARD, "the card of a release") if release else {}
    known = [one.path for one in results.spec.settings]
    if card and card.get("audit", {}).get("name") != results.spec.audit:
        raise UserError(f"{release}: according to its {CARD}, not a release of the audit '{results.spec.audit}'")
    setting = setting or str(card.get("setting", {}).get("name", ""))
    if setting and setting not in known:
        raise UserError(f"{root}: has no setting '{setting}'; it has {', '.join(known)}")
    judged = read_object(verdicts, "what mia-audit gate --json wrote") if verdicts else {}
    if judged and judged.get("audit") != results.spec.audit:
        raise UserError(f"{verdicts}: verdicts on the audit '{judged.get('audit')}', not on '{results.spec.audit}'")
    return Contents(results, sources, release, card, _ledger(ledger) if ledger else {}, judged, setting)


def _ledger(path: Path) -> dict[str, Any]:
    """Return an extract of a data set's ledger: its terms, its entries, the total, and the digest of the whole ledger."""
    from dataclasses import asdict

    from mia_audit.privacy.dataset_ledger import read_ledger, total_of

    header, entries, head = read_ledger(path)
    return {
        "file": path.name,
        "id": header.id,
        "unit": header.unit,
        "adjacency": header.adjacency,
        "terms": dict(header.terms),
        "entries": [asdict(entry) for entry in entries],
        "total": {name: _finite(value) for name, value in asdict(total_of(header, entries)).items()},
        "head": head,
    }


def _finite(value: Any) -> Any:
    """Return None for a number that JSON cannot represent, and for an ε that is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
