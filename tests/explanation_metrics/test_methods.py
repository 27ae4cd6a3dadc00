"""Measures of explanations on cases whose answers are known, and against loops over the definition."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import spearmanr
from skimage.metrics import structural_similarity
from torch import nn

from mia_audit.explanation_metrics.methods import (
    class_variability,
    cosine,
    deletion,
    gini,
    infidelity,
    insertion,
    rank_correlation,
    sensitivity,
    ssim,
    top_overlap,
)
from mia_audit.explanation_metrics.study import Probe, at_inputs, below, to_maps

MAPS = arrays(float, (3, 6, 8), elements=st.floats(-4, 4, width=16))
QUICK = settings(deadline=None, max_examples=40)


@QUICK
@given(MAPS, MAPS)
def test_ssim_is_scikit_images_of_maps_scaled_to_their_largest_value(first, second):
    def scaled(values):
        return values / (np.abs(values).max() or 1.0)

    reach = 1.0 if min(first.min(), second.min()) >= 0 else 2.0
    expected = [
        structural_similarity(scaled(one), scaled(other), win_size=5, data_range=reach)
        for one, other in zip(first, second, strict=True)
    ]
    assert ssim(first, second) == pytest.approx(expected, abs=1e-9)


def test_ssims_window_is_the_default_where_it_fits():
    first, second = np.random.default_rng(0).random((2, 2, 9, 12))
    expected = [
        structural_similarity(one / one.max(), other / other.max(), data_range=1.0)
        for one, other in zip(first, second, strict=True)
    ]
    assert ssim(first, second) == pytest.approx(expected)
    with pytest.raises(ValueError, match="at least 3 × 3, got 2 × 9"):
        ssim(first[:, :2, :9], second[:, :2, :9])


@QUICK
@given(MAPS, MAPS)
def test_rank_correlation_is_spearmans(first, second):
    for row, found in enumerate(rank_correlation(first, second)):
        if min(np.ptp(first[row]), np.ptp(second[row])) == 0:
            assert np.isnan(found)
        else:
            assert found == pytest.approx(spearmanr(first[row].ravel(), second[row].ravel()).statistic)


@QUICK
@given(MAPS, MAPS, st.sampled_from([0.02, 0.1, 0.5, 1.0]))
def test_the_tops_are_sets(first, second, share):
    count = max(1, round(share * 48))
    for row, found in enumerate(top_overlap(first, second, share)):
        tops = []
        for values in (first[row].ravel(), second[row].ravel()):
            ranked = sorted(range(48), key=lambda i, values=values: (-abs(values[i]), i))[:count]
            tops.append({i for i in ranked if values[i]})
        longer = max(map(len, tops))
        assert np.isnan(found) if not longer else found == len(tops[0] & tops[1]) / longer


@pytest.mark.parametrize("shape", [(4, 30), (4, 5, 6)])
def test_a_map_is_most_like_itself_whatever_its_scale(shape):
    random = np.random.default_rng(1)
    maps, other = random.normal(size=(2, *shape))
    for compare in (rank_correlation, cosine, lambda a, b: top_overlap(a, b, 0.2)):
        assert compare(maps, maps * 7.5) == pytest.approx(np.ones(4))
        assert (compare(maps, other) < 0.9).all()
        assert compare(maps, other) == pytest.approx(compare(other, maps))
    if len(shape) == 3:
        assert ssim(maps, maps * 7.5) == pytest.approx(np.ones(4))


def test_a_map_that_says_nothing_is_like_no_other():
    maps = np.stack([np.zeros((5, 5)), np.ones((5, 5))])
    assert np.isnan(cosine(maps, maps[::-1])).all()
    assert np.isnan(top_overlap(maps[:1], maps[:1], 0.1)).all()
    assert cosine(maps[1:], maps[1:]) == pytest.approx([1.0])
    assert ssim(maps[:1], maps[:1]) == pytest.approx([1.0])


def test_unrelated_maps_overlap_by_the_share():
    first, second = np.random.default_rng(2).normal(size=(2, 400, 100))
    assert top_overlap(first, second, 0.1).mean() == pytest.approx(0.1, abs=0.02)


@settings(deadline=None, max_examples=40)
@given(arrays(float, (2, 7), elements=st.floats(-4, 4, width=16)))
def test_gini_is_half_the_relative_mean_difference(maps):
    for row, found in zip(np.abs(maps), gini(maps), strict=True):
        if row.sum() == 0:
            assert np.isnan(found)
        else:
            assert found == pytest.approx(np.abs(row[:, None] - row).mean() / (2 * row.mean()))


def test_gini_runs_from_even_to_one_coordinate():
    assert gini(np.stack([np.full((4, 5), -2.0), np.eye(1, 20, 3).reshape(4, 5)])) == pytest.approx([0, 1 - 1 / 20])


def test_variability_is_the_mean_over_pairs_of_a_class():
    random = np.random.default_rng(0)
    maps, labels = random.normal(size=(9, 3, 4)), np.array([0, 1, 0, 2, 1, 0, 1, 1, 0])
    maps[4] = 0
    found = class_variability(maps, labels)
    flat = maps.reshape(9, -1)
    for row in range(9):
        others = [i for i in range(9) if i not in (row, 4) and labels[i] == labels[row]]
        if row in (3, 4):
            assert np.isnan(found[row]), "the only one of its class, or without a map"
            continue
        cosines = [flat[row] @ flat[i] / np.linalg.norm(flat[row]) / np.linalg.norm(flat[i]) for i in others]
        assert found[row] == pytest.approx(1 - np.mean(cosines))
    same = class_variability(np.repeat(maps[:1], 3, axis=0) * np.array([1, 2, 3])[:, None, None], np.zeros(3))
    assert same == pytest.approx(np.zeros(3), abs=1e-12)


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


def test_a_layers_map_is_laid_over_the_record_and_keeps_its_sum_over_channels():
    layer = torch.arange(8.0).reshape(1, 2, 2, 2)
    laid = at_inputs(layer, (3, 4, 4))
    assert laid.shape == (1, 3, 4, 4)
    summed = torch.nn.functional.interpolate(layer.sum(dim=1, keepdim=True), size=(4, 4), mode="bilinear")
    assert to_maps(laid)[0] == pytest.approx(summed[0, 0].numpy())


@pytest.mark.parametrize("shape", [(3, 4, 4), (7,)])
def test_attributions_of_inputs_stay_as_they_are(shape):
    attributions = torch.randn(2, *shape)
    assert at_inputs(attributions, shape) is attributions
    expected = attributions.sum(dim=1) if len(shape) == 3 else attributions
    assert to_maps(attributions) == pytest.approx(expected.numpy(), abs=1e-6)


def test_several_rows_of_a_table_are_summed():
    rows = torch.randn(2, 3, 7)
    assert at_inputs(rows, (7,)).equal(rows.sum(dim=1))


def test_tokens_have_no_place_in_an_image():
    with pytest.raises(ValueError, match=r"attributions of shape \[5, 8\] for inputs of shape \[1, 4, 4\]"):
        at_inputs(torch.zeros(2, 5, 8), (1, 4, 4))
