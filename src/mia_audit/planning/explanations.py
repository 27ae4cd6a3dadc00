"""Time studies of private explanations by running the audit's own code on random records of the pool's size."""

from collections.abc import Callable
from functools import cached_property

import numpy as np
from jaxtyping import Float

from mia_audit.explain.black_boxes import black_boxes
from mia_audit.explain.black_boxes.values import of_labels
from mia_audit.explain.private_local import ExplanationSet, Terms
from mia_audit.explain.private_local.study import Study
from mia_audit.explain.private_section import PrivateExplanations
from mia_audit.planning.linear import fitted
from mia_audit.planning.pace import processor_seconds
from mia_audit.planning.sizes import Size
from mia_audit.signals.explanation_sets import membership_signals, neighbours

COMPARED = 2048
"""Number of records for timing the search of nearest neighbours."""


class MadeUp:
    """A pool of random records with learnable labels, for the study of one data set."""

    def __init__(self, study: PrivateExplanations, size: Size) -> None:
        self.study, self.size = study, size

    @cached_property
    def records(self) -> Float[np.ndarray, "N n"]:
        """Rows of standard normal numbers."""
        return np.random.default_rng(0).standard_normal((self.size.records, int(np.prod(self.size.shape))), np.float32)

    @cached_property
    def labels(self) -> np.ndarray:
        """The index of the largest of several random projections, one per class."""
        directions = np.random.default_rng(1).standard_normal((self.records.shape[1], self.size.classes), np.float32)
        return np.asarray((self.records @ directions).argmax(axis=1))

    @cached_property
    def explained(self) -> ExplanationSet:
        """The whole pool as explanation set. It has a single class, because past explanations are used only for their own class."""
        return ExplanationSet.of(self.records, of_labels(np.zeros(len(self.records), dtype=int), self.size.classes))

    def black_box(self, name: str) -> float:
        """Return the seconds to fit a black box and record its outputs."""

        def run(count: int) -> None:
            # every class must occur in the first records, because the black box has a column of values per class
            labels = np.concatenate([np.arange(self.size.classes), self.labels[self.size.classes :]])[:count]
            black_boxes[name](self.records[:count], labels, self.size.classes, 0)

        least = min(2 * self.size.classes, self.size.records)
        run(least)  # the first run imports scikit-learn
        return _seconds(run, self.size.records, least)

    def answers(self, reference: bool) -> float:
        """Return the seconds of all experiments on one black box, with or without comparison to a reference model's explanations."""
        values = self.explained.values if reference else None

        def run(count: int) -> None:
            section = self.study.model_copy(update={"queries": count, "repetitions": 1})
            Study(self.explained, section, (0, "plan"), values, self.labels).rows()

        return self.study.repetitions * _seconds(run, self.study.queries, least=max(2, self.study.parts))

    def attacked(self, epsilon: str, sets: int) -> float:
        """Return the seconds to explain every record's nearest neighbour from each of the explanation sets."""
        noisy = epsilon != "inf"
        budget = float(epsilon) if noisy else 1.0
        study = self.study
        terms = Terms(budget, study.delta, budget, study.steps, study.c, study.kernel, study.adjacency)
        member = np.random.default_rng(2).random(self.size.records) < 0.5
        points = self.explained.points(self.records)

        def run(count: int) -> None:
            asked = np.arange(self.size.records) % count
            membership_signals(self.explained, member, asked, terms, noisy, (0, "plan"))

        few = points[:COMPARED]
        nearest = processor_seconds(lambda: neighbours(few)) * (len(points) / len(few)) ** 2
        return nearest + sets * _seconds(run, self.size.records, least=1)


def _seconds(run: Callable[[int], object], whole: int, least: int) -> float:
    """Return the estimated seconds of a full run, from runs over multiples of the smallest possible part."""
    return fitted(lambda count: processor_seconds(lambda: run(count)), whole, least=least)(whole)
