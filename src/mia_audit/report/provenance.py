"""Where the numbers come from: versions, config, seeds, guarantees and the hashes of every table that was read."""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from mia_audit import seals
from mia_audit.report.findings import Finding
from mia_audit.report.results import Results

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
    "altair",
    "snakemake",
)


def provenance(results: Results, findings: list[Finding]) -> dict[str, Any]:
    """Return what provenance.json says; nothing in it changes between two runs on one machine."""
    spec = results.spec
    return {
        "audit": spec.audit,
        "seed": spec.config.get("seed"),
        "config": spec.config,
        "config_sha256": spec.config_hash,
        "versions": {
            "python": platform.python_version(),
            **{name: found for name in PACKAGES if (found := _version(name))},
        },
        "pools": {dataset: facts for dataset in sorted(results.datasets) if (facts := results.pool_facts(dataset))},
        "settings": [_setting(found) for found in findings],
        "inputs_sha256": {path.relative_to(results.root).as_posix(): seals.sha256(path) for path in results.inputs()},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _setting(found: Finding) -> dict[str, Any]:
    setting = found.setting
    names = ("dataset", "architecture", "mechanism", "epsilon", "private", "delta", "accountant", "clipping", "path")
    told = {name: getattr(setting, name) for name in names} | guarantee(found)
    if setting.explained:
        told |= {"explained": dict(setting.explained)}
    if setting.no_guarantee:
        told |= {"epsilon": "none", "nominal_epsilon": setting.epsilon, "no_guarantee": setting.no_guarantee}
    if mask := noise_mask(found):
        told |= {"noise_mask": mask, "noise_masks": f"{setting.path}/models/*/masks-*.safetensors"}
    return told


def noise_mask(found: Finding) -> str:
    """Return what the mask that scales the noise was computed from; nothing where noise is the same everywhere."""
    if found.shadows is None or "noise_mask" not in found.shadows.columns:
        return ""
    source = str(found.shadows["noise_mask"][0])
    return "" if source == "none" else source


def guarantee(found: Finding) -> dict[str, Any]:
    """Return what training under DP spent, by the shadow model that spent most; nothing for the other mechanisms."""
    if found.shadows is None or not found.setting.private:
        return {}
    worst = found.shadows.sort("epsilon", descending=True).row(0, named=True)
    return {
        "epsilon_spent": worst["epsilon"],
        "epsilon_spent_rdp": worst["epsilon_rdp"],
        "noise_multiplier": worst["noise_multiplier"],
        "sampling": worst["sampling"],
        "sampling_rate": worst["sampling_rate"],
        "steps": worst["steps"],
        "records": worst["records"],
        "adjacency": "add or remove one record",
    }
