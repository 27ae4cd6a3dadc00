"""Counter-based random numbers: every record has its own stream, whose numbers are computed from their positions.

SplitMix64 (Steele, Lea and Flood 2014): the word at a position is a fixed mix of key + position · γ. So a record's
numbers depend only on its key, not on the batch, the order or the device. They are computed on the device, without a
copy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mia_audit.seeds import seed_for


def _signed(word: int) -> int:
    """Return the signed 64-bit number with the bits of an unsigned one, because torch has only signed ones."""
    return word - (1 << 64) if word >> 63 else word


GAMMA = _signed(0x9E3779B97F4A7C15)
MIXES = ((30, _signed(0xBF58476D1CE4E5B9)), (27, _signed(0x94D049BB133111EB)))
BITS = 24
"""Number of bits of a uniform number, the largest that float32 represents exactly."""


def stream_keys(seed: int, purpose: str, records: Iterable[int], device: torch.device | str) -> Int[Tensor, " B"]:
    """Return the key of every record's stream for a purpose, int64 on the device."""
    keys = [seed_for(seed, purpose, record) for record in records]
    return torch.tensor(keys, dtype=torch.int64, device=device)


def words(keys: Int[Tensor, " B"], first: int, count: int) -> Int[Tensor, "B count"]:
    """Return the 64-bit words of every stream from position `first` on."""
    position = torch.arange(first + 1, first + 1 + count, dtype=torch.int64, device=keys.device)
    mixed = keys[:, None] + position * GAMMA
    for shift, factor in MIXES:
        mixed.bitwise_xor_(_shifted(mixed, shift)).mul_(factor)
    return mixed.bitwise_xor_(_shifted(mixed, 31))


def uniforms(keys: Int[Tensor, " B"], first: int, count: int) -> Float[Tensor, "B count"]:
    """Return uniform numbers in [0, 1), one per word."""
    return _shifted(words(keys, first, count), 64 - BITS).float().mul_(2.0**-BITS)


def normals(keys: Int[Tensor, " B"], first: int, count: int) -> Float[Tensor, "B count"]:
    """Return standard normal numbers, two per word (Box and Muller 1958); none exceeds 5.8 in absolute value."""
    drawn = words(keys, first, (count + 1) // 2)
    angle = drawn.bitwise_and((1 << BITS) - 1).float().mul_(2 * math.pi * 2.0**-BITS)
    radius = _shifted(drawn, 64 - BITS).add_(1).float().mul_(2.0**-BITS).log_().mul_(-2).sqrt_()
    return torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)[:, :count]


def _shifted(values: Int[Tensor, ...], bits: int) -> Int[Tensor, ...]:
    """Shift right and fill with zeros; torch's own shift fills with the sign."""
    return (values >> bits).bitwise_and_((1 << (64 - bits)) - 1)
