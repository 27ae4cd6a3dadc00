import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from mia_audit.explain.private_local.records import ExplanationSet
from mia_audit.explain.private_local.study import Remembering, Study
from mia_audit.explain.private_local.terms import PrivateExplanations
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


def test_repetitions_differ_and_the_first_is_the_study_itself(clustered):
    explained = clustered(200, 3).explained
    section = PrivateExplanations(queries=6, epsilons=(1.0,), steps=5, repetitions=2)
    once = Study(explained, section.model_copy(update={"repetitions": 1}), (0,)).rows()
    twice = Study(explained, section, (0,)).rows()
    first, second = ([row for row in twice if row["repetition"] == number] for number in (0, 1))
    assert [row["mu_squared"] for row in first] == [row["mu_squared"] for row in once]
    assert all((one["explanation"] == other["explanation"]).all() for one, other in zip(first, once, strict=True))
    assert [row["record"] for row in first] != [row["record"] for row in second]
    assert "repetition" not in once[0]


def test_a_path_ends_at_the_answer_of_a_query_that_started_near_the_minimum(clustered):
    explained = clustered(3000, 4, clusters=6).explained
    section = SECTION.model_copy(update={"traced": 3, "epsilons": (1.0,), "queries": 30})
    rows = Study(explained, section, (0, "study")).rows()
    traced = [row for row in rows if row["path"] is not None]
    assert len(traced) == 3
    for row in traced:
        assert (row["protocol"], row["experiment"], row["source"]) == ("adaptive", "protocols", "warm-start")
        assert len(row["path"]) == row["steps"] + 1 and min(row["path"]) > -1e-9
        assert row["path"][-1] == pytest.approx(row["excess_loss"], abs=1e-6)


def test_disjoint_parts_answer_side_by_side_at_the_whole_budget(clustered):
    explained = clustered(600, 3).explained
    section = PrivateExplanations(queries=12, epsilons=(1.0,), steps=20, parts=3)
    rows = pl.DataFrame([row | {"explanation": None} for row in Study(explained, section, (0,)).rows()])
    parts = [of(rows, f"part {number}") for number in (1, 2, 3)]
    whole = of(rows, "protocols")
    assert [len(part) for part in parts] == [4, 4, 4]
    assert sorted(record for part in parts for record in part["record"]) == sorted(whole["record"])
    most = max(part["mu_squared_spent"].max() for part in parts)  # nobody is in two parts
    assert most == pytest.approx(whole["mu_squared_spent"].max() / 3)
    assert (
        pl.concat(parts)["excess_loss"].mean() > whole["excess_loss"].mean()
    )  # a third of the records, thrice the noise


def test_persons_are_in_one_part_each(clustered):
    table = clustered(60, 3)
    explained = ExplanationSet.from_arrays(table.records, table.explained.values, persons=np.repeat(np.arange(20), 3))
    section = PrivateExplanations(queries=6, epsilons=(1.0,), steps=3, parts=2)
    sizes = []
    with pytest.MonkeyPatch.context() as patch:
        among = ExplanationSet.among
        patch.setattr(ExplanationSet, "among", lambda self, member: sizes.append(member) or among(self, member))
        Study(explained, section, (0,)).rows()
    first, second = sizes
    assert (first ^ second).all()
    assert all(len(set(first[3 * person : 3 * person + 3])) == 1 for person in range(20))


def test_misclassification_is_that_of_the_nearest_other_records(clustered):
    table = clustered(300, 3)
    explained = table.explained
    labels = (explained.values[:, 0] > 0).astype(int)
    labels[:40] = 1 - labels[:40]
    section = PrivateExplanations(queries=5, epsilons=(1.0,), steps=3, nearest=10)
    rows = [row for row in Study(explained, section, (0,), labels=labels).rows() if row["misclassified"] is not None]
    assert len(rows) == 5 and {row["protocol"] for row in rows} == {"non-adaptive"}
    points = explained.points(explained.records)
    for row in rows:
        distances = np.linalg.norm(points - points[row["record"]], axis=1)
        distances[row["record"]] = np.inf
        near = np.argsort(distances)[:10]
        assert row["misclassified"] == pytest.approx((near < 40).mean())


def test_queries_lie_in_the_tightest_cluster_in_all_clusters_and_where_two_models_differ():
    random = np.random.default_rng(3)
    blob, spread = np.arange(600) % 15, np.linspace(0.5, 3, 15)
    records = 100 * np.eye(15)[blob] + spread[blob, None] * random.standard_normal((600, 15))
    right = np.where(blob > 7, 1.0, -1.0)
    wrong = np.where((blob == 4) | ((blob == 5) & (random.random(600) < 0.5)), -right, right)
    for fitted, other in ((wrong, right), (right, wrong)):
        explained = ExplanationSet.from_arrays(records, fitted)
        study = Study(explained, SECTION, (0, "study"), labels=(blob > 7).astype(np.int64), other=other[:, None])
        regions = study._regions(np.arange(60), random)
        assert {len(set(queries)) for queries in regions.values()} == {20}
        assert set(blob[regions["dense"]]) == {0}
        assert set(blob[regions["sparse"]]) == set(range(15))
        assert set(blob[regions["overfitted"]]) == {4}
    assert "overfitted" not in replace(study, other=None)._regions(np.arange(60), random)
