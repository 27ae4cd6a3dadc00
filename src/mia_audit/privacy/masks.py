"""Masks of noise: one factor per channel, by its importance, spread over all trainable parameters."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from safetensors.torch import save_file
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.models.inputs import Inputs
from mia_audit.models.passes import Channels, channel_weights, channels_of
from mia_audit.runtime.device import AdaptiveBatchSize
from mia_audit.storage import atomic_write


@dataclass(frozen=True)
class Masks:
    """The masks of a training run, one row per epoch: the factor M of every channel, and the common factor of all other parameters.

    `source` names the data from which they were computed, `layers` the layers whose parameters write the channels, and
    `coverage` is the share of these parameters among all trained ones.
    """

    source: str
    layers: tuple[str, ...]
    channels: Float[Tensor, "E C"]
    rest: Float[Tensor, " E"]
    coverage: float


def save_masks(masks: Masks, path: Path) -> None:
    """Write masks as safetensors: `channels` [epochs, channels], `rest` [epochs]; the metadata name the source and the layers.

    The metadata have a single key, because safetensors writes several keys in an order that differs between runs.
    """
    facts = {"source": masks.source, "layers": masks.layers, "coverage": masks.coverage}
    metadata = {"masks": json.dumps(facts)}
    with atomic_write(path) as partial:
        save_file({"channels": masks.channels.contiguous(), "rest": masks.rest}, partial, metadata=metadata)


def bands(importance: Float[Tensor, " C"]) -> Int[Tensor, " C"]:
    """Cut [min, max] of the importances into three equal bands, of which 0 is the most important; a border belongs to the less important band.

    If all channels are equal, all are in the least important band.
    """
    importance = importance.double()
    low, high = importance.min(), importance.max()
    return 2 - (importance > low + (high - low) / 3).long() - (importance > low + 2 * (high - low) / 3).long()


def banded(importance: Float[Tensor, " C"], factors: Sequence[float]) -> Float[Tensor, " C"]:
    """Return each channel's factor by its band; `factors` are for the most, the moderately and the least important channels."""
    return torch.tensor(factors, dtype=torch.float64, device=importance.device)[bands(importance)]


class ChannelNoise:
    """The positions of a model's channels among its trainable parameters, in one vector in the order of gradients."""

    def __init__(self, model: nn.Module, who: str) -> None:
        self.model = model
        if sum(bool(layer._parameters) for layer in model.modules()) == 1:
            raise UserError(
                f"{who} scales the noise of channels, which the classifier has not: set training.trainable: all"
            )
        self._channels: Channels = channels_of(model, who)
        written = [value for layer in self._channels.writers.values() for value in layer.parameters(recurse=False)]
        masked = {id(value) for value in written if value.requires_grad}
        if not masked:
            raise UserError(
                f"{who} scales the noise of {' and '.join(self._channels.writers)}, but training.trainable freezes them: set"
                " training.trainable: all, or choose dp-sgd"
            )
        if len({len(value) for value in written if value.requires_grad}) > 1:
            raise UserError(
                f"{who} scales the noise of channels, which adapters of {' and '.join(self._channels.writers)} have not: name other"
                " training.lora.targets, or choose dp-sgd"
            )
        trainable = [value for value in model.parameters() if value.requires_grad]
        self.count = next(len(value) for value in trainable if id(value) in masked)
        self._places = [id(value) in masked for value in trainable]
        self._sizes = [value.numel() for value in trainable]
        covered = sum(size for size, masked in zip(self._sizes, self._places, strict=True) if masked)
        self.coverage = covered / sum(self._sizes)
        self.device = trainable[0].device

    def spread(self, channels: Float[Tensor, " C"], rest: float = 1.0) -> Float[Tensor, " p"]:
        """Return a float32 vector over all parameters: each channel's value for the parameters that write the channel, and `rest` for all others."""
        pieces = [
            channels.repeat_interleave(size // self.count) if masked else channels.new_full((size,), rest)
            for masked, size in zip(self._places, self._sizes, strict=True)
        ]
        return torch.cat(pieces).to(self.device, torch.float32)

    def normalised(self, factors: Float[Tensor, " C"]) -> tuple[Float[Tensor, " C"], float]:
        """Divide the channels' factors, and the factor 1 of all other parameters, by their geometric mean.

        The mean is over single coordinates, so det D = 1: the covariance of the noise has the same determinant as
        without a mask, and clipping at C has the same meaning.
        """
        each = sum(size for masked, size in zip(self._places, self._sizes, strict=True) if masked) // self.count
        mean = (factors.log().sum() * each / sum(self._sizes)).exp()
        return factors / mean, float(1 / mean)

    def by_channel(self, vector: Float[Tensor, " p"]) -> Float[Tensor, " C"]:
        """Return the norm of a vector's coordinates in every channel, float64."""
        pieces = zip(torch.split(vector.double(), self._sizes), self._places, strict=True)
        rows = [piece.reshape(self.count, -1) for piece, masked in pieces if masked]
        lengths: Tensor = torch.cat(rows, dim=1).norm(dim=1)
        return lengths

    def importance(self, inputs: Inputs | Tensor, labels: Int[Tensor, " b"], micro_batch: int) -> Float[Tensor, " C"]:
        """Return the mean over records of Grad-CAM's channel weights for the true class's logit, for the model's current weights."""
        training = self.model.training
        self.model.eval()  # eval mode turns dropout off

        def summed(size: int) -> Tensor:
            total = torch.zeros((), dtype=torch.float64, device=inputs.device)
            for start in range(0, len(labels), size):
                part = slice(start, start + size)
                total = total + channel_weights(self.model, self._channels, inputs[part], labels[part]).double().sum(
                    dim=0
                )
            return total

        total = AdaptiveBatchSize(micro_batch)(summed)
        self.model.train(training)
        return total / len(labels)

    def state(self, history: Sequence[tuple[Tensor, float]]) -> dict[str, Tensor]:
        """Return the masks of the epochs so far, for a checkpoint."""
        nothing = torch.zeros(0, self.count, dtype=torch.float64, device=self.device)  # no mask before the first epoch
        channels = torch.stack([channels for channels, _ in history]) if history else nothing
        return {
            "mask_channels": channels,
            "mask_rest": torch.tensor([rest for _, rest in history], dtype=torch.float64),
        }

    def restored(self, state: Mapping[str, Tensor]) -> list[tuple[Tensor, float]]:
        """Return the masks of earlier epochs, from a checkpoint."""
        return list(zip(state["mask_channels"].to(self.device), state["mask_rest"].tolist(), strict=True))

    def masks(self, source: str, history: Sequence[tuple[Tensor, float]]) -> Masks:
        """Combine the masks of all epochs."""
        channels = torch.stack([channels for channels, _ in history]).float().cpu()
        rest = torch.tensor([rest for _, rest in history])
        return Masks(source, tuple(self._channels.writers), channels, rest, self.coverage)
