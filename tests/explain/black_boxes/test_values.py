import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.svm import LinearSVC
from torch import nn

from mia_audit.explain.black_boxes import black_boxes, of_estimator, of_labels, of_logits, of_probabilities
from mia_audit.explain.private_local.records import ExplanationSet
from mia_audit.explain.private_local.service import PrivateExplainer
from mia_audit.explain.private_local.terms import ExplanationTerms


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    records = random.standard_normal((120, 3))
    return records, (records[:, 0] + records[:, 1] > 0).astype(int) + (records[:, 2] > 1)


def test_two_classes_are_one_value_and_more_are_one_each():
    assert of_probabilities(np.array([[0.25, 0.75]])).tolist() == [[0.5]]
    assert of_probabilities(np.array([[0.5, 0.25, 0.25]])).tolist() == [[0.0, -0.5, -0.5]]
    assert of_labels(np.array([1, 0]), 2).tolist() == [[1.0], [-1.0]]


def test_estimators_with_and_without_probabilities(table):
    records, labels = table
    forest = RandomForestClassifier(5, random_state=0).fit(records, labels)
    np.testing.assert_array_equal(of_estimator(forest)(records), 2 * forest.predict_proba(records) - 1)
    margin = LinearSVC().fit(records, labels + 3)
    np.testing.assert_array_equal(of_estimator(margin)(records).argmax(1) + 3, margin.predict(records))


def test_an_estimator_is_a_black_box_that_can_be_explained(table):
    records, labels = table
    says = of_estimator(RandomForestClassifier(5, random_state=0).fit(records, labels > 0))
    service = PrivateExplainer(
        ExplanationSet.from_arrays(records, says(records)),
        ExplanationTerms(1.0, 1e-6, 5.0, 10),
        "adaptive",
        says,
        seed=0,
    )
    assert service.answer(records[:2]).explanations.shape == (2, 3)


def test_a_model_of_the_workflow(table):
    torch.manual_seed(0)
    model = nn.Linear(3, 4)
    values = of_logits(model(torch.from_numpy(table[0]).float()).detach().numpy())
    assert values.shape == (120, 4)
    assert np.abs(values).max() <= 1
    best = model(torch.from_numpy(table[0]).float()).argmax(1).numpy()
    np.testing.assert_array_equal(values.argmax(1), best)


def test_registered_ones_say_what_they_are(table):
    records, labels = table
    said = {name: black_boxes[name](records, labels, 3, 0) for name in black_boxes}
    votes = {"forest", "forest-500", "forest-overfitted"}
    assert set(said) == votes | {"labels", "forest-labels", "forest-overfitted-labels"}
    assert (said["labels"].argmax(1) == labels).all()
    deep, shallow = (np.mean(said[name].max(1)) for name in ("forest-overfitted", "forest"))
    assert deep >= shallow
    np.testing.assert_array_equal(said["forest"], black_boxes["forest"](records, labels, 3, 0))
    for name in ("forest", "forest-overfitted"):
        np.testing.assert_array_equal(said[f"{name}-labels"], of_labels(said[name].argmax(1), 3))
    two, binary = (
        black_boxes["forest"](records, labels > 0, 2, 0),
        black_boxes["forest-labels"](records, labels > 0, 2, 0),
    )
    assert two.shape == (120, 1) and 0 < np.abs(two).min() < 1  # no vote is a tie
    np.testing.assert_array_equal(binary, np.sign(two))
