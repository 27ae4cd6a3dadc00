"""The random numbers for the batches and the noise of a training run, and the addition of noise.

Every random number is a function of (key, counter): AES-256 in counter mode. HMAC-SHA256 derives the 256-bit key from
the audit's seed, every term of the training run and the content of the training set (`training_key`). Runs that differ
in any of these have unrelated batches and unrelated noise; equal runs have the same bytes. There is no privacy against
anyone who knows the seed, because they can recompute and subtract the noise. A released model uses a `fresh_key`
instead, which exists only in the memory of the process that trains it.

Squared norms and weighted sums of rows of any type, in float64 and bounded memory.

Per-record clipping: the factor that bounds one record's contribution to a sum of gradients.
"""

import hashlib
import hmac
import json
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from jaxtyping import Float, Int
from torch import Tensor

from mia_audit.models.inputs import Inputs

BLOCK = {"cpu": 2**15, "cuda": 2**22}
"""Number of normal numbers computed at once. On a CPU they stay in its caches."""

LANE = 1024
"""Number of radii in the key stream that are followed by as many angles; half of every block is a multiple of this number."""

ROWS = 256
"""Number of records digested at once."""

RELEASED = 4
"""In a release, each number of the noise is the sum of this many normal numbers, divided by 2.

An attack on the gaps of float64 noise must then search 4 generators at once (Holohan and Braghin 2021, section 4).
"""

MERSENNE_WORDS = 624
MERSENNE_OFFSET = 24
"""Offset of the Mersenne Twister's 624 words, 8 bytes each, in the state of torch's CPU generator."""


def content_digest(inputs: Inputs | Tensor, labels: Int[Tensor, " n"], rows: Int[Tensor, " k"]) -> bytes:
    """Return the SHA-256 of the records' bytes and labels, in the order of `rows`.

    The digest identifies the training set. It is never stored, and enters only the key of a training run.
    """
    digest = hashlib.sha256()
    if isinstance(inputs, Inputs):
        digest.update(inputs.preprocessing.encode())
    for part in torch.split(rows, ROWS):
        stored = inputs.stored(part) if isinstance(inputs, Inputs) else inputs[part].cpu().numpy()
        digest.update(f"{stored.dtype} {stored.shape}".encode())
        digest.update(stored.tobytes())
        digest.update(labels[part].cpu().numpy().tobytes())
    return digest.digest()


def training_key(secret: tuple[int | str, ...], terms: Mapping[str, Any], content: bytes) -> bytes:
    """Return the 256-bit key of one training run: HMAC-SHA256 of its terms and its training set's digest under the secret.

    The secret consists of the audit's seed and the names of data set and model; the terms are JSON values.
    """
    message = json.dumps({"terms": terms, "content": content.hex()}, sort_keys=True)
    return hmac.digest(json.dumps(secret).encode(), message.encode(), "sha256")


def fresh_key() -> bytes:
    """Return 256 bits of the operating system's entropy, as the key of a training run that nobody can repeat."""
    return secrets.token_bytes(32)


