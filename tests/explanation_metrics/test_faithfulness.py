"""Faithfulness measures on models whose answers are known, and against loops over the definition."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from mia_audit.explanation_metrics.methods import deletion, infidelity, insertion, sensitivity
from mia_audit.explanation_metrics.study import Probe, below

SHAPE = (2, 4, 4)


def _probe(model, inputs, attributions, explain=None, multiplied=True, quantity="logit", batch=64):
    classes = model(inputs).argmax(dim=1)
    return Probe(model, inputs, [11, 5, 7], classes, quantity, attributions, multiplied, explain, 3, batch)


@pytest.fixture
def linear():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(32, 4)).double().requires_grad_(False)
        return model, torch.randn(3, *SHAPE).double()


def gradient(model, inputs):
    return model[1].weight[model(inputs).argmax(dim=1)].reshape(-1, *SHAPE)


def test_a_linear_model_is_explained_perfectly_by_its_gradient_in_either_unit(linear):
    model, inputs = linear
    weights = gradient(model, inputs)
    for multiplied, attributions in ((False, weights), (True, weights * inputs)):
        probe = _probe(model, inputs, attributions, multiplied=multiplied)
        assert infidelity(probe, 8, 0.3) == pytest.approx(np.zeros(3), abs=1e-12)
        assert (infidelity(replace(probe, attributions=-attributions), 8, 0.3) > 1e-3).all()


def test_infidelity_is_the_mean_over_the_removals_of_every_record(linear):
    model, inputs = linear
    attributions = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(1)).double()
    probe = _probe(model, inputs, attributions, quantity="probability")
    found = infidelity(probe, 6, 0.3)
    for row in range(3):
        removed = probe.draws("removal", [row], 6)[:, :1] < 0.3
        errors = []
        for mask in removed:
            class_ = probe.classes[row]
            before, after = (torch.softmax(model(x[None]), 1)[0, class_] for x in (inputs[row], inputs[row] * ~mask))
            errors.append(float((attributions[row] * mask).sum() - (before - after)) ** 2)
        assert found[row] == pytest.approx(np.mean(errors))
    assert infidelity(replace(probe, batch=1), 6, 0.3) == pytest.approx(found), "the batch's size changes nothing"


def test_sensitivity_is_the_largest_relative_change(linear):
    model, inputs = linear

    def explain(points, rows):
        return points**2 * torch.tensor([1.0, 2.0, 3.0]).double()[list(rows), None, None, None]

    probe = _probe(model, inputs, explain(inputs, range(3)), explain)
    found = sensitivity(probe, 5, 0.1)
    shifts = (2 * probe.draws("shift", range(3), 5) - 1) * 0.1
    assert shifts.abs().max() <= 0.1 and shifts.std() > 0.04
    for row in range(3):
        own = inputs[row] ** 2
        changes = [float(((inputs[row] + s) ** 2 - own).norm() / own.norm()) for s in shifts[5 * row : 5 * row + 5]]
        assert found[row] == pytest.approx(max(changes), rel=1e-6)
    assert sensitivity(replace(probe, batch=7), 5, 0.1) == pytest.approx(found)
    constant = replace(probe, explain=lambda points, rows: torch.ones_like(points))
    assert sensitivity(constant, 5, 0.1) == pytest.approx(np.zeros(3))


@pytest.mark.parametrize("steps", [1, 4, 16])
def test_curves_are_those_of_removing_pixel_after_pixel(linear, steps):
    model, inputs = linear
    attributions = gradient(model, inputs) * inputs
    probe, maps = _probe(model, inputs, attributions), attributions.sum(dim=1).numpy()
    for measure, deleting in ((deletion, True), (insertion, False)):
        found = measure(probe, maps, steps)
        assert found.shape == (3, steps + 1)
        for row in range(3):
            order = np.argsort(-maps[row].ravel(), kind="stable")
            heights = []
            for step in range(steps + 1):
                chosen = np.zeros(16, dtype=bool)
                chosen[order[: round(step / steps * 16)]] = True
                kept = torch.from_numpy((~chosen if deleting else chosen).reshape(4, 4))
                heights.append(float(torch.softmax(model((inputs[row] * kept)[None]), 1)[0, probe.classes[row]]))
            assert found[row] == pytest.approx(heights)
            assert below(found)[row] == pytest.approx(np.mean([(a + b) / 2 for a, b in pairwise(heights)]))
    assert (below(insertion(probe, maps, steps)) >= below(insertion(probe, -maps, steps))).all()
    assert (below(deletion(probe, maps, steps)) <= below(deletion(probe, -maps, steps))).all()
    assert deletion(replace(probe, batch=2), maps, steps) == pytest.approx(deletion(probe, maps, steps))
