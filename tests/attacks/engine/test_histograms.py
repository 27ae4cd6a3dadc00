"""Grids over signals: where values lie on them, and how many models put a record where."""

import numpy as np
import pytest

from mia_audit.attacks.engine.types import Grid, chunked, grid_points, smooth
from mia_audit.signals.name import Columns


@pytest.mark.parametrize("signals", [1, 2])
def test_values_lie_between_the_points_around_them(signals):
    random = np.random.default_rng(0)
    values = [random.normal(size=(40, 5)) for _ in range(signals)]
    grid = Grid([Columns(one) for one in values])
    points = [grid_points(one.T.ravel(), bins) for one, bins in zip(values, grid.shape, strict=True)]
    flat = np.stack([axis.ravel() for axis in np.meshgrid(*points, indexing="ij")], axis=-1)
    for model in range(5):
        weights = grid.weights(model)
        np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)
        assert (weights >= 0).all()
        found = (weights[:, :, None] * flat[grid.place[model][:, None] + grid.offsets]).sum(axis=1)
        expected = np.stack([np.clip(one[:, model], at[0], at[-1]) for one, at in zip(values, points, strict=True)], 1)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_values_are_left_as_they_are():
    values = np.asfortranarray(np.random.default_rng(0).normal(size=(30, 4)))
    before = values.copy()
    Grid([Columns(values)])
    np.testing.assert_array_equal(values, before)


def test_counts_are_of_the_models_asked_for_on_either_side():
    random = np.random.default_rng(1)
    values, member = random.normal(size=(30, 6)), random.random((30, 6)) < 0.5
    grid = Grid([Columns(values)])
    counts = grid.counts(member.T, [0, 2, 3])
    np.testing.assert_allclose(counts[:, : grid.size].sum(axis=1), (~member[:, [0, 2, 3]]).sum(axis=1), atol=1e-5)
    np.testing.assert_allclose(counts[:, grid.size :].sum(axis=1), member[:, [0, 2, 3]].sum(axis=1), atol=1e-5)
    some = random.random((6, 30)) < 0.5
    np.testing.assert_allclose(grid.counts(member.T, range(6), some).sum(axis=1), some.sum(axis=0), atol=1e-5)


def test_smoothing_keeps_what_there_is():
    histograms = np.random.default_rng(0).random((3, 2, 7, 5))
    np.testing.assert_allclose(smooth(histograms, (2, 3)).sum(axis=(2, 3)), histograms.sum(axis=(2, 3)))


def test_a_signal_without_spread_has_a_grid():
    assert np.isfinite(Grid([Columns(np.ones((5, 4)))]).weights(0)).all()


@pytest.mark.parametrize(("least", "equal"), [(2, True), (30, False)])
def test_chunks_hold_every_place_once(least, equal):
    keys = np.random.default_rng(0).integers(0, 9, 100).astype(np.int16)
    alike, chunks = chunked(keys, least, 8)
    places = list(chunks)
    assert alike == equal and max(map(len, places)) <= 8
    assert sorted(np.concatenate(places).tolist()) == list(range(100))
    assert not equal or all(len(set(keys[chunk])) == 1 for chunk in places)
