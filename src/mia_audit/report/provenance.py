"""The provenance of a report: versions, config, seeds, guarantees and the digest of every file that was read.

Files are described by name and digest. Their folders, which may name persons, are only in a local log.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, count
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from mia_audit.registry import IN_FILE, code_files, file_digest
from mia_audit.report.findings import Finding, guarantee, noise_mask
from mia_audit.seeds import AUDIT_ONLY

if TYPE_CHECKING:
    from mia_audit.report.results import Results
    from mia_audit.report.spec import AuditedSetting

FOLDERS = re.compile(r"""(?:~|[A-Za-z]:)?[^\s'"=:;,|&<>()/\\]*[/\\](?:[^\s'"=:;,|&<>()/\\]*[/\\])*""")
"""Pattern of the folders in front of a file's name, in a path or in a command."""
WORDS = ("title", "label", "classes")
"""Keys whose values are free text or column names, in which a slash is not a separator."""
PATHS = ("path", "signals", "pretrained", "membership")
"""Keys whose value is a single path, which may contain spaces, as `file.py:function` may; a list as value holds texts with paths in them."""


def base_names(value: Any, key: str = "", files_only: bool = False) -> Any:
    """Return a config's values with every path replaced by the name of its file or folder; `files_only`: in no other text."""
    if isinstance(value, str):
        if key in PATHS or IN_FILE.fullmatch(value):
            return PurePath(value.replace("\\", "/")).name
        return value if key in WORDS or (files_only and not code_files(value)) else without_folders(value)
    if isinstance(value, Mapping):
        return {name: base_names(part, str(name), files_only) for name, part in value.items()}
    if isinstance(value, Sequence):
        return [base_names(part, files_only=files_only) for part in value]
    return value


def without_folders(text: str) -> str:
    """Return a text without the folders in front of file names."""
    return FOLDERS.sub("", re.sub(r"[/\\]+(?=$|[\s'\"=:;,|&<>()])", "", text))


def by_base_name(digests: Mapping[str, str]) -> dict[str, str]:
    """Return digests of files by their base names; equal names are numbered in the order of the paths."""
    named: dict[str, str] = {}
    for path, digest in sorted(digests.items()):
        name = PurePath(path).name
        numbered = (f"{name} ({number})" for number in count(2))
        named[next(key for key in chain([name], numbered) if key not in named)] = digest
    return named


def paths_in(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts of a config that name folders, unchanged, with the keys that lead to them."""
    if isinstance(value, str):
        if base_names(value, where.rpartition(".")[2]) != value:
            yield where, value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from paths_in(part, f"{where}.{name}" if where else str(name))
    elif isinstance(value, Sequence):
        for part in value:
            yield from paths_in(part, where)


PACKAGES = (
    "mia-audit",
    "torch",
    "timm",
    "opacus",
    "captum",
    "numpy",
    "scipy",
    "scikit-learn",
    "polars",
    "pyarrow",
    "matplotlib",
    "snakemake",
)


def provenance(results: Results, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the content of provenance.json, which does not differ between runs on one machine."""
    from mia_audit.storage import digests

    spec = results.spec
    return {
        "audit": spec.audit,
        "seed": spec.config.get("seed"),
        "notice": AUDIT_ONLY,
        "config": base_names(spec.config),
        "config_sha256": spec.config_hash,
        "code_sha256": code_digests(spec.config),
        "versions": versions(),
        "pools": {
            dataset: metadata for dataset in sorted(results.datasets) if (metadata := results.pool_metadata(dataset))
        },
        "settings": [_setting(finding) | trained(spec.config, _described(finding.setting)) for finding in findings],
        "not_attacked": [_described(gap.setting) for gap in spec.gaps if not gap.attacked],
        "given_sha256": results.given,
        "inputs_sha256": {path.relative_to(results.root).as_posix(): digests.sha256(path) for path in results.inputs()},
    }


UNTRAINED = {"datasets": ("groups", "architectures"), "mechanisms": ("epsilon", "models")}
"""Keys of a setting's sections on which the training of one model does not depend."""


TRAINED = "training_sha256"
"""The key of a setting in provenance.json for the digest of its training."""


def trained(config: Mapping[str, Any], setting: Mapping[str, str]) -> dict[str, str]:
    """Return the SHA-256 of all that a config says about the training of a setting's models, as `TRAINED`; nothing if it has no such setting.

    Files of data count by their names, and files of code by their content. Other texts count as they are.
    """
    parts: dict[str, Any] = {"epsilon": setting["epsilon"]}
    for name in ("dataset", "architecture", "mechanism"):
        sections = config.get(f"{name}s") or {}
        if setting[name] not in sections:
            return {}
        left_out = UNTRAINED.get(f"{name}s", ())
        kept = _without_floor({key: value for key, value in sections[setting[name]].items() if key not in left_out})
        parts[name] = {"keys": base_names(kept, files_only=True), "code": code_digests(kept)}
    parts["training"] = {key: value for key, value in (config.get("training") or {}).items() if key != "floor"}
    return {TRAINED: hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()}


def _without_floor(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section without the floor in its `training` and in that of its `mechanisms`: a floor changes no training."""
    parts = {"training": {**(section.get("training") or {}), "floor": None}} if section.get("training") else {}
    under = section.get("mechanisms")
    parts |= {"mechanisms": {name: _without_floor(one) for name, one in under.items()}} if under else {}
    return {**section, **parts}


def code_digests(config: Any) -> dict[str, str]:
    """Return the SHA-256 of every file of code that a config names, by base name."""
    return by_base_name({file: file_digest(file) for file in code_files(config)})


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    known = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            known[name] = version(name)
    return known


def write_page(
    path: Path, page: str, answer: Mapping[str, Any], sources: Mapping[str, Any], config: Mapping[str, Any]
) -> None:
    """Write the page, answer.json, provenance.json with its digest, and logs/paths.json with the local paths of the config's files."""
    from mia_audit.storage import write_json, write_text

    digests = {"page_sha256": {path.name: hashlib.sha256(page.encode()).hexdigest()}}
    write_json(path.parent / "provenance.json", {**sources, **digests})
    write_json(path.parent / "logs" / "paths.json", dict(paths_in(config)))
    write_json(path.parent / "answer.json", dict(answer))
    write_text(path, page)


def _setting(finding: Finding) -> dict[str, Any]:
    setting = finding.setting
    described = _described(setting) | guarantee(finding)
    if finding.worth:
        described["worth_to_persons"] = [
            {
                "records": one.records,
                "epsilon": one.epsilon if math.isfinite(one.epsilon) else "none",
                "delta": one.delta,
            }
            for one in finding.worth
        ]
    if mask := noise_mask(finding):
        described |= {"noise_mask": mask, "noise_masks": f"{setting.path}/models/shadow-*/masks.safetensors"}
        if finding.mask_coverage is not None:
            described |= {"noise_mask_coverage": finding.mask_coverage}
    return described


def _described(setting: AuditedSetting) -> dict[str, Any]:
    names = ("dataset", "architecture", "mechanism", "epsilon", "private", "delta", "accountant", "clipping", "design")
    described = {name: getattr(setting, name) for name in (*names, "path")}
    if setting.explained:
        described |= {"explained": dict(setting.explained)}
    if setting.budget:
        described |= {"budget": setting.budget}
    if setting.no_guarantee:
        described |= {"epsilon": "none", "nominal_epsilon": setting.named, "no_guarantee": setting.no_guarantee}
    return described
