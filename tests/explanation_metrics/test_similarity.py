import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import spearmanr
from skimage.metrics import structural_similarity

from mia_audit.explanation_metrics.methods import cosine, rank_correlation, ssim, top_overlap

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
