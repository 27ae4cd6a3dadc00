"""A small clustered table, and terms that leave room for several queries."""

from collections.abc import Callable
from typing import Any

import pytest

from mia_audit.explain.private_local.terms import ExplanationTerms


@pytest.fixture(scope="session")
def table(clustered: Callable[..., Any]) -> Any:
    return clustered(600, 4)


@pytest.fixture
def terms() -> ExplanationTerms:
    """Terms that leave room for several queries from scratch."""
    return ExplanationTerms(epsilon=0.5, delta=1e-6, budget=3.0, steps=40)
