"""What explanations that are the model itself leak, against those that are made afterwards: same records, same training sets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mia_audit.explain.catalogue import explainers
from mia_audit.report.findings import Estimate, Finding, Findings, Leak, difference
from mia_audit.report.panels import GUESSING, PAGE, errorbars, shared_legend
from mia_audit.report.series import BASELINE, PALETTE
from mia_audit.report.signals import explainer_label, read_signal
from mia_audit.report.words import capital, fixed, interval, joined, protection

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = {
    "outputs": ("outputs", BASELINE, "s"),
    "inherent": ("explanations that are the model itself", PALETTE[1], "o"),
    "afterwards": ("explanations made afterwards", PALETTE[0], "D"),
}
"""Name, colour and marker."""
ROW, BESIDE = 0.15, 1.9
"""Height of a row, and width of the names beside the panels, in inches."""


@dataclass(frozen=True)
class Source:
    """What of an architecture is attacked: its outputs or one explainer, with the strongest attack under every protection."""

    architecture: str
    explainer: str
    kind: str
    leaks: dict[str, Leak]

    @property
    def label(self) -> str:
        """The explainer in words."""
        return explainer_label(self.explainer) if self.explainer else "outputs"


@dataclass(frozen=True)
class Comparison:
    """The sources of a data set's architectures and the protections that they were attacked under, in the order of the audit."""

    dataset: str
    protections: list[str]
    sources: list[Source]

    def strongest(self, kind: str, protection: str, architecture: str | None = None) -> Source | None:
        """Return the source of a kind that leaks most under a protection."""
        known = [
            source
            for source in self.sources
            if source.kind == kind and protection in source.leaks and architecture in (None, source.architecture)
        ]
        return max(known, key=lambda source: float(source.leaks[protection].auc.mean()), default=None)


def compared(findings: Findings) -> dict[str, Comparison]:
    """Compare the explainers of every data set that has both kinds; the architectures of a sweep are left out."""
    groups = [group for group in findings.groups().values() if group[0].setting.trained and not group[0].setting.swept]
    found = {}
    for dataset in dict.fromkeys(group[0].setting.dataset for group in groups):
        of_it = [group for group in groups if group[0].setting.dataset == dataset]
        protections = dict.fromkeys(capital(protection(one.setting)) for group in of_it for one in group)
        comparison = Comparison(dataset, list(protections), [source for group in of_it for source in _sources(group)])
        if any(source.kind == "inherent" for source in comparison.sources):
            found[dataset] = comparison
    return found


def _sources(group: Sequence[Finding]) -> Iterator[Source]:
    """Yield the outputs of an architecture, its inherent explainers and the others."""
    leaks: dict[str, dict[str, Leak]] = {"": {}}
    for found in group:
        name = capital(protection(found.setting))
        if "outputs" in found.strongest:
            leaks[""][name] = found.strongest["outputs"]
        for leak in found.leaks.get("explanations", ()):  # strongest first
            if explainer := read_signal(leak.signal).explainer:
                leaks.setdefault(explainer, {}).setdefault(name, leak)
    kinds = {explainer: _kind(explainer) for explainer in leaks}
    for explainer in sorted(leaks, key=lambda explainer: list(KINDS).index(kinds[explainer])):
        yield Source(group[0].setting.architecture, explainer, kinds[explainer], leaks[explainer])


def _kind(explainer: str) -> str:
    if not explainer:
        return "outputs"
    return "inherent" if explainer in explainers and explainers[explainer].models else "afterwards"


def inherent_figure(comparison: Comparison) -> Figure:
    """Draw the AUC of the strongest attack on every explainer, a row an explainer and a panel a protection, with intervals."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    architectures = list(dict.fromkeys(source.architecture for source in comparison.sources))
    rows = {
        id(source): number + architectures.index(source.architecture)  # a gap between architectures
        for number, source in enumerate(comparison.sources)
    }
    count = len(comparison.protections)
    size = (max(PAGE, BESIDE + 1.1 * count), ROW * (len(rows) + len(architectures)) + 1.0)
    figure = Figure(
        figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.1)
    )  # names are wider in print than when laid out
    panels = figure.subplots(1, count, squeeze=False, sharex=True, sharey=True)[0]
    for axes, name in zip(panels, comparison.protections, strict=True):
        for kind, (label, colour, marker) in KINDS.items():
            known = [source for source in comparison.sources if source.kind == kind and name in source.leaks]
            placed = [(rows[id(source)], source.leaks[name].auc_estimate) for source in known]
            errorbars(axes, placed, colour, marker, label, upright=False)
        axes.axvline(0.5, **GUESSING)
        axes.set_title(name)
        axes.set_xlabel("AUC")
        axes.grid(axis="y", color="0.92", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0)
    names = [f"{source.architecture}: {source.label}" for source in comparison.sources]
    panels[0].set_yticks(list(rows.values()), names, fontsize=6)
    panels[0].invert_yaxis()
    shared_legend(figure, panels)
    return figure


def inherent_section(findings: Findings) -> list[dict[str, Any]]:
    """Describe every comparison for the page: a row a source, and a sentence a protection."""
    return [
        {
            "name": comparison.dataset,
            "protections": comparison.protections,
            "rows": [
                {
                    "name": f"{source.architecture}: {source.label}",
                    "kind": KINDS[source.kind][0],
                    "cells": [_cell(source.leaks.get(name)) for name in comparison.protections],
                }
                for source in comparison.sources
            ],
            "items": [
                {"term": name, "text": told}
                for name in comparison.protections
                if (told := " ".join(_sentences(comparison, name)))
            ],
        }
        for comparison in compared(findings).values()
    ]


def _cell(leak: Leak | None) -> dict[str, str]:
    if leak is None:
        return {"main": "–", "note": ""}
    found = leak.auc_estimate
    return {"main": fixed(found.mean), "note": "" if math.isnan(found.low) else interval(found)}


def _sentences(comparison: Comparison, name: str) -> Iterator[str]:
    """Hold the strongest attack on inherent explanations against that on what is made afterwards, architecture by architecture."""
    inherent = comparison.strongest("inherent", name)
    if inherent is None:
        return
    yield (
        f"The strongest attack on explanations that are the model itself reads {inherent.label} of {inherent.architecture}:"
        f" AUC {_told(inherent.leaks[name].auc_estimate)}."
    )
    stronger: list[str] = []
    weaker: list[str] = []
    same: list[str] = []
    for architecture in dict.fromkeys(source.architecture for source in comparison.sources):
        other = comparison.strongest("afterwards", name, architecture)
        if other is None or set(inherent.leaks[name].targets).isdisjoint(other.leaks[name].targets):
            continue
        gap = difference(other.leaks[name], inherent.leaks[name])
        told = (
            f"{other.label} of {architecture} ({fixed(other.leaks[name].auc_estimate.mean)}; difference {_told(gap)})"
        )
        (stronger if gap.low > 0 else weaker if gap.high < 0 else same).append(told)
    if stronger:
        yield f"Of those on explanations made afterwards, attacks are stronger on {joined(stronger)}."
    if weaker:
        yield f"Of those on explanations made afterwards, attacks are weaker on {joined(weaker)}."
    if same:
        yield f"No difference could be measured from attacks on {joined(same)}."


def _told(found: Estimate) -> str:
    return fixed(found.mean) if math.isnan(found.low) else f"{fixed(found.mean)}, {interval(found)}"
