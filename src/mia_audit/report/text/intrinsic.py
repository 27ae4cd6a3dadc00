"""Leakage of intrinsic explanations, which are part of the model, compared with post-hoc ones on the same records and training sets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mia_audit.explain.catalogue import explainer_label, intrinsic
from mia_audit.report.data.findings import Estimate, Finding, Findings, Leak, chosen, difference
from mia_audit.report.text.formatting import count, fixed, interval, joined, titled
from mia_audit.signals.name import read_signal

if TYPE_CHECKING:
    from mia_audit.report.data.groups import Group, Groups


KINDS = {
    "outputs": "outputs",
    "intrinsic": "intrinsic explanations",
    "post-hoc": "post-hoc explanations",
}


@dataclass(frozen=True)
class Source:
    """The outputs or one explainer of an architecture, with the strongest attack on this source under every protection."""

    architecture: str
    explainer: str
    kind: str
    leaks: dict[str, Leak]

    @property
    def label(self) -> str:
        """The explainer in prose."""
        return explainer_label(self.explainer) if self.explainer else "outputs"


@dataclass(frozen=True)
class Comparison:
    """The sources of a data set's architectures, and the protections under which they were attacked, in the order of the audit."""

    dataset: str
    protections: list[str]
    sources: list[Source]

    def strongest(self, kind: str, protection: str, architecture: str | None = None) -> Source | None:
        """Return the source of a kind with the largest leak under a protection, which is corrected for this choice."""
        known = [
            source
            for source in self.sources
            if source.kind == kind and protection in source.leaks and architecture in (None, source.architecture)
        ]
        if not known:
            return None
        leaks = [source.leaks[protection] for source in known]
        place = max(range(len(known)), key=lambda place: float(leaks[place].auc.mean()))
        return replace(known[place], leaks={protection: chosen(leaks)})


def compared(findings: Findings) -> dict[str, Comparison]:
    """Compare the explainers of every data set that has intrinsic ones; architectures of a sweep are left out."""
    groups = [group for group in findings.groups().values() if group[0].setting.trained and not group[0].setting.swept]
    comparisons = {}
    for dataset in dict.fromkeys(group[0].setting.dataset for group in groups):
        of_it = [group for group in groups if group[0].setting.dataset == dataset]
        protections = dict.fromkeys(titled(one.setting) for group in of_it for one in group)
        comparison = Comparison(dataset, list(protections), [source for group in of_it for source in _sources(group)])
        if any(source.kind == "intrinsic" for source in comparison.sources):
            comparisons[dataset] = comparison
    return comparisons


def _sources(group: Sequence[Finding]) -> Iterator[Source]:
    """Yield the outputs of an architecture, its intrinsic explainers and its post-hoc ones."""
    leaks: dict[str, dict[str, Leak]] = {"": {}}
    for finding in group:
        name = titled(finding.setting)
        if "outputs" in finding.strongest:
            leaks[""][name] = finding.strongest["outputs"]
        rivals: dict[str, list[Leak]] = {}
        for leak in finding.leaks.get("explanations", ()):
            if explainer := read_signal(leak.signal).explainer:
                rivals.setdefault(explainer, []).append(leak)
        for explainer, attacks in rivals.items():
            leaks.setdefault(explainer, {})[name] = chosen(attacks)
    kinds = {explainer: _kind(explainer) for explainer in leaks}
    for explainer in sorted(leaks, key=lambda explainer: list(KINDS).index(kinds[explainer])):
        yield Source(group[0].setting.architecture_name, explainer, kinds[explainer], leaks[explainer])


def _kind(explainer: str) -> str:
    if not explainer:
        return "outputs"
    return "intrinsic" if intrinsic(explainer) else "post-hoc"


def intrinsic_sentences(comparison: Comparison, name: str) -> Iterator[str]:
    """Compare the strongest attack on intrinsic explanations with the strongest on each architecture's post-hoc ones, under one protection."""
    strongest = comparison.strongest("intrinsic", name)
    if strongest is None:
        return
    yield (
        f"The strongest attack on intrinsic explanations reads {strongest.label} of {strongest.architecture}:"
        f" AUC {_with_interval(strongest.leaks[name].auc_estimate)}."
    )
    stronger: list[str] = []
    weaker: list[str] = []
    same: list[str] = []
    for architecture in dict.fromkeys(source.architecture for source in comparison.sources):
        other = comparison.strongest("post-hoc", name, architecture)
        if other is None or set(strongest.leaks[name].targets).isdisjoint(other.leaks[name].targets):
            continue
        gap = difference(other.leaks[name], strongest.leaks[name])
        auc = fixed(other.leaks[name].auc_estimate.mean)
        text = f"{other.label} of {architecture} ({auc}; difference {_with_interval(gap)})"
        (stronger if gap.low > 0 else weaker if gap.high < 0 else same).append(text)
    if stronger:
        yield f"Among post-hoc explanations, attacks are stronger on {joined(stronger)}."
    if weaker:
        yield f"Among post-hoc explanations, attacks are weaker on {joined(weaker)}."
    if same:
        yield f"No difference could be measured from attacks on the post-hoc explanations {joined(same)}."


def _with_interval(value: Estimate) -> str:
    return fixed(value.mean) if math.isnan(value.low) else f"{fixed(value.mean)}, {interval(value)}"


def risk_sentences(grouped: Groups, confidence: float) -> str:
    """Say which groups of a setting the attack recognises better than everybody else, and which worse."""
    different = [one for one in grouped.listed if one.difference and one.p <= 1 - confidence]
    higher = sorted((one for one in different if _gap(one) > 0), key=lambda one: -_gap(one))
    lower = sorted((one for one in different if _gap(one) < 0), key=_gap)
    head = f"{titled(grouped.finding.setting)}: "
    if not different:
        return (
            f"{head}no group differs from everybody else beyond chance ({len(grouped.listed)} groups,"
            f" {confidence * 100:g}\u00a0% level over all of them)."
        )
    parts = []
    if higher and grouped.highest:
        more = f", and above all others' for {count(len(higher) - 1, 'more group')}" if len(higher) > 1 else ""
        gap = f"AUC +{fixed(grouped.highest.mean)} against all others, {interval(grouped.highest)}"
        parts.append(f"the risk is highest for {higher[0].column} {higher[0].label} ({gap}){more}")
    if lower:
        parts.append(f"{'it is ' if higher else 'the risk is '}lowest for {lower[0].column} {lower[0].label}")
    return f"{head}{'; '.join(parts)}."


def _gap(group: Group) -> float:
    return group.difference.mean if group.difference else math.nan


def small_sentence(grouped: Sequence[Groups]) -> str:
    """Say how many groups are not shown because they are small, and why; empty if there are none."""
    from mia_audit.evaluation.groups import LEAST  # and polars with it

    lost = {column: number for one in grouped for column, number in one.small.items() if number}
    if not lost:
        return ""
    unit = "persons" if any(one.finding.by_person for one in grouped) else "records"
    columns = joined([f"{count(number, 'group')} of {column}" for column, number in lost.items()])
    return (
        f"Not shown, having fewer than {LEAST} {unit}: {columns}. Their intervals would be too wide to tell them from others, and a"
        f" row about so few {unit} would reveal something about each of them."
    )
