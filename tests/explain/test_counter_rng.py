"""Streams of random numbers: the published generator, addressed by position."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mia_audit.explain.counter_rng import normals, stream_keys, uniforms, words

WORD = (1 << 64) - 1


def splitmix64(state: int, count: int) -> list[int]:
    """The generator as its authors wrote it, in whole numbers of any length."""
    found = []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & WORD
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & WORD
        found.append(mixed ^ (mixed >> 31))
    return found


def test_the_published_words_of_seed_0() -> None:
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert splitmix64(0, 3) == known
    assert [word % (1 << 64) for word in words(torch.zeros(1, dtype=torch.int64), 0, 3)[0].tolist()] == known


@given(key=st.integers(0, 2**63 - 1), first=st.integers(0, 40), count=st.integers(1, 20))
def test_every_word_is_where_it_would_come(key: int, first: int, count: int) -> None:
    found = words(torch.tensor([key]), first, count)[0].tolist()
    assert [word % (1 << 64) for word in found] == splitmix64(key, first + count)[first:]


@given(batch=st.integers(1, 9), count=st.integers(1, 70))
def test_a_record_draws_the_same_in_any_company(batch: int, count: int) -> None:
    together = stream_keys(3, "test", range(batch), "cpu")
    for record in range(batch):
        alone = stream_keys(3, "test", [record], "cpu")
        assert torch.equal(normals(together, 2, count)[record], normals(alone, 2, count)[0])
        assert torch.equal(uniforms(together, 2, count)[record], uniforms(alone, 2, count)[0])


def test_they_are_normal_and_uniform_and_know_nothing_of_each_other() -> None:
    keys = stream_keys(0, "test", range(50), "cpu")
    normal, uniform = normals(keys, 0, 4001).numpy(), uniforms(keys, 0, 4001).numpy()
    assert stats.kstest(normal.ravel(), "norm").pvalue > 0.01
    assert stats.kstest(uniform.ravel(), "uniform").pvalue > 0.01
    assert np.abs(normal).max() < 5.8 and uniform.min() >= 0 and uniform.max() < 1
    between = np.corrcoef(normal)[np.triu_indices(50, 1)]
    assert np.abs(between).max() < 5 / 4001**0.5
    following = np.corrcoef(normal[:, :-1].ravel(), normal[:, 1:].ravel())[0, 1]
    assert following == pytest.approx(0, abs=0.01)
