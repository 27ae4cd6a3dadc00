"""What an adversarial review found, each switched back on: the tester finds it by itself, and holds what is there now."""

import math
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mia_audit.errors import UserError
from mia_audit.explain.private_local import records, service
from mia_audit.models.architectures.locally_linear_maps import LocallyLinearMaps
from mia_audit.privacy import noise, per_record
from mia_audit.proving.catalogue import Options, targets
from mia_audit.proving.prover import Limits, prove

QUICK = Limits(trials=300, pilot=60, seconds=100)


def judged(target, name, pairs=(), check=None, epsilon=1.0, limits=QUICK, probing=False):
    """Judge one mechanism of a target, on the pairs whose names hold one of some words."""
    mechanism = next(one for one in targets[target](Options(epsilon, 1e-5)) if one.name == name)
    kept = [pair for pair in mechanism.pairs if not pairs or any(word in pair.name for word in pairs)]
    terms, other = (mechanism.terms, mechanism.other) if check else ((), None)
    mechanism = replace(mechanism, pairs=kept, terms=terms, other=other, secret_seed=probing, probes=())
    return prove(target, [mechanism], limits)


def keyed_by_the_seed_alone(monkeypatch):
    honest = noise.training_key
    monkeypatch.setattr(noise, "training_key", lambda secret, terms, content: honest(secret, {}, b""))


@pytest.mark.parametrize(
    ("target", "name", "pair"),
    [
        pytest.param("dp-sgd", "one step", "orthogonal", marks=pytest.mark.slow),
    ],
)
def test_1_noise_that_other_terms_or_records_share(monkeypatch, target, name, pair):
    limits = Limits(trials=20, pilot=60, seconds=100)
    assert not judged(target, name, [pair], check="seed", limits=limits).refuted
    keyed_by_the_seed_alone(monkeypatch)
    found = judged(target, name, [pair], check="seed", limits=replace(limits, trials=300)).counterexample
    assert "under one seed" in found.check


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


def test_4_a_far_query_in_the_same_call(monkeypatch):
    name = "with a companion at 1e+08"
    with pytest.raises(UserError, match="nothing was tested: every run raises UserError: queries: query 1 has"):
        judged("private-explainer", name)
    monkeypatch.setattr(records, "DOMAIN", math.inf)
    assert not judged("private-explainer", name).refuted
    monkeypatch.setattr(records, "_moments", about_a_common_centre)
    assert judged("private-explainer", name).counterexample is not None


def test_5_a_fork_that_spends_the_budget_again(monkeypatch):
    mechanism = next(one for one in targets["private-explainer"](Options(1.0, 1e-5)) if one.name == "one query")
    forked = mechanism.probes[0]
    assert forked(mechanism).verdict == "held"
    process = os.getpid()
    monkeypatch.setattr(service.os, "getpid", lambda: process)
    found = forked(mechanism)
    assert found.verdict == "refuted"
    assert found.detail == "three forks of one service spent 3 times its budget"


def test_5_a_kill_forgets_no_charge():
    mechanism = next(one for one in targets["private-explainer"](Options(1.0, 1e-5)) if one.name == "one query")
    assert mechanism.probes[1](mechanism).verdict == "held"


@pytest.mark.slow
def test_6_a_row_of_nan_in_an_explanation_set(monkeypatch):
    words = ["NaN", "infinite", "huge"]
    assert not judged("private-explainer", "one query", words).refuted

    def as_they_are(self):
        yield self.records.astype(float) / self.scale, self.values, np.ones(len(self.records), dtype=bool)

    monkeypatch.setattr(records.ExplanationSet, "blocks", as_they_are)
    assert "NaN" in judged("private-explainer", "one query", words).counterexample.check


def test_6_a_loss_that_stops_a_private_training(monkeypatch):
    words = ["NaN", "beyond float32"]
    assert not judged("dp-sgd", "one step", words, limits=replace(QUICK, pilot=20, trials=20)).refuted
    honest = per_record.ClippedSum._summed

    def telling(self, inputs, labels, size):
        total, losses = honest(self, inputs, labels, size)
        return total, losses if torch.isfinite(inputs).all() else losses * math.nan

    monkeypatch.setattr(per_record.ClippedSum, "_summed", telling)
    from mia_audit.privacy.mechanisms import dp_sgd

    stated = dp_sgd.DPSGD.backward

    def stopping(self, inputs, labels):
        losses = stated(self, inputs, labels)
        if not torch.isfinite(losses):
            raise ValueError("its mean loss is nan")
        return losses

    monkeypatch.setattr(dp_sgd.DPSGD, "backward", stopping)
    found = judged("dp-sgd", "one step", ["NaN"], limits=replace(QUICK, pilot=20)).counterexample
    assert "its mean loss is nan" in found.detail


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


def test_7_a_closed_form_that_exceeds_its_sensitivity_in_bf16(monkeypatch):
    mechanism = next(one for one in targets["dp-sgd"](Options(4.0, 1e-5)) if one.name == "locally linear maps in bf16")
    in_bf16, in_float32 = mechanism.probes
    assert in_bf16(mechanism).verdict == in_float32(mechanism).verdict == "held"
    monkeypatch.setattr(LocallyLinearMaps, "clipped_gradients", torch.no_grad()(in_the_precision_of_the_model))
    found = in_bf16(mechanism)
    assert found.verdict == "refuted"
    assert "in bf16" in found.detail
    assert in_float32(mechanism).verdict == "held"


def test_a_clipping_norm_that_is_not_kept_is_caught_by_the_game(monkeypatch):
    name, words = "locally linear maps in bf16", ["orthogonal"]
    honest = LocallyLinearMaps.clipped_gradients

    def longer(self, inputs, labels, factors):
        sums, losses = honest(self, inputs, labels, factors)
        return [8 * value for value in sums], losses

    monkeypatch.setattr(LocallyLinearMaps, "clipped_gradients", longer)
    assert judged("dp-sgd", name, words, epsilon=2.0).refuted