class Stream:
    """Random numbers for one purpose; `counter` is the number of the next draw, and the only state.

    The high bits of the cipher's 128-bit block counter are the number of the draw, so each draw has its own 2⁶⁴ blocks.
    Each number of the noise is the sum of `summands` normal numbers, divided by √summands.
    """

    def __init__(self, key: bytes, purpose: str, summands: int = 1) -> None:
        self._summands = summands
        self._key = hmac.digest(key, purpose.encode(), "sha256")
        self.counter = 0

    def uniform(self, count: int) -> Float[Tensor, " count"]:
        """Draw numbers in (0, 1), multiples of 2⁻⁵⁴, float64 on the CPU."""
        return _uniform(self._next()(8 * count), torch.device("cpu"))

    def add_noise(self, total: Float[Tensor, " p"], deviation: float | Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        """Return float32 total + N(0, deviation²), where the deviation is one number, or one per coordinate.

        Normal numbers are drawn and added in float64 and the sum is rounded once. For any total, about 2²⁹ values of
        the noise give the same float32 result, which hides the gaps between float64 values (Mironov 2012; Holohan and
        Braghin 2021).
        """
        draw = self._next()
        noisy = torch.empty_like(total, dtype=torch.float32)
        block = BLOCK.get(total.device.type, BLOCK["cpu"])
        for start in range(0, len(total), block):
            part = slice(start, min(start + block, len(total)))
            size = part.stop - start
            words = 8 * math.ceil(size / (2 * LANE)) * 2 * LANE
            noise = _normal(draw(words), total.device)[:size]
            for _ in range(self._summands - 1):
                noise += _normal(draw(words), total.device)[:size]
            if self._summands > 1:
                noise /= math.sqrt(self._summands)
            noise *= deviation[part] if isinstance(deviation, Tensor) else deviation
            noisy[part] = noise.add_(total[part])
        return noisy

    def layer_seed(self) -> bytes:
        """Draw the seed for the generator of random layers (`seed_layers`)."""
        return bytes(self._next()(4 * MERSENNE_WORDS))

    def _next(self) -> "_Draw":
        draw = _Draw(self._key, self.counter)
        self.counter += 1
        return draw


class _Draw:
    """The cipher's key stream for one draw, read sequentially."""

    def __init__(self, key: bytes, counter: int) -> None:
        cipher = Cipher(algorithms.AES(key), modes.CTR(counter.to_bytes(8, "big") + bytes(8)))
        self._encryptor = cipher.encryptor()

    def __call__(self, count: int) -> bytearray:
        out = bytearray(count + 15)  # the cipher needs space for one more block
        self._encryptor.update_into(bytes(count), out)
        del out[count:]
        return out


def _uniform(words: bytearray, device: torch.device) -> Float[Tensor, " n"]:
    """Turn every 8 bytes into (k + ½) 2⁻⁵³, where k is their first 53 bits."""
    if not words:
        return torch.empty(0, dtype=torch.float64, device=device)
    integers = torch.frombuffer(words, dtype=torch.int64).to(device)
    return (integers.bitwise_right_shift_(11).bitwise_and_(2**53 - 1)).double().add_(0.5).mul_(2.0**-53)


def _normal(words: bytearray, device: torch.device) -> Float[Tensor, " n"]:
    """Turn every 8 bytes into a standard normal number, from `LANE` radii and `LANE` angles at a time; none exceeds 8.66 in absolute value."""
    numbers = _uniform(words, device).view(-1, 2, LANE)
    radius, angle = numbers.unbind(1)
    radius = radius.log().mul_(-2).sqrt_()
    angle = angle.mul(2 * math.pi)
    torch.mul(radius, angle.cos(), out=numbers[:, 0])
    torch.mul(radius, angle.sin_(), out=numbers[:, 1])
    return numbers.flatten()


def seed_layers(seed: bytes) -> None:
    """Seed torch's global generators, which random layers such as dropout use, with the bytes of `Stream.layer_seed`.

    On the CPU all 624 words of the Mersenne Twister are set, because `torch.manual_seed` uses only 32 bits there. On a
    GPU it uses 64.
    """
    torch.manual_seed(int.from_bytes(seed[:8], "little") >> 1)  # this also seeds every GPU's generator
    state = torch.get_rng_state()
    words = torch.frombuffer(bytearray(seed), dtype=torch.int32).long() & 0xFFFFFFFF
    state[MERSENNE_OFFSET : MERSENNE_OFFSET + 8 * MERSENNE_WORDS] = words.view(torch.uint8)
    torch.set_rng_state(state)


DOUBLED = {"cpu": 2**18, "cuda": 2**26}
"""Number of elements that are converted to float64 at once."""

RUN = 512
"""Number of elements whose squares are summed in float32 before float64: the relative error of a norm is then at most 3e-6."""


def squared_norms(rows: Float[Tensor, "b n"], scale: Float[Tensor, " s"] | None = None) -> Float[Tensor, " b"]:
    """Return the squared norm of every row. Its elements are multiplied by `scale` (one number, or n), if given."""
    if scale is not None:
        return squared_norms(rows) * scale.double().square() if len(scale) == 1 else squared_norms(rows * scale)
    rows = rows.contiguous()  # the numbers of strided rows are added one by one
    kind = torch.promote_types(rows.dtype, torch.float32)
    if rows.shape[1] <= RUN:
        norms: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=kind)
        return norms.double().square()
    runs = rows.shape[1] // RUN * RUN
    parts = [rows[:, runs:], rows[:, :runs].reshape(len(rows), -1, RUN)]
    pieces = [torch.linalg.vector_norm(part, dim=-1, dtype=kind).double().reshape(len(rows), -1) for part in parts]
    return torch.cat(pieces, dim=1).square().sum(dim=1)


def at_once(device: torch.device, rows: int) -> int:
    """Return how many elements of each row are converted at once."""
    return max(1, DOUBLED.get(device.type, DOUBLED["cpu"]) // max(1, rows))


def add_weighted(
    rows: Float[Tensor, "b n"],
    weights: Float[Tensor, " b"],
    out: Int[Tensor, " o"],
    total: Float[Tensor, " n"],
) -> None:
    """Add Σ weight · row to a float64 total; the rows left `out`, of weight 0, need not be finite, and take as long as others."""
    width = at_once(rows.device, len(rows))
    for start in range(0, rows.shape[1], width):
        part = slice(start, start + width)
        total[part].addmv_(without(rows[:, part], out).t(), weights)


def left_out(weights: Float[Tensor, " b"]) -> Int[Tensor, " o"]:
    """Return the numbers of the records of weight 0."""
    return (weights == 0).nonzero()[:, 0]


def without(rows: Float[Tensor, "b ..."], out: Int[Tensor, " o"]) -> Float[Tensor, "b ..."]:
    """Return a float64 copy of rows in which those left `out` are 0, because 0 times infinity is not."""
    return rows.to(torch.float64, copy=True).index_fill_(0, out, 0)


STABILITY = 0.01


@dataclass(frozen=True)
class Clipping:
    """Factors from the norms of per-record gradients, and the sensitivity of the clipped sum to one record."""

    name: str
    factors: Callable[[Float[Tensor, " b"]], Float[Tensor, " b"]]
    sensitivity: float


def automatic(clip_norm: float) -> Clipping:
    """Return the clipping by 1/(‖g‖ + γ) with γ = 0.01, which has no norm to tune and sensitivity 1 (Bu et al. 2023, AUTO-S)."""
    return Clipping("automatic", lambda norms: 1 / (norms + STABILITY), 1.0)


def flat(clip_norm: float) -> Clipping:
    """Return the clipping by min(1, C/‖g‖), with sensitivity C (Abadi et al. 2016)."""
    return Clipping(f"flat {clip_norm:g}", lambda norms: (clip_norm / norms).clamp(max=1), clip_norm)


CLIPPINGS: dict[str, Callable[[float], Clipping]] = {"automatic": automatic, "flat": flat}
