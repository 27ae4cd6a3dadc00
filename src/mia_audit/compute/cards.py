"""One graphics card a process, by a file lock that the kernel frees however the process ends; nothing here imports torch."""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, MutableMapping, Sequence
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


def take_card(
    wanted: str,
    cards: Callable[[], Sequence[str]] = installed_cards,
    environment: MutableMapping[str, str] = os.environ,
    folder: Path | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> str | None:
    """Make one free card the only one that this process sees, before torch is imported; return its number.

    `wanted` is the config's compute.device. Where all cards are taken it waits for one. Under SLURM, which hands out
    cards itself, and on the CPU it does nothing. Where CUDA_VISIBLE_DEVICES is set already, one of its cards is taken.
    The lock is held until the process ends. Raises UserError for a card that there is not.
    """
    if wanted == "cpu":
        environment[VISIBLE] = ""
        return None
    if "SLURM_JOB_ID" in environment:
        return None
    there = environment[VISIBLE].split(",") if environment.get(VISIBLE) else list(cards())
    _, _, number = wanted.partition(":")
    if number and number not in there:
        raise UserError(f"compute.device: {wanted} was asked for, but the cards here are: {', '.join(there) or 'none'}")
    candidates = [number] if number else there
    if not candidates:
        return None
    folder = folder or Path(tempfile.gettempdir()) / f"mia-audit-cards-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        for card in candidates:
            if hold(folder / f"card-{card}.lock", 0o600) is not None:
                environment[VISIBLE] = card
                return card
        wait(SECONDS_BETWEEN_LOOKS)
