"""What was measured on explanations: estimates over shadow models, and comparisons over the same ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import polars as pl

from mia_audit.interpretability import OTHER, REFERENCE, measures
from mia_audit.report.findings import Estimate, Finding, accuracy_difference, difference, estimate
from mia_audit.report.series import BASELINE, PALETTE, Series, series
from mia_audit.report.signals import explainer_label

if TYPE_CHECKING:
    from mia_audit.report.results import Results, Setting

HEADLINES = ("ssim", "rank-correlation", "cosine", "top-overlap")
"""Measures of likeness, the first that was measured is the one that figures and page show."""


@dataclass(frozen=True)
class Explained:
    """An explainer and the quantity that it explains."""

    explainer: str
    quantity: str

    @property
    def label(self) -> str:
        """The explainer in words, and its quantity where that is not the logit."""
        return explainer_label(self.explainer) + (", probability" if self.quantity == "probability" else "")


@dataclass(frozen=True)
class Interpretation:
    """The measures of one architecture's settings, a row per model (`interpretability.summary.per_model`)."""

    models: pl.DataFrame
    confidence: float

    @property
    def explained(self) -> list[Explained]:
        """List what was explained, in the order of the config."""
        return [
            Explained(*row) for row in self.models.select("explainer", "quantity").unique(maintain_order=True).rows()
        ]

    @property
    def drawn(self) -> list[Explained]:
        """List every explainer once, with the first quantity that it explains."""
        first: dict[str, Explained] = {}
        for one in self.explained:
            first.setdefault(one.explainer, one)
        return list(first.values())

    @property
    def measures(self) -> list[str]:
        """List what was measured, likeness first."""
        names = self.models["measure"].unique(maintain_order=True).to_list()
        return sorted(names, key=lambda name: not measures[name].compares)

    @property
    def headline(self) -> str | None:
        """Return the measure of likeness that is shown first; None where none was measured."""
        return next((name for name in HEADLINES if name in self.measures), None)

    def values(
        self, setting: Setting, one: Explained, measure: str, against: str | None = None, column: str = "value"
    ) -> dict[int, float]:
        """Return a measure of a setting's models, by shadow; those that it is not defined for are left out."""
        rows = self.models.filter(
            pl.col("mechanism") == setting.mechanism,
            pl.col("epsilon") == setting.epsilon,
            pl.col("explainer") == one.explainer,
            pl.col("quantity") == one.quantity,
            pl.col("measure") == measure,
            pl.col("against").eq_missing(pl.lit(against, pl.String)),
        ).drop_nulls(column)
        return dict(zip(rows["shadow"].to_list(), rows[column].to_list(), strict=True))

    def estimate(
        self, setting: Setting, one: Explained, measure: str, against: str | None = None, column: str = "value"
    ) -> Estimate | None:
        """Estimate a measure over a setting's models; None where it was not measured."""
        values = self.values(setting, one, measure, against, column)
        return estimate(list(values.values()), self.confidence) if values else None

    def difference(self, first: Setting, second: Setting, one: Explained, measure: str) -> Estimate | None:
        """Return first − second in likeness to the reference, over the shadow models that both have."""
        left, right = (self.values(setting, one, measure, REFERENCE) for setting in (first, second))
        gaps = [left[shadow] - right[shadow] for shadow in left if shadow in right]
        return estimate(gaps, self.confidence) if gaps else None

    def shortfall(self, setting: Setting, bare: Setting, one: Explained, measure: str) -> Estimate | None:
        """Return how much less alike explanations of a setting and the reference are than those of two reference models.

        Over pairs of neighbouring shadow models: the two reference models of a pair were trained on different records,
        a setting's model and its reference's on the same ones.
        """
        alike, level = self.values(setting, one, measure, REFERENCE), self.values(bare, one, measure, OTHER)
        pairs = [(shadow - 1, shadow) for shadow in level]
        gaps = [level[k] - (alike[j] + alike[k]) / 2 for j, k in pairs if j in alike and k in alike]
        return estimate(gaps, self.confidence) if gaps else None


def explainer_series(group: Sequence[Finding], interpretation: Interpretation) -> dict[Explained, Series]:
    """Return the colours of the explainers that are drawn: those that they have where attacks are drawn."""
    known = {one.name: one.colour for one in series(list(group))}
    drawn = interpretation.drawn
    spare = [colour for colour in PALETTE if colour not in {known.get(one.label) for one in drawn}]
    return {one: Series(one.label, known.get(one.label) or (spare.pop(0) if spare else BASELINE), ()) for one in drawn}


def likeness(found: Finding, base: Finding | None, interpretation: Interpretation) -> dict[Explained, Estimate]:
    """Return how alike a setting's explanations and the reference's are, by explainer; for the reference, those of two of its models."""
    measure = interpretation.headline
    if measure is None or base is None:
        return {}
    against = OTHER if found is base else REFERENCE
    values = {one: interpretation.estimate(found.setting, one, measure, against) for one in interpretation.drawn}
    return {one: value for one, value in values.items() if value}


def measure_label(name: str) -> str:
    """Name a measure in words."""
    return measures[name].label


def interpretations(results: Results) -> dict[tuple[str, str], Interpretation]:
    """Return the measures of every dataset × architecture that has any."""
    return {
        group: Interpretation(models, results.spec.confidence) for group, models in results.interpretability.items()
    }


@dataclass(frozen=True)
class Peer:
    """One thing in which two mechanisms differ at the same ε: `first` − `second` over the same shadow models."""

    first: Finding
    second: Finding
    what: str
    found: Estimate


def peers(group: Sequence[Finding], interpretation: Interpretation | None, confidence: float) -> Iterator[Peer]:
    """Compare the mechanisms of a group that have a budget in common: accuracy, leakage, likeness of explanations."""
    for second, first in combinations([found for found in group if found.setting.trained], 2):
        if first.setting.epsilon != second.setting.epsilon:
            continue
        accuracy = accuracy_difference(first, second, confidence)
        if accuracy is not None:
            yield Peer(first, second, "test_accuracy", accuracy)
        for channel, leak in first.strongest.items():
            if channel in second.strongest:
                yield Peer(first, second, f"auc of {channel}", difference(leak, second.strongest[channel]))
        if interpretation is None:
            continue
        for one in interpretation.explained:
            for measure in interpretation.measures:
                gap = interpretation.difference(first.setting, second.setting, one, measure)
                if gap is not None:
                    yield Peer(first, second, f"{measure} of {one.explainer} ({one.quantity})", gap)
