"""Observe every step of a torch training run: the component of each released update along the gradient of each canary.

Three lines in a training script do it (docs/how-to/canaries.md): `observe_canaries`, `attach` to the optimizer, and `write`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from mia_audit.canaries.draw import read_asked
from mia_audit.sanitise import csv
from mia_audit.storage import write_text

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Loss = Callable[[Tensor, Tensor], Tensor]
Convert = Callable[[np.ndarray], Tensor]

CELLS = 1 << 24
"""Largest number of gradient entries of canaries in memory at once."""


def observe_canaries(
    folder: str | Path, model: nn.Module, loss: Loss, inputs: Convert | None = None, every_step: bool = True
) -> Observer:
    """Return an observer of the canaries in `folder`/ask, or in `folder` itself if it has no such subfolder.

    `loss` maps logits [B, C] and labels [B] to the mean loss, as in training. `inputs` converts stored records to the
    model's inputs; by default they are only cast to float32.
    """
    asked = read_asked(Path(folder))
    convert = inputs or (lambda records: torch.as_tensor(np.array(records, dtype=np.float32)))
    return Observer(
        model, loss, convert(np.asarray(asked.data)), torch.as_tensor(asked.labels.astype(np.int64)), every_step
    )


class Observer:
    """Sums −⟨g, Δ⟩/‖g‖ over steps: g is a canary's gradient before a step, Δ the step's update (Nasr et al. 2023, section 5).

    With `every_step` off, only the first and the last model are compared: the adversary sees no model in between (Cebere et
    al. 2024). The scores use only the canaries and the parameters, never the coins, so the adversary needs to know only the
    canaries and the model at every step (or the first and the last one).
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        inputs: Float[Tensor, "m ..."],
        labels: Int[Tensor, " m"],
        every_step: bool = True,
    ) -> None:
        self._model, self._loss, self._inputs, self._labels = model, loss, inputs, labels
        self._every_step = every_step
        self._before = self._parameters()
        self._scores = torch.zeros(len(labels), dtype=torch.float64)
        self.steps = 0
        """Number of observed steps."""

    def attach(self, optimizer: Any) -> None:
        """Observe every step of an optimizer, or of the inner optimizer if Opacus has wrapped it."""
        inner = getattr(optimizer, "original_optimizer", optimizer)
        inner.register_step_post_hook(lambda *_: self.step())

    def step(self) -> None:
        """Record a step that has just changed the parameters."""
        self.steps += 1
        if self._every_step:
            self._observe()

    def scores(self) -> np.ndarray:
        """Return the scores so far [m]; higher for members."""
        if not self._every_step:
            self._scores.zero_()
            self._observe(keep=True)
        return np.asarray(self._scores.numpy().copy())

    def write(self, path: str | Path) -> None:
        """Write the scores for `mia-audit canaries score --scores`: columns canary and score."""
        scores = self.scores()
        write_text(Path(path), csv(pl.DataFrame({"canary": np.arange(len(scores)), "score": scores})))

    def _parameters(self) -> dict[str, Tensor]:
        named = self._model.named_parameters()
        return {name.removeprefix("_module."): value.detach().clone() for name, value in named if value.requires_grad}

    def _observe(self, keep: bool = False) -> None:
        after = self._parameters()
        update = {name: after[name] - before for name, before in self._before.items()}
        size = sum(value.numel() for value in update.values())
        chunk = max(1, CELLS // max(size, 1))
        model = getattr(
            self._model, "_module", self._model
        )  # Opacus wraps the model, and its hooks compute per-record gradients
        hooked, was_training = _without_hooks(model), model.training
        model.eval()
        buffers = {name: value.detach() for name, value in model.named_buffers()}

        def loss(parameters: dict[str, Tensor], record: Tensor, label: Tensor) -> Tensor:
            return self._loss(functional_call(model, (parameters, buffers), (record[None],)), label[None])

        try:
            for start in range(0, len(self._labels), chunk):
                rows = slice(start, start + chunk)
                device = next(iter(update.values())).device
                records, labels = self._inputs[rows].to(device), self._labels[rows].to(device)
                gradients = vmap(grad(loss), in_dims=(None, 0, 0))(self._before, records, labels)
                flat = [(gradients[name].flatten(1), update[name].flatten()) for name in update]
                dots = sum((gradient @ change for gradient, change in flat), torch.zeros(len(labels), device=device))
                squares = sum(
                    (gradient.square().sum(dim=1) for gradient, _ in flat), torch.zeros(len(labels), device=device)
                )
                self._scores[rows] -= (dots / squares.sqrt().clamp_min(1e-12)).double().cpu()
        finally:
            model.train(was_training)
            for hooks, before in hooked:
                hooks.update(before)
        if not keep:
            self._before = after


def _without_hooks(model: nn.Module) -> list[tuple[Any, Any]]:
    """Remove and return the hooks of all modules, which a library of per-record gradients may have added."""
    taken = []
    for module in model.modules():
        for hooks in (
            module._forward_hooks,
            module._backward_hooks,
            module._forward_pre_hooks,
            module._backward_pre_hooks,
        ):
            if hooks:
                taken.append((hooks, dict(hooks)))
                hooks.clear()
    return taken
