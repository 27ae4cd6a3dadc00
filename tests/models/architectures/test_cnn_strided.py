"""The small strided network: the paper's number of parameters, sizes of images, and what does not fit."""

import pytest
import torch

from mia_audit.errors import UserError
from mia_audit.models import build, describe


def test_it_has_the_number_of_parameters_that_the_paper_prints() -> None:
    assert describe("cnn-strided", "cnn-strided", {}, (1, 28, 28), 10)["parameters"] == 26_010


@pytest.mark.parametrize("shape", [(1, 14, 14), (3, 15, 32), (1, 29, 17)])
def test_images_of_any_size_from_14_pixels_are_taken(shape: tuple[int, ...]) -> None:
    assert build("cnn-strided", {}, shape, 4, seed=0)(torch.zeros(2, *shape)).shape == (2, 4)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((1, 8, 8), "an image of 8 × 8 pixels is too small; expected at least 14"), ((30,), "takes images, not a table")],
)
def test_what_does_not_fit_is_one_line(shape: tuple[int, ...], expected: str) -> None:
    with pytest.raises(UserError, match=expected) as raised:
        describe("cnn-strided", "cnn-strided", {}, shape, 3)
    assert "\n" not in str(raised.value)
