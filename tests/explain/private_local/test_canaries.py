"""What released explanations prove about one record: less than is claimed, and more wherever the mechanism is broken.

The adversary knows f, all other records and the terms, sees explanations and steps, and tells whether the canary was there:
the record whose gradient is as long as the weights let it be. Without it a copy of the query stands in its place, whose term
in every gradient is zero.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from mia_audit.evaluation.epsilon_bounds import clopper_pearson_epsilon, gaussian_epsilon
from mia_audit.explain.private_local import records, service
from mia_audit.explain.private_local.records import ExplanationSet
from mia_audit.explain.private_local.service import Answers, PrivateExplainer
from mia_audit.explain.private_local.terms import ExplanationTerms

C = 0.02
RECORDS = 8
DELTA = 1e-6
NEAR = np.array([1.001 * (np.sqrt(4 + 2 * C) - 2) / 2, 0.0])
"""Just outside the radius: 2αd(d + 2) = c, and d next to nothing beside 2."""


@dataclass(frozen=True)
class Game:
    terms: ExplanationTerms
    protocol: str = "non-adaptive"
    queries: int = 1
    trials: int = 1500
    alpha: float = 0.05

    def play(self, seed: int, present: bool) -> tuple[Answers, float]:
        points = np.zeros((RECORDS, 2))
        points[0] = NEAR if present else 0.0
        explained = ExplanationSet.from_arrays(points, np.ones(RECORDS), scale=1.0)
        explainer = PrivateExplainer(explained, self.terms, self.protocol, seed=2 * seed + present)
        answers = explainer.answer(np.zeros((self.queries, 2)), -np.ones(self.queries))
        return answers, explainer.epsilon

    def bounds(self, statistic: Callable[[Answers], float]) -> tuple[float, float, float]:
        """Return the Gaussian and the general lower bound on ε at 95 % confidence, and the largest ε claimed."""
        seen = {present: [self.play(seed, present) for seed in range(self.trials)] for present in (True, False)}
        values = {present: np.array([statistic(one) for one, _ in games]) for present, games in seen.items()}
        pilot = self.trials // 5
        threshold = (values[True][:pilot].mean() + values[False][:pilot].mean()) / 2
        found = [int((values[present][pilot:] > threshold).sum()) for present in (True, False)]
        errors = (*found, self.trials - pilot, self.trials - pilot, self.alpha, DELTA)
        claimed = max(epsilon for games in seen.values() for _, epsilon in games)
        return gaussian_epsilon(*errors), clopper_pearson_epsilon(*errors), claimed


def along_the_canary(answers: Answers) -> float:
    return float(answers.explanations[:, 0].mean())


def terms(epsilon: float, steps: int, **options) -> ExplanationTerms:
    return ExplanationTerms(epsilon=epsilon, delta=DELTA, budget=100.0, steps=steps, c=C, **options)


def test_one_step_proves_nearly_what_it_costs():
    gaussian, _, _ = Game(terms(4.0, 1)).bounds(along_the_canary)
    assert 0.7 * 4.0 <= gaussian <= 4.0


@pytest.mark.parametrize(("steps", "queries", "epsilon"), [(10, 1, 4.0), (1, 6, 1.5)], ids=["steps", "queries"])
def test_several_steps_and_queries_stay_below_the_claim(steps, queries, epsilon):
    gaussian, _, claimed = Game(terms(epsilon, steps), queries=queries, trials=900).bounds(along_the_canary)
    assert 0.3 * claimed <= gaussian <= claimed


def two_steps_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = service.descend

    def longer(problems, starts, noise, rate):
        return honest(problems, starts, np.concatenate([noise, np.roll(noise, 1, axis=2)], axis=1), rate)

    monkeypatch.setattr(service, "descend", longer)


def no_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "capped", lambda kernel, distance, c, span: 4 * kernel(distance))


def half_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = service.descend
    monkeypatch.setattr(
        service, "descend", lambda problems, starts, noise, rate: honest(problems, starts, noise / 2, rate)
    )


@pytest.mark.parametrize("sabotage", [two_steps_for_one, no_cap, half_the_noise], ids=lambda one: one.__name__)
def test_a_broken_mechanism_is_caught(sabotage, monkeypatch):
    sabotage(monkeypatch)
    gaussian, _, _ = Game(terms(4.0, 1), trials=800).bounds(along_the_canary)
    assert gaussian > 4.0


SECOND = np.array([0.0, 2.0])


def two_queries(present: bool, seed: int, as_published: tuple[str, ...]) -> PrivateExplainer:
    """A record beside the second query, or one that is the query, the others at the first: one replaces the other."""
    points, labels = np.zeros((RECORDS, 2)), -np.ones(RECORDS)
    points[0], labels[0] = SECOND + NEAR * present, 1.0 if present else -1.0
    terms = ExplanationTerms(0.5, DELTA, 100.0, 40, C, adjacency="replacement", as_published=as_published)
    return PrivateExplainer(ExplanationSet.from_arrays(points, labels, scale=1.0), terms, "enhanced", seed=seed)


def steps_expected(present: bool, first: np.ndarray) -> int:
    """How many steps the second query needs where the first one's explanation is its start and β has no noise."""
    explainer = two_queries(present, 0, ("beta",))
    problem = next(explainer.explained.problems(SECOND[None], -np.ones(1), np.zeros(1, int), explainer.terms))
    return explainer._start(problem, first[None], np.random.default_rng(0))[1]


def proved_by_steps(as_published: tuple[str, ...], trials: int = 150) -> tuple[float, float]:
    """Tell a record from its replacement by how many steps the second query took; return the bound and what is claimed."""
    called, claimed = [0, 0], 0.0
    for present in (True, False):
        for seed in range(trials):
            explainer = two_queries(present, 2 * seed + present, as_published)
            answers = explainer.answer(np.stack([np.zeros(2), SECOND]), -np.ones(2))
            assert answers.source == ["scratch", "warm-start"]
            distance = [abs(answers.steps[1] - steps_expected(side, answers.explanations[0])) for side in (True, False)]
            called[present] += distance[0] < distance[1]
            claimed = max(claimed, explainer.epsilon)
    return clopper_pearson_epsilon(called[True], called[False], trials, trials, 0.01, DELTA), claimed


def test_a_noisy_beta_leaks_no_more_than_is_charged():
    proved, claimed = proved_by_steps(())
    assert proved <= claimed


def test_the_published_beta_leaks_what_nobody_charges():
    proved, claimed = proved_by_steps(("beta",))
    assert proved > 2 * claimed
