"""Families of signals, each computed by one job with its own options and columns; and losses and confidences derived from others."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.explain.catalogue import GRADIENT, explainers
from mia_audit.explain.release import FULL, named_release
from mia_audit.explanation_metrics.catalogue import ExplanationMetrics, measures
from mia_audit.learners.naming import BUILT_IN
from mia_audit.signals.name import (
    DECISIONS,
    DIAGNOSTIC,
    OUTPUTS,
    PROBABILITY,
    PROBED,
    SUMMARIES,
    VECTOR,
    Signal,
    read_signal,
    stem,
)

if TYPE_CHECKING:
    from jaxtyping import Float

    from mia_audit.explain.catalogue import Explainers

    Cells = Float[np.ndarray, "N K"]
    Read = Callable[[Signal], Sequence[Cells]]


def families(
    section: Explainers, model: str, learner: str = BUILT_IN, metrics: ExplanationMetrics | None = None
) -> dict[str, dict[str, Any]]:
    """Return every family of explainers that the config requests for a model, with exactly the options on which it depends.

    `gradient` always comes first. It has the signals of outputs, and input × gradient and saliency use the same pass,
    unless no explainer is requested.
    Explainers that cannot explain the model are left out; those that the config names for a model that may be no torch
    module are `required` of it. Families' names are safe as file names. Probes have the options of `metrics`, and are
    those of the built-in models' explainers that the section names.
    """
    of_family: dict[str, list[str]] = {
        GRADIENT: [name for name in shared() if section.methods and explainers[name].explains(model, learner)]
    }
    methods = methods_of(section, model, learner)
    for name in methods:
        family = family_of(name)
        if family != GRADIENT:
            of_family.setdefault(family, []).append(name)
    sections = {family: {"explainers": names} | options_of(section, names) for family, names in of_family.items()}
    if learner != BUILT_IN and (required := [name for name in methods if family_of(name) == GRADIENT]):
        sections[GRADIENT] |= {"required": required}
    for options in sections.values():
        if section.vectors and options["explainers"]:
            options |= {"vectors": section.vectors, "projections": section.projections}
        named = [name for name in options["explainers"] if name in section.methods]
        probed = [name for name in named if not explainers[name].needs_training_records]
        if section.probes and probed and learner == BUILT_IN:
            keys = {key for probe in section.probes for key in measures[probe].options()}
            measuring = (metrics or ExplanationMetrics()).model_dump(include=keys)
            options |= {"probed": probed, "probes": list(section.probes), "measuring": measuring}
    return sections


def family_of(name: str) -> str:
    """Return the family of an explainer's signals."""
    return explainers[name].family or re.sub(r"\W+", "-", name)


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
    vector = [VECTOR] if options.get("vectors") else []
    probes = [name for probe in options.get("probes", ()) for name in PROBED[probe]]
    explained = [
        f"{stem(named_release(explainer, release), quantity, options['explained_class'])}_{summary}"
        for explainer in options["explainers"]
        for quantity in options["explain"]
        if quantity in (explainers[explainer].quantities or options["explain"])
        for release in options.get("release", [FULL])
        for summary in (
            *SUMMARIES,
            *([DIAGNOSTIC] if explainers[explainer].complete and release == FULL else []),
            *vector,
            *(probes if explainer in options.get("probed", ()) else []),
        )
    ]
    outputs = (*DECISIONS, *OUTPUTS)
    return [*(outputs if family == GRADIENT else ()), *explained]


def options_of(section: Explainers, names: Iterable[str]) -> dict[str, Any]:
    """Return the part of the section that explainers depend on."""
    keys = {"explain", "explained_class", *(["precision"] if section.precision else [])}
    if section.release != (FULL,):
        keys |= {"release"}
    own = tuple(model for name in names for model in explainers[name].options)
    return section.model_dump(mode="json", include=keys) | section.options(own)


def loss_from_probability(probability: Float[np.ndarray, "N K"]) -> Float[np.ndarray, "N K"]:
    """Return −log p; a probability of 0 is replaced by the smallest positive number."""
    return np.asarray(-np.log(_within(probability)[0]))


def confidence_from_probability(probability: Float[np.ndarray, "N K"]) -> Float[np.ndarray, "N K"]:
    """Return log p − log(1 − p); probabilities of 0 and 1 are replaced by the nearest numbers between them."""
    inside, complement = _within(probability)
    return np.asarray(np.log(inside) - np.log(complement))


def _within(probability: Float[np.ndarray, "N K"]) -> tuple[np.ndarray, np.ndarray]:
    """Return p and 1 − p, both positive."""
    probability = probability.astype(np.float64, copy=False)
    complement = 1 - probability
    least, gap = (values.min(where=values > 0, initial=0.5) for values in (probability, complement))
    return np.maximum(probability, least), np.maximum(complement, gap)


def confidence_from_loss(loss: Float[np.ndarray, "N K"]) -> Float[np.ndarray, "N K"]:
    """Return log p − log(1 − p) for p = exp(−loss); a loss of 0 is replaced by the smallest positive number."""
    least = loss.min(where=loss > 0, initial=np.inf)
    loss = np.maximum(loss, least if np.isfinite(least) else 1.0)
    confidence: Float[np.ndarray, "N K"] = np.negative(loss, dtype=np.float64)
    complement = np.expm1(confidence)
    confidence -= np.log(np.negative(complement, out=complement), out=complement)
    return confidence


def loss_from_confidence(confidence: Float[np.ndarray, "N K"]) -> Float[np.ndarray, "N K"]:
    """Return −log p for log p − log(1 − p) = confidence."""
    loss: Float[np.ndarray, "N K"] = np.negative(confidence, dtype=np.float64)
    np.logaddexp(0, loss, out=loss)
    return loss


SOURCES: dict[str, dict[str, Callable[[Cells], Cells]]] = {
    "confidence": {"loss": confidence_from_loss, PROBABILITY: confidence_from_probability},
    "loss": {"confidence": loss_from_confidence, PROBABILITY: loss_from_probability},
}
"""The signals from which loss and confidence are derived if they are not given, the best first."""


def with_derived(given: Sequence[Signal]) -> list[Signal]:
    """Return the signals that attacks can read: the given ones without the probability, then those derived from them."""
    read = [signal for signal in given if signal.name != PROBABILITY]
    names = {signal.name for signal in given}
    return [*read, *map(read_signal, derived_from(names))]


def source_of(name: str, given: Collection[str]) -> str:
    """Return the source of a derived signal; empty if the signal is given, or cannot be derived."""
    if name in given:
        return ""
    return next((source for source in SOURCES.get(name, {}) if source in given), "")


def derived_from(given: Collection[str]) -> dict[str, str]:
    """Return the signals that can be derived from the given ones, each with its source."""
    return {name: source for name in SOURCES if (source := source_of(name, given))}


def derive(name: str, source: str, read: Read) -> list[Cells]:
    """Return the values [N, K] of a derived signal for every query, given the function that reads its source."""
    return [SOURCES[name][source](values) for values in read(read_signal(source))]
