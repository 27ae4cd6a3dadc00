"""One graphics card a process, by a file lock that the kernel frees however the process ends; nothing here imports torch."""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, MutableMapping, Sequence
from itertools import takewhile
from pathlib import Path

from mia_audit.errors import UserError
from mia_audit.locks import hold

VISIBLE = "CUDA_VISIBLE_DEVICES"
SECONDS_BETWEEN_LOOKS = 0.5


def installed_cards() -> list[str]:
    """List the numbers of the cards that the driver knows; none where there is no driver."""
    try:
        told = subprocess.run(
            ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return told.stdout.split() if told.returncode == 0 else []


def shown(visible: str) -> list[str]:
    """List the cards that a value of CUDA_VISIBLE_DEVICES shows: those before the first that is none, such as -1."""
    return list(takewhile(lambda card: card not in ("", "-1"), map(str.strip, visible.split(","))))


def take_card(
    wanted: str,
    cards: Callable[[], Sequence[str]] = installed_cards,
    environment: MutableMapping[str, str] = os.environ,
    folder: Path | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> str | None:
    """Make one free card the only one that this process sees, before torch is imported; return its number.

    `wanted` is the config's compute.device. Where all cards are taken it waits for one. On the CPU it does nothing, nor
    under SLURM, which hands out cards itself, unless it gave several to all of a workflow. Where CUDA_VISIBLE_DEVICES is
    set already, one of its cards is taken, and none where it hides them all. The lock is held until the process ends.
    Raises UserError for a card that there is not.
    """
    if wanted == "cpu":
        environment[VISIBLE] = ""
        return None
    given = shown(environment[VISIBLE]) if VISIBLE in environment else None
    allocation = environment.get("SLURM_JOB_ID")
    if allocation and len(given or ()) < 2:
        return None
    there = list(cards()) if given is None else given
    _, _, number = wanted.partition(":")
    if number and number not in there:
        raise UserError(f"compute.device: {wanted} was asked for, but the cards here are: {', '.join(there) or 'none'}")
    candidates = [number] if number else there
    if not candidates:
        return None
    # SLURM numbers the cards of every allocation anew
    owner = f"{os.getuid()}-{allocation}" if allocation else f"{os.getuid()}"
    folder = folder or Path(tempfile.gettempdir()) / f"mia-audit-cards-{owner}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        for card in candidates:
            if hold(folder / f"card-{card}.lock", 0o600) is not None:
                environment[VISIBLE] = card
                return card
        wait(SECONDS_BETWEEN_LOOKS)
