"""Whole runs with one earlier error switched back on each: the observer of everything but the noise finds it, and nothing without it."""

import math
import os
import pickle
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mia_audit.errors import UserError
from mia_audit.explain.private_local import records, service
from mia_audit.explain.private_local.records import ExplanationSet
from mia_audit.explain.private_local.service import PrivateExplainer
from mia_audit.explain.private_local.terms import ExplanationTerms
from mia_audit.models.architectures.locally_linear_maps import LocallyLinearMaps
from mia_audit.privacy import mechanisms, noise
from mia_audit.privacy.catalogue import PerRecord
from mia_audit.privacy.noise import automatic
from mia_audit.privacy.per_record import ClippedSum
from mia_audit.runtime.device import computing

from .play import Claim, Pair, Verdict, observed, play
from .training import LONG, Scene, canary_pairs, linear, locally_linear_maps, one_decision, perceptron, rows

RECORDS, EPSILON, DELTA = 8, 1.0, 1e-5
SECTION = {"mechanism": "dp-sgd", "delta": DELTA}
PAIRS = {pair.name: pair for pair in canary_pairs(RECORDS)}
PERSONS = torch.tensor([0, 1, 2, 3, 4, 5, 6, 6])
"""The canary is the last record of a person with two."""
OF_PERSONS = SECTION | {"unit": "person", "records_per_person": 2}


def judged(scene: Scene, pair: Pair, trials: int = 60, gaussian: bool = True) -> Verdict:
    with one_decision():
        return play(scene.train, pair, Claim(scene.epsilon, DELTA, gaussian), trials, pilot=30)


def person_pair(name: str) -> Pair:
    """The pair without any record of the canary's person."""
    with_it = PAIRS[name].first
    with_it[-2] = with_it[-1]
    return Pair(name, with_it, with_it[:-2])


SCENES: dict[str, Callable[[PerRecord], Scene]] = {
    "one step": lambda way: Scene(linear, SECTION, EPSILON, RECORDS, way=way),
    "batches of one in two": lambda way: Scene(linear, SECTION, EPSILON, RECORDS, batch=4, way=way),
    "killed and resumed": lambda way: Scene(linear, SECTION, EPSILON, RECORDS, epochs=2, killed=True, way=way),
    "perceptron": lambda way: Scene(perceptron, SECTION, EPSILON, RECORDS, way=way),
}


