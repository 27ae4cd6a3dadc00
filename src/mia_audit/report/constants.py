"""What it cost to take columns' constants from the audited records: an ε of its own, beside every other one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mia_audit.config.settings import EXPLAINED
from mia_audit.report.findings import Finding
from mia_audit.report.provenance import guarantee
from mia_audit.report.results import Results, Setting
from mia_audit.report.words import at_most, count, joined, power, protected, significant

Releases = Mapping[str, Mapping[str, Any]]


def releases(results: Results) -> Releases:
    """Return the terms of the release by pool, for those whose constants were taken from their audited records."""
    facts = {dataset: results.pool_facts(dataset) for dataset in results.datasets}
    return {dataset: told["release"] for dataset, told in facts.items() if told and told.get("release")}


def columns(setting: Setting, found: Releases) -> dict[str, float | None]:
    """Return what a setting's row in the table of settings says of the constants."""
    pool = setting.dataset.removesuffix(EXPLAINED) if setting.explained else setting.dataset
    release = found.get(pool, {})
    return {f"constants_{name}": release.get(name) for name in ("epsilon", "delta")}


def release_sentence(pool: str, release: Mapping[str, Any]) -> str:
    """Say what a release spent, by which mechanism, for whom, and that no attack here tests it."""
    return (
        f"Centres and scales of the columns of {pool} were released once, at most ε = {at_most(release['epsilon'])} spent at"
        f" δ = {power(release['delta'])} for every record of the pool, when one of {count(release['records'], 'record')} is added or"
        " removed, their number being public: Gaussian mechanism without sampling, accounted for exactly, noise multiplier"
        f" {significant(release['noise_multiplier'])}, sensitivity {significant(release['sensitivity'])}"
        f" ({count(len(release['bounds']), 'column')} within stated bounds). This ε comes on top of every other one. All models share the"
        " constants, whatever they were trained on, so that no attack here tests this release."
    )


def bounds_sentence(release: Mapping[str, Any]) -> str:
    """Name the bounds that were stated, and the columns whose spread was too small to be seen through the noise."""
    told = ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in release["bounds"].items())
    floored = (
        f". Spread lost in the noise, and set to its floor: {joined(release['floored'])}" if release["floored"] else ""
    )
    return f"Bounds: {told}{floored}."


def notes(findings: Sequence[Finding], found: Releases) -> Iterator[str]:
    """Yield a note per release, and what constants and training spend together on a record that a model was trained on."""
    for pool, release in found.items():
        yield release_sentence(pool, release)
        sums = [
            f"{one.setting.architecture} {protected(one.setting)} at most {at_most(spent['epsilon_spent'] + release['epsilon'])}"
            f" at δ = {power((one.setting.delta or 0.0) + release['delta'])}"
            for one in findings
            if one.setting.dataset == pool and (spent := guarantee(one))
        ]
        if sums:
            yield (
                f"Constants of {pool} and the training of one model together spend on a record that it was trained on, by basic"
                f" composition: {joined(sums)}."
            )
