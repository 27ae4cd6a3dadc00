"""Checks that are not games between two inputs: the number of a seed's bits that matter, and the spending of a service after a fork or a kill."""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import time
from collections.abc import Callable
from typing import Any, Literal

from mia_audit.proving.mechanism import Finding, Mechanism, Pair
from mia_audit.proving.observation import observe

SEED_BITS = 128
"""Number of a seed's bits that must matter. The values of fewer bits can be searched."""
PLANTED = 16
"""Number of bits of a seed that are searched; the adversary knows the others."""
BASES, FEW = 64, 4
"""Number of seeds whose bits are flipped, in general and for a mechanism that rarely repeats an output."""
SEARCH_SECONDS = 60.0
"""Approximate time limit of the search in seconds; for a slow mechanism, the search uses fewer bits."""


def seed_bits(mechanism: Mechanism) -> Finding:
    """Flip every bit of a 128-bit seed. Bits that change no output protect nothing; the remaining bits are searched.

    The search plants a seed among 2¹⁶ that differ in effective bits (fewer for a slow mechanism) and determines by
    exact enumeration whether a release reveals from which of two neighbouring inputs it came.
    """
    pair = mechanism.pairs[0]
    bases = [int.from_bytes(hashlib.blake2b(b"%d" % number, digest_size=16).digest(), "big") for number in range(BASES)]

    def released(records: Any, seed: int) -> bytes:
        return observe(lambda: mechanism.run(records, seed)).value

    started = time.monotonic()
    few = bases[:FEW]
    originals = [released(pair.first, base) for base in few]
    if [released(pair.first, base) for base in few] != originals:
        return Finding(
            mechanism.name,
            "seed bits",
            "skipped",
            "the same seed gives different outputs, so the mechanism has entropy of its own",
        )
    if len(set(originals)) < FEW:  # few distinct outputs are often equal by chance
        originals += [released(pair.first, base) for base in bases[FEW:]]
    else:
        originals = originals[:2]
    count = 2 * FEW
    effective = []
    for bit in range(SEED_BITS):
        for base, original in zip(bases, originals, strict=False):
            count += 1
            if released(pair.first, base ^ (1 << bit)) != original:
                effective.append(bit)
                break
    cost = (time.monotonic() - started) / count
    if len(effective) == SEED_BITS:
        return Finding(mechanism.name, "seed bits", "held", f"all {SEED_BITS} bits of the seed change the output")
    if not effective:
        return Finding(mechanism.name, "seed bits", "skipped", "the output does not depend on the seed")
    bits = min(PLANTED, len(effective), max(4, int(math.log2(SEARCH_SECONDS / (2 * max(cost, 1e-7))))))
    recovered = _searched(released, pair, bases[0], effective[:bits])
    detail = (
        f"{len(effective)} of {SEED_BITS} bits of the seed change the output; of 2^{bits} planted seeds a search recovers"
        f" {recovered:.1%}, which reveals the input"
    )
    verdict: Literal["refuted", "held"] = "refuted" if recovered > 0.5 else "held"
    inputs = (pair.first, pair.second)
    return Finding(mechanism.name, "seed bits", verdict, detail, mechanism.claim, trials=2 ** (bits + 1), inputs=inputs)


def _searched(released: Callable[[Any, int], bytes], pair: Pair, base: int, bits: list[int]) -> float:
    """Return the share of planted seeds whose release from the first input does not occur under any planted seed from the second."""
    outputs: list[set[bytes]] = []
    for records in (pair.first, pair.second):
        table = set()
        for candidate in range(2 ** len(bits)):
            seed = base
            for place, bit in enumerate(bits):
                if candidate >> place & 1:
                    seed ^= 1 << bit
            table.add(released(records, seed))
        outputs.append(table)
    return len(outputs[0] - outputs[1]) / len(outputs[0])


def in_fork(call: Callable[[], Any]) -> Any:
    """Run a call in a fork of this process and return its result, or the exception that it raised; None if it was killed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            try:
                result = call()
            except Exception as error:  # any exception is passed to the parent
                result = error
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(result, pipe)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(content) if content else None


def forked_service(serve: Callable[[], Callable[[], float]], budget: float) -> Callable[[Mechanism], Finding]:
    """Return the check of a service: `serve` starts the service and returns a function, which answers one query and returns the cost.

    The service is started once and forked three times, as by a server that loads it before it starts workers. Together
    the forks may not spend more than the budget.
    """

    def probe(mechanism: Mechanism) -> Finding:
        answer = serve()
        results = [in_fork(answer) for _ in range(3)]
        spent = sum(result for result in results if isinstance(result, float))
        refused = sum(isinstance(result, Exception) for result in results)
        if spent > budget * (1 + 1e-9):
            detail = f"three forks of one service spent {spent / budget:.3g} times its budget"
            return Finding(mechanism.name, "fork", "refuted", detail, mechanism.claim)
        return Finding(
            mechanism.name,
            "fork",
            "held",
            f"{refused} of three forks refuse to answer, and together the forks do not overspend",
        )

    return probe