@pytest.mark.parametrize("way", ["vmap", pytest.param("book-keeping", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [n if n == "one step" else pytest.param(n, marks=pytest.mark.slow) for n in SCENES])
def test_sound_trainings_hold(name: str, way: PerRecord) -> None:
    assert not judged(
        SCENES[name](way), PAIRS["an orthogonal record"], gaussian=name != "batches of one in two"
    ).refuted


@pytest.mark.parametrize(
    "name", ["a record of NaN", *[pytest.param(n, marks=pytest.mark.slow) for n in PAIRS if n != "a record of NaN"]]
)
@pytest.mark.parametrize("way", ["vmap", "book-keeping"])
def test_no_value_of_a_record_is_seen(way: PerRecord, name: str) -> None:
    assert not judged(Scene(perceptron, SECTION, EPSILON, RECORDS, way=way), PAIRS[name], trials=20).refuted


@pytest.mark.parametrize("way", ["vmap", "book-keeping"])
@pytest.mark.parametrize("canary", [1e20, math.nan, 1e38])
def test_a_record_that_is_alone_in_a_pass_is_not_seen(canary: float, way: PerRecord) -> None:
    pair = Pair("alone", np.array([[canary, canary, 0.0]]), rows(0))
    assert not judged(Scene(perceptron, SECTION, EPSILON, 1, way=way), pair, trials=20).refuted


@pytest.mark.slow
@pytest.mark.parametrize("way", ["vmap", "book-keeping"])
def test_persons_are_not_seen(way: PerRecord) -> None:
    for name in ("an orthogonal record", "a record of NaN"):
        scene = Scene(perceptron, OF_PERSONS, EPSILON, len(torch.unique(PERSONS)), way=way, persons=PERSONS)
        assert not judged(scene, person_pair(name), trials=20).refuted


def under_one_seed(scene: Scene) -> Callable[[Any, int], Any]:
    """Two releases with one secret: of the pair's input, and of records that the observer knows."""
    known = np.vstack([rows(RECORDS - 1), [-LONG, 0.5, 1.0]])
    return lambda data, secret: [scene.train(data, secret), scene.train(known, secret)]


def test_noise_that_other_records_share_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = under_one_seed(SCENES["one step"]("vmap"))
    pair, claim = PAIRS["an orthogonal record"], Claim(EPSILON, DELTA)
    honest = noise.training_key
    with one_decision():
        assert not play(run, pair, claim, 60, 30).refuted
        monkeypatch.setattr(noise, "training_key", lambda secret, terms, content: honest(secret, {}, b""))
        assert play(run, pair, claim, 60, 30).refuted


def test_a_message_about_a_record_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    stated = mechanisms.DPSGD.backward

    def talking(self: Any, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if bool((inputs.abs() > LONG / 2).any()):
            print("a large record")
        return stated(self, inputs, labels)

    monkeypatch.setattr(mechanisms.DPSGD, "backward", talking)
    assert judged(SCENES["one step"]("vmap"), PAIRS["an orthogonal record"]).event == "says a large record"


MANY = 400
"""Number of records in a sum that is so large that its rounding error could exceed one record's contribution."""


def moved(model: torch.nn.Module, precision: Any, way: PerRecord) -> float:
    """Return how far one record moves the clipped sum, as a share of its sensitivity."""
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(MANY, 2, generator=generator), torch.zeros(MANY, dtype=torch.long)
    inputs[: MANY // 2] = torch.tensor([1.0, LONG])  # aligned gradients have a large sum
    clipped = ClippedSum(model, automatic(1.0), MANY, way)
    largest = 0.0
    with computing(model, precision):
        total = clipped(inputs, labels)[0]
        for gone in range(0, MANY, MANY // 10):
            kept = torch.arange(MANY) != gone
            largest = max(largest, float((total - clipped(inputs[kept], labels[kept])[0]).norm()))
    return largest


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("way", ["vmap", "book-keeping"])
@pytest.mark.parametrize("name", ["an infinite record", "a huge record"])
def test_no_value_of_a_record_is_said_in_any_precision(name: str, way: PerRecord, precision: Any) -> None:
    scene = Scene(perceptron, SECTION, EPSILON, RECORDS, way=way, precision=precision)
    first, second = (observed(partial(scene.train, data, 0)) for data in (PAIRS[name].first, PAIRS[name].second))
    assert first.facts == second.facts and len(first.numbers) == len(second.numbers) > 0


@pytest.mark.parametrize("way", ["vmap", "book-keeping"])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_no_record_moves_a_large_sum_beyond_its_sensitivity(precision: str, way: PerRecord) -> None:
    for model in (perceptron(), locally_linear_maps()):
        assert moved(model, precision, way) <= 1 + 1e-3


def in_the_precision_of_the_model(self, inputs, labels, factors):
    """The closed form as it was, under autocast: norms and sum in bf16."""
    projected = self.projected(inputs)
    scores = self.scores(projected)
    shares = self.shares(scores)
    logits = (shares * scores).sum(dim=1)
    losses = F.cross_entropy(logits, labels, reduction="none")
    errors = logits.softmax(dim=1) - F.one_hot(labels, logits.shape[1])
    signals = errors[:, None] * shares * (1 + self.beta * (scores - logits[:, None]))
    lengths = 1 + projected.square().sum(dim=-1)
    norms = (signals.square().sum(dim=2) * lengths.reshape(len(inputs), -1)).sum(dim=1).sqrt()
    clipped = signals * factors(norms, losses)[:, None, None]
    return [(clipped.flatten(1).T @ projected).double(), clipped.sum(dim=0).double()], losses.double()


def test_a_closed_form_that_exceeds_its_sensitivity_in_bf16_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocallyLinearMaps, "clipped_gradients", torch.no_grad()(in_the_precision_of_the_model))
    assert moved(locally_linear_maps(), "bf16", "vmap") > 1 + 1e-3
    assert moved(locally_linear_maps(), "float32", "vmap") <= 1 + 1e-3


C = 0.02
NEAR = np.array([1.001 * (np.sqrt(4 + 2 * C) - 2) / 2, 0.0])
"""The record with the longest gradient, just outside the radius of equal weights."""
ONE = ExplanationTerms(EPSILON, DELTA, EPSILON, steps=1, c=C)


def explained(record: Any, label: float = 1.0) -> ExplanationSet:
    """All records but one equal the query and have its value, so that their terms are zero."""
    points, values = np.zeros((RECORDS, 2)), -np.ones(RECORDS)
    points[0], values[0] = record, label
    return ExplanationSet.from_arrays(points, values, scale=1.0)


def explain(terms: ExplanationTerms, queries: np.ndarray) -> Callable[[Any, int], Any]:
    return lambda record, secret: PrivateExplainer(
        explained(record, -1.0 if np.array_equal(record, np.zeros(2)) else 1.0), terms, "non-adaptive", seed=secret
    ).answer(queries, -np.ones(len(queries)))


def about_a_common_centre(explained, queries, values, classes, terms):
    """Moments about the mean of all queries of the call, moved to each, as they were."""
    centre, count = queries.mean(axis=0), len(explained.records)
    points = explained.records.reshape(count, -1).astype(float) / explained.scale - centre
    for query, kind, value in zip(queries - centre, classes, values, strict=True):
        distance = np.sqrt(np.maximum((points**2).sum(axis=1) - 2 * points @ query + query @ query, 0))
        weights = records.capped(records.kernels[terms.kernel], distance, terms.c, terms.span)
        labels = explained.values[:, kind]
        first, weight = weights @ points, weights.sum()
        gram = (points * weights[:, None]).T @ points + weight * np.outer(query, query)
        gram -= np.outer(query, first) + np.outer(first, query)
        moment = (weights * labels) @ points - value * first - query * (weights @ labels - value * weight)
        yield records.Problem(gram, moment, float(weights @ (labels - value) ** 2), count)


def test_a_far_query_in_the_same_call_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    several = replace(ONE, epsilon=EPSILON / 3, steps=20)
    run = explain(several, np.array([[0.0, 0.0], [1e8, 1e8]]))
    pair, claim = Pair("near", NEAR, np.zeros(2)), Claim(EPSILON, DELTA)
    with pytest.raises(UserError, match="queries: query 1 has"):
        run(NEAR, 0)
    monkeypatch.setattr(records, "DOMAIN", math.inf)
    assert not play(run, pair, claim, 200, 60).refuted
    monkeypatch.setattr(records, "_moments", about_a_common_centre)
    assert play(run, pair, claim, 200, 60).refuted


def test_a_row_of_nan_in_an_explanation_set_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run, claim = explain(ONE, np.zeros((1, 2))), Claim(EPSILON, DELTA)
    rows_of = [Pair(str(value), np.array([value, 1.0]), np.zeros(2)) for value in (math.nan, math.inf, 1e160)]
    assert not any(play(run, pair, claim, 60, 30).refuted for pair in rows_of)

    def as_they_are(self: Any) -> Any:
        yield self.records.astype(float) / self.scale, self.values, np.ones(len(self.records), dtype=bool)

    monkeypatch.setattr(records.ExplanationSet, "blocks", as_they_are)
    assert play(run, rows_of[0], claim, 60, 30).refuted


def in_fork(call: Callable[[], float]) -> Any:
    """Run a call in a fork of this process and return its result, or the exception that it raised; None if it was killed."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(read)
        try:
            try:
                result: Any = call()
            except Exception as error:
                result = error
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(result, pipe)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    os.wait()
    return pickle.loads(content) if content else None


def charged(one: PrivateExplainer) -> float:
    return float(sum(one.answer(np.zeros((1, 2)), -np.ones(1)).spent))


def spent_by_forks() -> float:
    started = PrivateExplainer(explained(np.zeros(2), -1.0), ONE, "non-adaptive")
    return sum(result for result in (in_fork(lambda: charged(started)) for _ in range(3)) if isinstance(result, float))


def test_forks_that_spend_the_budget_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spent_by_forks() <= ONE.mu_squared * (1 + 1e-9)
    process = os.getpid()
    monkeypatch.setattr(service.os, "getpid", lambda: process)
    assert spent_by_forks() == pytest.approx(3 * ONE.mu_squared)


def test_a_kill_forgets_no_charge(tmp_path: Any) -> None:
    terms, path = replace(ONE, budget=2 * EPSILON), tmp_path / "ledger.arrow"

    def answer(killed: bool) -> float:
        started = PrivateExplainer(explained(np.zeros(2), -1.0), terms, "non-adaptive", ledger=path)
        if killed:
            setattr(os, "fsync", lambda descriptor: os.kill(os.getpid(), signal.SIGKILL))  # noqa: B010
        return charged(started)

    results = [in_fork(lambda killed=killed: answer(killed)) for killed in (True, False, False)]  # type: ignore[misc]
    path.write_bytes(path.read_bytes()[:-7])  # a kill that interrupted a write
    results.append(in_fork(lambda: answer(False)))
    assert sum(result for result in results if isinstance(result, float)) <= terms.mu_squared * (1 + 1e-9)
    assert all(isinstance(result, UserError) for result in results if isinstance(result, Exception))
