import dataclasses
import warnings
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from mia_audit.proving.observation import observe, scratch_folder


class Named(NamedTuple):
    values: np.ndarray
    source: list[str]


@dataclasses.dataclass
class Answer:
    total: Any
    label: str = "sum"


class Plain:
    def __init__(self, total):
        self.total = total


def test_numbers_of_all_outputs_stand_in_one_vector():
    seen = observe(lambda: {"b": torch.ones(2), "a": [1, 2.5], "c": (np.zeros((1, 2)), True)})
    np.testing.assert_array_equal(seen.numbers, [1, 2.5, 1, 1, 0, 0, 1])
    assert "output.b has the shape [2]" in seen.facts
    assert observe(lambda: Named(np.ones(1), ["scratch"])).facts != observe(lambda: Named(np.ones(1), ["reused"])).facts


@pytest.mark.parametrize(
    ("value", "numbers"),
    [
        (Decimal("0.25"), [0.25]),
        (Fraction(1, 4), [0.25]),
        (0.5 + 2j, [0.5, 2]),
        (torch.tensor([0.5 + 2j]), [0.5, 2]),
        (2**70, [2.0**70]),
        ([2**70, -1], [2.0**70, -1]),
        ([Decimal(1), 2.5, True], [1, 2.5, 1]),
        (np.array([Fraction(1, 2), "text", 3], dtype=object), [0.5, 3]),
        (Answer(Decimal("0.25")), [0.25]),
        (Answer([1.5, Answer(2)]), [1.5, 2]),
        (Plain(0.25), [0.25]),
        ([10**400, -(10**400), Fraction(10**400), Decimal("1e400")], [1e300, -1e300, 1e300, 1e300]),
        ([Decimal("sNaN"), Decimal("NaN")], [0, 0]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_numbers_of_every_type_are_numbers(value, numbers):
    seen = observe(lambda: value)
    np.testing.assert_array_equal(seen.numbers, numbers)
    assert not [fact for fact in seen.facts if "raises" in fact]


def test_what_is_no_number_is_a_fact():
    seen = observe(lambda: [np.array([np.nan, np.inf, 1.0]), "text", None])
    assert {"output[0] has 1 NaN", "output[0] has 1 infinite numbers", "output[1] is 'text'"} <= seen.facts
    np.testing.assert_array_equal(seen.numbers, [0, 1e300, 1])


def test_exceptions_warnings_and_files_are_seen():
    def one():
        warnings.warn("odd", UserWarning, stacklevel=1)
        Path("left.txt").write_text("four")
        Path("folder").mkdir()
        raise ValueError("too large\nin many words")

    with scratch_folder():
        seen = observe(one)
        again = observe(lambda: 1)
    assert {
        "raises ValueError: too large",
        "warns UserWarning: odd",
        "file left.txt of 4 bytes",
        "folder folder",
    } == seen.facts
    assert not [fact for fact in again.facts if "file" in fact], "what a run leaves is taken away"


def test_a_warning_is_seen_every_time_but_not_one_about_interfaces():
    def one():
        warnings.warn("again", RuntimeWarning, stacklevel=1)
        warnings.warn("old", DeprecationWarning, stacklevel=1)

    for _ in range(2):
        assert [fact for fact in observe(one).facts if "warns" in fact] == ["warns RuntimeWarning: again"]
