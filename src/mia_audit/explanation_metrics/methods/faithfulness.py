"""Faithfulness of explanations to the model: each measure evaluates the model at changed records.

Removed coordinates are set to 0 in the model's input space, the baseline of integrated gradients; all channels of an
image's pixel are removed together. Random changes are keyed by the record, the same for every model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mia_audit.explanation_metrics.catalogue import measure

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float
    from torch import Tensor

    from mia_audit.explanation_metrics.perturbation import Probe


@measure("infidelity", label="infidelity")
def infidelity(probe: Probe, perturbations: int, removed_share: float) -> Float[np.ndarray, " n"]:
    """Mean of (Iᵀa − (f(x) − f(x − I)))² over random removals (Yeh et al. 2019, definition 2.1), by captum; 0 is best.

    The perturbation I removes every coordinate with probability `removed_share`. For an explanation a in units of f,
    the sum of a over the removed coordinates replaces Iᵀa.
    """
    import torch

    parts = [_infidelity(probe, rows, perturbations, removed_share) for rows in probe.rows(perturbations)]
    return torch.cat(parts).double().cpu().numpy()


def _infidelity(probe: Probe, rows: list[int], times: int, share: float) -> Tensor:
    from captum.metrics import infidelity

    drawn = probe.draws("removal", rows, times)
    removed = (drawn[:, :1] if drawn.ndim == 4 else drawn) < share

    def removal(points: Tensor) -> tuple[Tensor, Tensor]:
        change = removed * points
        return (removed.expand_as(points).to(points) if probe.multiplied else change), points - change

    def quantity(points: Tensor) -> Tensor:
        classes = probe.classes[rows].repeat_interleave(len(points) // len(rows))
        return probe.value(points, classes).to(points)

    values: Tensor = infidelity(
        quantity, removal, probe.inputs[rows], probe.attributions[rows], n_perturb_samples=times
    )
    return values


@measure("sensitivity", label="sensitivity")
def sensitivity(probe: Probe, perturbations: int, radius: float) -> Float[np.ndarray, " n"]:
    """Largest ‖e(x + u) − e(x)‖₂ / ‖e(x)‖₂ over random u with ‖u‖∞ ≤ `radius` (Yeh et al. 2019), by captum; 0 is best.

    `radius` is in units of the model's input.
    """
    import torch

    parts = [_sensitivity(probe, rows, perturbations, radius) for rows in probe.rows(perturbations)]
    return torch.cat(parts).double().cpu().numpy()


def _sensitivity(probe: Probe, rows: list[int], times: int, radius: float) -> Tensor:
    from captum.metrics import sensitivity_max

    shifts = (2 * probe.draws("shift", rows, times) - 1) * radius

    def shifted(points: Tensor) -> Tensor:
        return points + shifts

    def explain(points: Tensor | tuple[Tensor]) -> tuple[Tensor]:
        if isinstance(points, tuple):  # captum passes a tuple for the records, but a tensor for the changed records
            (points,) = points
        return (probe.explain(points, [row for row in rows for _ in range(len(points) // len(rows))]),)

    values: Tensor = sensitivity_max(explain, probe.inputs[rows], shifted, n_perturb_samples=times)
    return values


@measure("deletion", label="deletion area", curve=True)
def deletion(probe: Probe, maps: Float[np.ndarray, "n ..."], curve_steps: int) -> Float[np.ndarray, "n steps"]:
    """The class's probability while the record's coordinates are removed, the most important first; a small area is good.

    The measure is that of Petsiuk et al. (2018). Importance is the map's value with its sign. Heights are at 0, 1, …,
    `curve_steps` equal shares of the coordinates.
    """
    return _curve(probe, maps, curve_steps, deleting=True)


@measure("insertion", label="insertion area", curve=True)
def insertion(probe: Probe, maps: Float[np.ndarray, "n ..."], curve_steps: int) -> Float[np.ndarray, "n steps"]:
    """The class's probability while coordinates are inserted into an empty record, the most important first; a large area is good.

    The measure is that of Petsiuk et al. (2018). In all other respects it is like `deletion`.
    """
    return _curve(probe, maps, curve_steps, deleting=False)


def _curve(probe: Probe, maps: Float[np.ndarray, "n ..."], steps: int, deleting: bool) -> Float[np.ndarray, "n steps"]:
    import numpy as np

    order = np.argsort(-maps.reshape(len(maps), -1), axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable").reshape(maps.shape)
    heights = [_height(probe, rank < round(step / steps * order.shape[1]), deleting) for step in range(steps + 1)]
    return np.stack(heights, axis=1)


def _height(probe: Probe, chosen: Bool[np.ndarray, "n ..."], deleting: bool) -> Float[np.ndarray, " n"]:
    import torch

    kept = torch.from_numpy(chosen ^ deleting).to(probe.inputs.device)
    if probe.inputs.ndim == 4:
        kept = kept[:, None]
    return probe.probability(probe.inputs * kept, probe.classes)
