"""The privacy cost of scaling constants that were computed from the audited records."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mia_audit.report.data.findings import Finding
from mia_audit.report.data.provenance import guarantee
from mia_audit.report.text.formatting import at_most, count, joined, power, protected, significant

Releases = Mapping[str, Mapping[str, Any]]


WHOM = {False: "a record", True: "a person (or a record, where training protects records)"}
"""Whom the joint ε of constants and training protects, by whether the constants were released per person."""


def release_sentence(pool: str, release: Mapping[str, Any]) -> str:
    """State what a release spent, its mechanism, and that no attack here tests it."""
    unit = "person" if "persons" in release else "record"
    whole = ", with all of their records," if unit == "person" else ""
    return (
        f"Centres and scales of the columns of {pool} were released once: at most ε = {at_most(release['epsilon'])} spent at"
        f" δ = {power(release['delta'])} for every {unit} of the pool, when one of {count(release[f'{unit}s'], unit)}{whole} is added or"
        " removed, their number being public: Gaussian mechanism without sampling, accounted for exactly, noise multiplier"
        f" {significant(release['noise_multiplier'])}, sensitivity {significant(release['sensitivity'])}"
        f" ({count(len(release['bounds']), 'column')} within stated bounds). This ε adds to every other one. It is"
        " that of a release whose noise nobody can recompute; here, whoever knows the seed can. All models share the constants,"
        " whatever they were trained on, so no attack here tests this release."
    )


def bounds_sentence(release: Mapping[str, Any]) -> str:
    """Name the stated bounds, and the columns whose spread was smaller than the noise."""
    bounds = ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in release["bounds"].items())
    floored = (
        f". Spread smaller than the noise and set to its floor: {joined(release['floored'])}"
        if release["floored"]
        else ""
    )
    return f"Bounds: {bounds}{floored}."


def release_notes(findings: Sequence[Finding], releases: Releases) -> Iterator[str]:
    """Yield a note per release, and the ε of constants and training together."""
    for pool, release in releases.items():
        yield release_sentence(pool, release)
        sums = [
            f"{one.setting.architecture_name} {protected(one.setting)} at most {at_most(spent['epsilon_spent'] + release['epsilon'])}"
            f" at δ = {power((one.setting.delta or 0.0) + release['delta'])}"
            for one in findings
            if one.setting.dataset == pool and "epsilon_spent" in (spent := guarantee(one))
            if "persons" in release
            or spent.get("unit") != "person"  # constants released per record give no guarantee to persons
        ]
        if sums:
            yield (
                f"For {WHOM['persons' in release]} on which a model was trained, the constants of {pool} and this training together"
                f" spend, by basic composition: {joined(sums)}."
            )
