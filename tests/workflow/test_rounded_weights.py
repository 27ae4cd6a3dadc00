"""`compute.weights: bf16`: the same models, rounded; never beside models that are not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mia_audit.models.weights import read_weights

SETTING = Path("digits", "vit", "none-epsinf")


def weights(results: Path) -> list[dict[str, torch.Tensor]]:
    """Return the weights of the models without privacy."""
    paths = sorted((results / SETTING / "models").glob("shadow-*/weights.safetensors"))
    return [read_weights(path) for path in paths]


@pytest.mark.slow
def test_all_models_are_trained_again_and_end_as_those_before_rounded(
    finished: Any, copy_of_finished: Callable[[dict[str, Any]], Any], tiny: dict[str, Any]
) -> None:
    copy = copy_of_finished(tiny | {"compute": tiny["compute"] | {"weights": "bf16"}})
    assert (planned := copy.planned())["train"] == 4 and planned["signals"] == 2
    assert not {"pretrain", "architecture", "pool"} & set(planned)
    signals = f"results/tiny/{SETTING}/signals.parquet"
    assert (result := copy.run(signals)).returncode == 0, result.stdout
    before, after = weights(finished.results), weights(copy.results)
    assert len(after) == len(before) == 5
    for one, other in zip(before, after, strict=True):
        assert all(torch.equal(other[name], value.bfloat16()) for name, value in one.items())
    assert (copy.results / SETTING / "signals.parquet").read_bytes() != (
        finished.results / SETTING / "signals.parquet"
    ).read_bytes()
    copy.configure(tiny)
    assert copy.planned()["train"] == 2, "of the setting whose models are rounded"
