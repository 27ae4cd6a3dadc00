"""Families of signals. One job computes a family, which has its own options and columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mia_audit.explain.catalogue import GRADIENT, explainers
from mia_audit.learners.naming import BUILT_IN
from mia_audit.signals.name import DECISIONS, DIAGNOSTIC, OUTPUTS, SUMMARIES, stem
from mia_audit.training.outputs import TEMPERATURES, losses_at

if TYPE_CHECKING:
    from mia_audit.explain.section import Explainers


def families(section: Explainers, model: str, learner: str = BUILT_IN) -> dict[str, dict[str, Any]]:
    """Return every family of explainers that the config requests for a model, with exactly the options on which it depends.

    `gradient` always comes first. It has the signals of outputs, and input × gradient and saliency use the same pass.
    Explainers that cannot explain the model are left out. Families' names are safe as file names.
    """
    of_family: dict[str, list[str]] = {
        GRADIENT: [name for name in shared() if explainers[name].explains(model, learner)]
    }
    for name in methods_of(section, model, learner):
        family = family_of(name)
        if family != GRADIENT:
            of_family.setdefault(family, []).append(name)
    sections = {family: {"explainers": names} | options_of(section, names) for family, names in of_family.items()}
    if section.loss_temperatures:
        sections[GRADIENT][TEMPERATURES] = list(section.loss_temperatures)
    return sections


def family_of(name: str) -> str:
    """Return the family of an explainer's signals."""
    return explainers[name].family or _safe(name)


def methods_of(section: Explainers, model: str, learner: str = BUILT_IN) -> list[str]:
    """Return the explainers of the section that can explain a learner's model.

    If the config names no explainers, there are none for a script's models, because these may not be torch modules.
    """
    named = "methods" in section.model_fields_set
    return [
        name
        for name in dict.fromkeys(section.methods)
        if explainers[name].explains(model, learner) and (named or learner == BUILT_IN)
    ]


def shared() -> list[str]:
    """List the explainers of the gradient family."""
    return [name for name in explainers.names() if explainers[name].family == GRADIENT]


def columns(family: str, options: Mapping[str, Any]) -> list[str]:
    """List a family's columns in order, without `shadow` and `record`. `options` are those of `families`."""
    explained = [
        f"{stem(explainer, quantity, options['explained_class'])}_{summary}"
        for explainer in options["explainers"]
        for quantity in options["explain"]
        if quantity in (explainers[explainer].quantities or options["explain"])
        for summary in (*SUMMARIES, *([DIAGNOSTIC] if explainers[explainer].complete else []))
    ]
    outputs = (*DECISIONS, *OUTPUTS, *losses_at(options))
    return [*(outputs if family == GRADIENT else ()), *explained]


def options_of(section: Explainers, names: Iterable[str]) -> dict[str, Any]:
    """Return the part of the section that explainers depend on."""
    keys = {"explain", "explained_class", *(["precision"] if section.precision else [])}
    own = tuple(model for name in names for model in explainers[name].options)
    return section.model_dump(mode="json", include=keys) | section.options(own)


def _safe(name: str) -> str:
    return re.sub(r"\W+", "-", name)
