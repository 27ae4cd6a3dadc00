"""What models answer, checked and turned into logits."""

import numpy as np
import pytest

from mia_audit.errors import UserError
from mia_audit.learners.answers import UNKNOWN_VOTES, check_order, logits_of, smoothed
from mia_audit.training.task import Records


def records(count: int = 3) -> Records:
    return Records(np.zeros((count, 2)), np.zeros(count, dtype=int), {"classes": ["a", "b"]}, np.arange(count) + 10)


def test_probabilities_are_kept_from_0_and_1() -> None:
    certain = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    np.testing.assert_allclose(smoothed(certain, 4), [[0.9, 0.1], [0.1, 0.9], [0.5, 0.5]])
    logits = logits_of(certain, "probabilities", records(), UNKNOWN_VOTES, "mine")
    assert np.isfinite(logits).all() and logits[0, 1] == pytest.approx(np.log(5e-10))
    fine = np.array([[1 - 1e-6, 1e-6]] * 3)
    found = logits_of(fine, "probabilities", records(), UNKNOWN_VOTES, "mine")
    np.testing.assert_allclose(found[:, 1], np.log(1e-6), rtol=1e-3)


def test_logits_are_left_as_they_are() -> None:
    given = np.array([[1, -5], [0, 3], [2, 2]], dtype=np.float32)
    assert logits_of(given, "logits", records(), 0, "mine") is given


def test_labels_are_one_vote() -> None:
    logits = logits_of([1, 0, 1], "labels", records(), 0, "mine")
    np.testing.assert_allclose(np.exp(logits), [[0.25, 0.75], [0.75, 0.25], [0.25, 0.75]])


@pytest.mark.parametrize(
    ("answer", "outputs", "message"),
    [
        (np.zeros((2, 2)), "logits", r"mine: outputs of shape \[2, 2\]; expected \[3, 2\], one row"),
        (np.zeros((3, 2), dtype=int), "logits", "outputs of type int64, but logits must be floating-point"),
        (np.array([[0.0, 1], [0, np.inf], [1, 1]]), "logits", r"record 11 is not finite, \(0, inf\)"),
        (np.array([[0.5, 0.5], [0.9, 0.4], [1, 0]]), "probabilities", "record 11, .* is not one probability"),
        (np.array([[0.5, 0.5], [1.2, -0.2], [1, 0]]), "probabilities", "record 11, .* is not one probability"),
        ([0, 2, 1], "labels", "the label of record 11 is 2, but classes are numbered from 0 to 1"),
        ([0, 1], "labels", r"labels of shape \[2\], expected \[3\]"),
        (["a", "b", "c"], "labels", "mine: a list of text; expected numbers"),
        ([[0.5], [1, 2], [3]], "logits", "is not an array of numbers"),
    ],
)
def test_other_answers_are_one_line(answer: object, outputs: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        logits_of(answer, outputs, records(), 10, "mine")  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_records_are_asked_again_in_another_order() -> None:
    random = np.random.default_rng(0)
    many = records(40)
    logits = random.normal(size=(40, 2))
    check_order(lambda part: logits[part.numbers - 10] + 1e-4, many, logits, "mine")
    check_order(lambda part: logits[:0], many[:0], logits[:0], "mine")
    with pytest.raises(UserError, match=r"mine: the output for record .* in the order of the records"):
        check_order(lambda part: logits[np.sort(part.numbers - 10)], many, logits, "mine")
