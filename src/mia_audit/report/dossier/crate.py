"""Write a dossier as an RO-Crate (Soiland-Reyes et al. 2022): a folder or a zip file with ro-crate-metadata.json."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.errors import UserError
from mia_audit.report.data.canaries import CANARIES
from mia_audit.report.data.opened import PROVENANCE
from mia_audit.report.dossier.contents import ANSWERS, CONFIG, LEDGER, PAGE, REPORT, VERDICTS, Contents
from mia_audit.report.dossier.questions import answers
from mia_audit.report.page.template import page_template, policy, style
from mia_audit.sanitise import html
from mia_audit.storage.atomic import atomic_folder, atomic_write

if TYPE_CHECKING:
    from rocrate.rocrate import ROCrate

LICENSE = "Only for those who may see the audited records; the controller decides who else may receive it."
UNNAMED = "The controller of the records, not named"
HOME = "https://pypi.org/project/mia-audit/"

KINDS = {
    "html": "text/html",
    "json": "application/json",
    "yaml": "application/yaml",
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "tex": "application/x-tex",
    "pdf": "application/pdf",
    "svg": "image/svg+xml",
    "png": "image/png",
    "md": "text/markdown",
}
"""Media types by the endings of files; others are plain text."""

NAMES = {
    PAGE: "Questions and answers",
    ANSWERS: "Questions and answers, for programs",
    REPORT: "Report of the audit",
    PROVENANCE: "Provenance of the report's numbers",
    CONFIG: "Config of the audit",
    LEDGER: "Extract of the data set's ledger",
    VERDICTS: "Verdicts of the policy",
    "SHA256SUMS": "SHA-256 of every file of the audit",
    "SHA256SUMS.minisig": "Signature of the audit",
    "release/card.json": "Model card",
    "release/card.md": "Model card, as text",
}


def write_dossier(contents: Contents, out: Path, licence: str = LICENSE, controller: str = UNNAMED) -> None:
    """Write the dossier to a folder, or to a zip file if the name ends in .zip; UserError if the path exists."""
    if out.exists():
        raise UserError(f"{out}: exists already; name another path for the dossier")
    with tempfile.TemporaryDirectory() as scratch:
        written = Path(scratch)
        for name, text in _written(contents).items():
            (written / name).write_text(text, encoding="utf-8")
        crate = _crate(contents, written, licence, controller)
        if out.suffix == ".zip":
            with atomic_write(out) as partial:
                crate.write_zip(partial)
        else:
            with atomic_folder(out) as partial:
                crate.write(partial)


def _written(contents: Contents) -> dict[str, str]:
    """Return the files that a dossier adds, by name."""
    import yaml

    answered = list(answers(contents))
    listed = [
        {
            "part": question.part,
            "question": f"{question.title}: {question.text}",
            "answer": list(answer.sentences),
            "sources": list(answer.sources),
            "for_the_controller": answer.controller,
        }
        for question, answer in answered
    ]
    texts = {ANSWERS: _json({"audit": contents.results.spec.audit, "questions": listed})}
    if contents.results.spec.config:
        texts[CONFIG] = yaml.safe_dump(dict(contents.results.spec.config), sort_keys=False, allow_unicode=True)
    if contents.ledger:
        texts[LEDGER] = _json(contents.ledger)
    if contents.verdicts:
        texts[VERDICTS] = _json(contents.verdicts)
    names = [*texts, *(name for _, name in contents.files() if "/" not in name or name.startswith("release/"))]
    return {PAGE: page(contents, names)} | texts


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def page(contents: Contents, names: list[str]) -> str:
    """Return dossier.html."""
    from markupsafe import Markup

    parts: dict[str, list[dict[str, Any]]] = {}
    present = {*names, *(name for _, name in contents.files())}
    for question, answer in answers(contents):
        sources = [name for name in answer.sources if name in present]
        known = {"title": question.title, "text": question.text} | vars(answer) | {"sources": sources}
        parts.setdefault(question.part, []).append(known)
    before, listed = 0, []
    for name, questions in parts.items():
        listed.append({"name": name, "questions": questions, "before": before})
        before += len(questions)
    return page_template("mia_audit.report.dossier", "dossier.html.j2", html).render(
        title=contents.results.spec.title,
        version=contents.sources.get("versions", {}).get("mia-audit", ""),
        scope=_scope(contents),
        parts=listed,
        files=names,
        policy=policy([], [style()]),
        style=Markup(style()),
    )


def _scope(contents: Contents) -> str:
    about = contents.setting or "all settings of the audit"
    released = " and the model that was released under it" if contents.card else ""
    return f"About {about}{released}."


def _crate(contents: Contents, written: Path, licence: str, controller: str) -> ROCrate:
    """Describe all files, the programs that made them, and their subjects."""
    from datetime import UTC, datetime

    from rocrate.model import ContextEntity
    from rocrate.rocrate import ROCrate

    crate = ROCrate(version="1.1")
    audit, version = contents.results.spec.audit, str(contents.sources.get("versions", {}).get("mia-audit", "unknown"))
    crate.name = f"Dossier of the membership audit {audit}"
    crate.description = (
        "A model's privacy guarantee for its training records, the results of attacks on it, and answers to assessors' questions."
        " It holds personal data if the records are about persons."
    )
    terms = {"@type": "CreativeWork", "name": "Who may use this dossier", "description": licence}
    owner = {"@type": "Organization", "name": controller}
    link = licence if licence.startswith(("https://", "http://")) else "#license"
    crate.root_dataset["license"] = crate.add(ContextEntity(crate, link, properties=terms))
    organisation = crate.add(ContextEntity(crate, "#controller", properties=owner))
    crate.root_dataset["author"] = crate.root_dataset["publisher"] = organisation
    crate.root_dataset["datePublished"] = datetime.now(UTC).date().isoformat()
    crate.root_dataset["keywords"] = [
        "membership inference",
        "differential privacy",
        "data protection impact assessment",
    ]
    by_name = {}
    for path, name in [*((path, path.name) for path in sorted(written.iterdir())), *contents.files()]:
        kind = KINDS.get(name.rpartition(".")[2], "text/plain")
        properties = {"name": NAMES.get(name, name), "encodingFormat": kind}
        by_name[name] = crate.add_file(path, name, properties=properties, record_size=True)
    crate.root_dataset["mainEntity"] = by_name[PAGE]
    program = crate.add(
        ContextEntity(
            crate,
            "#mia-audit",
            properties={
                "@type": "SoftwareApplication",
                "name": "mia-audit",
                "softwareVersion": version,
                "version": version,
                "url": HOME,
            },
        )
    )
    audited = [
        by_name[name]
        for name in by_name
        if name.startswith(("tables/", "figures/")) or name in (REPORT, PROVENANCE) or name.endswith(CANARIES)
    ]
    answered = [by_name[name] for name in (PAGE, ANSWERS, LEDGER) if name in by_name]
    released = [by_name[name] for name in by_name if name.startswith("release/")]
    config, verdicts = ([by_name[name]] if name in by_name else [] for name in (CONFIG, VERDICTS))
    for name, title, used, result in (
        ("#audit", f"The audit {audit}", config, audited),
        ("#release", "The release of the model", config, released),
        ("#gate", "The verdicts of the policy", audited, verdicts),
        ("#dossier", "This dossier", [*audited, *released, *verdicts], answered),
    ):
        if result:
            crate.add_action(
                program, name, _one_or_all(used), _one_or_all(result), {"@type": "CreateAction", "name": title}
            )
    return crate


def _one_or_all(entities: list[Any]) -> Any:
    """Return a single entity without its list, as JSON-LD requires, and None for an empty list."""
    return entities[0] if len(entities) == 1 else entities or None
