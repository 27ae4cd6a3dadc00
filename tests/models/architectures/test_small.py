"""The small convolutional networks: the papers' layers and parameters, and images that are too small for them."""

import pytest
import torch
from torch import nn

from mia_audit.errors import UserError
from mia_audit.models.architecture import build, describe


def test_the_papers_layers_have_its_number_of_parameters() -> None:
    metadata = describe("cnn", "cnn", {}, (1, 28, 28), 10)
    assert metadata["parameters"] == 431_080
    layers = build("cnn", {}, (1, 28, 28), 10, seed=0)
    shapes = [tuple(layer.weight.shape) for layer in layers.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert shapes == [(20, 1, 5, 5), (50, 20, 5, 5), (500, 800), (10, 500)]


@pytest.mark.parametrize(
    ("parameters", "shape", "padding"),
    [({}, (1, 8, 8), 2), ({}, (3, 16, 16), 0), ({"kernel": 3}, (1, 8, 6), 1), ({"padding": 4}, (1, 8, 8), 4)],
)
def test_images_are_padded_only_where_they_must_be(
    parameters: dict[str, int], shape: tuple[int, ...], padding: int
) -> None:
    metadata = describe("cnn", "cnn", {"first": 3, "second": 4, "hidden": 5, **parameters}, shape, 3)
    assert metadata["arguments"]["padding"] == padding
    built = build("cnn", {"first": 3, "second": 4, "hidden": 5, **parameters}, shape, 3, seed=0)
    assert built(torch.zeros(2, *shape)).shape == (2, 3)


@pytest.mark.parametrize(
    ("parameters", "shape", "told"),
    [
        ({"padding": 0}, (1, 8, 8), "8 × 8 pixels is too small for two convolutions of 5 × 5 with padding 0"),
        ({"img_size": 2, "kernel": 7}, (1, 8, 8), "an image of 2 × 2 pixels is too small"),
        ({"hidden": 0}, (1, 8, 8), "parameters.hidden: expected a whole number of at least 1, not 0"),
        ({"padding": -1}, (1, 8, 8), "parameters.padding: expected a whole number of at least 0, not -1"),
        ({"first": 2.5}, (1, 8, 8), "parameters.first: expected a whole number"),
        ({"channels": 3}, (1, 8, 8), "model 'cnn' has no parameter 'channels': known: first, hidden"),
        ({}, (30,), "choose a table model such as 'mlp'"),
    ],
)
def test_what_does_not_fit_is_one_line(parameters: dict[str, object], shape: tuple[int, ...], told: str) -> None:
    with pytest.raises(UserError) as raised:
        describe("cnn", "cnn", parameters, shape, 3)  # type: ignore[arg-type]
    assert told in str(raised.value) and "\n" not in str(raised.value)


def test_it_has_the_number_of_parameters_that_the_paper_prints() -> None:
    assert describe("cnn-strided", "cnn-strided", {}, (1, 28, 28), 10)["parameters"] == 26_010


@pytest.mark.parametrize("shape", [(1, 14, 14), (3, 15, 32), (1, 29, 17)])
def test_images_of_any_size_from_14_pixels_are_taken(shape: tuple[int, ...]) -> None:
    assert build("cnn-strided", {}, shape, 4, seed=0)(torch.zeros(2, *shape)).shape == (2, 4)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((1, 8, 8), "an image of 8 × 8 pixels is too small; expected at least 14"), ((30,), "takes images, not a table")],
)
def test_what_does_not_fit_the_strided_one_is_one_line(shape: tuple[int, ...], expected: str) -> None:
    with pytest.raises(UserError, match=expected) as raised:
        describe("cnn-strided", "cnn-strided", {}, shape, 3)
    assert "\n" not in str(raised.value)
