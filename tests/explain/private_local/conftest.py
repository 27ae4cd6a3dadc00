"""A small clustered table, a black box that bends, and terms that leave room for several queries."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from mia_audit.explain.private_local import ExplanationSet, Terms


@dataclass(frozen=True)
class Table:
    """Records [m, n] in a few clusters, and a black box on them."""

    records: np.ndarray

    def black_box(self, records: np.ndarray) -> np.ndarray:
        slope = np.linspace(-1, 1, records.shape[1])
        return np.tanh(records @ slope + 0.5 * np.sin(2 * records[:, 0]))[:, None]

    @property
    def explained(self) -> ExplanationSet:
        return ExplanationSet.of(self.records, self.black_box(self.records))


def _clustered(records: int, features: int, seed: int = 0, clusters: int = 4, spread: float = 0.3) -> Table:
    random = np.random.default_rng(seed)
    centres = 1.5 * random.standard_normal((clusters, features))
    noise = spread * random.standard_normal((records, features))
    return Table((centres[random.integers(clusters, size=records)] + noise).astype(np.float32))


@pytest.fixture(scope="session")
def clustered() -> Callable[..., Table]:
    """Make such a table: records, features, seed, clusters and their spread."""
    return _clustered


@pytest.fixture(scope="session")
def table() -> Table:
    return _clustered(600, 4)


@pytest.fixture
def terms() -> Terms:
    """Terms that leave room for several queries from scratch."""
    return Terms(epsilon=0.5, delta=1e-6, budget=3.0, steps=40)
