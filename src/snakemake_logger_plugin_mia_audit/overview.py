"""A description of an audit in a few lines."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mia_audit.config.schema import Audit

LISTED = 8
"""Largest number of names that are written; a longer list is cut after these."""


def overview(audit: "Audit", results: Path) -> str:
    """Describe an audit: its data, models, mechanisms, explainers and attacks, and the folder of its results."""
    return "\n".join([f"Audit {audit.audit}: results go to {results}", *(f"  {line}" for line in _lines(audit))])


def _lines(audit: "Audit") -> Iterator[str]:
    if names := [*audit.datasets, *audit.imported]:
        yield f"data sets    {_listed(names)}"
    if audit.architectures:
        yield f"models       {_listed(list(audit.architectures))}; {audit.membership.models} shadow models per setting"
    if audit.mechanisms:
        yield f"mechanisms   {_listed([_mechanism(name, audit) for name in audit.mechanisms])}"
        yield f"explainers   {_listed(audit.explainers.methods)}"
    if audit.mechanisms or audit.imported:
        yield f"attacks      {_listed(audit.attacks.methods)}"
    if audit.private_explanations:
        yield f"private explanations of {_listed(list(audit.private_explanations))}"


def _mechanism(name: str, audit: "Audit") -> str:
    section, number = audit.mechanisms[name], audit.number_of_models(name)
    fewer = f" ({number} models)" if number < audit.membership.models else ""
    epsilons = [epsilon for epsilon in section.epsilon if epsilon != "inf"]
    if multiplier := (section.model_extra or {}).get("noise_multiplier"):
        return f"{name} at noise multiplier {multiplier:g}{fewer}"
    return f"{name} at ε = {', '.join(epsilons)}{fewer}" if epsilons else f"{name}{fewer}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
