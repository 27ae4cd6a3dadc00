import pytest
import torch

from mia_audit.explanation_metrics.study import at_inputs, to_maps


def test_a_layers_map_is_laid_over_the_record_and_keeps_its_sum_over_channels():
    layer = torch.arange(8.0).reshape(1, 2, 2, 2)
    laid = at_inputs(layer, (3, 4, 4))
    assert laid.shape == (1, 3, 4, 4)
    summed = torch.nn.functional.interpolate(layer.sum(dim=1, keepdim=True), size=(4, 4), mode="bilinear")
    assert to_maps(laid)[0] == pytest.approx(summed[0, 0].numpy())


@pytest.mark.parametrize("shape", [(3, 4, 4), (7,)])
def test_attributions_of_inputs_stay_as_they_are(shape):
    attributions = torch.randn(2, *shape)
    assert at_inputs(attributions, shape) is attributions
    expected = attributions.sum(dim=1) if len(shape) == 3 else attributions
    assert to_maps(attributions) == pytest.approx(expected.numpy(), abs=1e-6)


def test_several_rows_of_a_table_are_summed():
    rows = torch.randn(2, 3, 7)
    assert at_inputs(rows, (7,)).equal(rows.sum(dim=1))


def test_tokens_have_no_place_in_an_image():
    with pytest.raises(ValueError, match=r"attributions of shape \[5, 8\] for inputs of shape \[1, 4, 4\]"):
        at_inputs(torch.zeros(2, 5, 8), (1, 4, 4))
