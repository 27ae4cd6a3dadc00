"""Squared norms and weighted sums of rows of any type, in float64 and bounded memory."""

import torch
from jaxtyping import Float
from torch import Tensor

DOUBLED = {"cpu": 2**18, "cuda": 2**26}
"""Number of elements that are converted to float64 at once."""

RUN = 512
"""Number of elements whose squares are summed in float32 before float64: the relative error of a norm is then at most 5e-7."""


def squared_norms(rows: Float[Tensor, "b n"], scale: Float[Tensor, " s"] | None = None) -> Float[Tensor, " b"]:
    """Return the squared norm of every row. Its elements are multiplied by `scale` (one number, or n), if given."""
    if scale is not None:
        return squared_norms(rows) * scale.double().square() if len(scale) == 1 else squared_norms(rows * scale)
    runs = rows.shape[1] // RUN * RUN
    parts = [rows[:, runs:]] + ([rows[:, :runs].reshape(len(rows), -1, RUN)] if runs else [])
    norms = [torch.linalg.vector_norm(part, dim=-1).double().reshape(len(rows), -1) for part in parts]
    return torch.cat(norms, dim=1).square().sum(dim=1)


def at_once(device: torch.device, rows: int) -> int:
    """Return how many elements of each row are converted at once."""
    return max(1, DOUBLED.get(device.type, DOUBLED["cpu"]) // max(1, rows))


def add_weighted(rows: Float[Tensor, "b n"], weights: Float[Tensor, " b"], total: Float[Tensor, " n"]) -> None:
    """Add Σ weight · row to a float64 total."""
    width = at_once(rows.device, len(rows))
    for start in range(0, rows.shape[1], width):
        part = slice(start, start + width)
        total[part].addmv_(rows[:, part].double().t(), weights)
