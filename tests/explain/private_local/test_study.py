import math

import numpy as np
import polars as pl
import pytest

from mia_audit.explain.private_local.study import Remembering, Study
from mia_audit.explain.private_section import PrivateExplanations
from mia_audit.privacy.gaussian import epsilon_of_gdp

SECTION = PrivateExplanations(queries=60, epsilons=(0.1, 10.0), epsilon=1.0, steps=40)


@pytest.fixture(scope="module")
def answers(clustered) -> pl.DataFrame:
    table = clustered(3000, 4, clusters=6)
    study = Study(table.explained, SECTION, (0, "study"), reference=-table.explained.values)
    rows = [{key: value for key, value in row.items() if key != "explanation"} for row in study.rows()]
    return pl.DataFrame(rows, infer_schema_length=None)


def of(answers, experiment, protocol="non-adaptive", **equal):
    return answers.filter(pl.col("experiment") == experiment, pl.col("protocol") == protocol, **equal)


def test_the_published_noise_loses_more_at_the_same_claim(answers):
    for epsilon in SECTION.epsilons:
        exact, published = (
            of(answers, "epsilon", epsilon=epsilon, as_published=name)["excess_loss"].mean() for name in ("", "sigma")
        )
        assert exact < published
    losses = [of(answers, "epsilon", epsilon=epsilon, as_published="")["excess_loss"].mean() for epsilon in (10.0, 0.1)]
    assert losses[0] < losses[1]
    assert (answers["excess_loss"] > -1e-9).all()


def test_on_a_clustered_table_adapting_spends_less_at_no_greater_loss(answers):
    spent = {
        name: of(answers, "protocols", name)["mu_squared_spent"].max()
        for name in ("non-adaptive", "adaptive", "enhanced")
    }
    epsilons = {name: epsilon_of_gdp(math.sqrt(cost), SECTION.delta) for name, cost in spent.items()}
    assert epsilons["enhanced"] <= epsilons["adaptive"] < 0.6 * epsilons["non-adaptive"]
    losses = {name: of(answers, "protocols", name)["excess_loss"].mean() for name in ("non-adaptive", "adaptive")}
    assert losses["adaptive"] <= 1.1 * losses["non-adaptive"]


def test_the_history_answers_other_queries_for_free(answers):
    free = of(answers, "protocols", "non-interactive")
    asked = set(of(answers, "protocols")["record"])
    assert len(free) == 30
    assert set(free["source"]) == {"history"}
    assert free["mu_squared"].sum() == 0
    assert not asked & set(free["record"])


def test_dense_queries_cost_less_than_sparse_ones(answers):
    dense, sparse = (of(answers, name, "adaptive")["mu_squared_spent"].max() for name in ("dense", "sparse"))
    assert dense < sparse


def test_the_distance_to_another_model_is_larger(answers):
    assert of(answers, "protocols")["distance"].mean() > 0.5  # the reference says the opposite of the black box


def test_what_is_remembered_is_what_was_computed(table):
    explained = table.explained
    kept = Remembering(explained.records, explained.values, explained.scale)
    points, values, classes = (
        explained.points(table.records[[3, 7, 3]]),
        explained.values[[3, 7, 3], 0],
        np.zeros(3, int),
    )
    study = Study(explained, SECTION, (0,))
    fresh = list(explained.problems(points, values, classes, study.terms))
    for _ in range(2):
        for one, other in zip(fresh, kept.problems(points, values, classes, study.terms), strict=True):
            np.testing.assert_allclose(one.gram, other.gram)
    assert len(kept.kept) == 2
