"""Checkpoints of training that may be killed: the state after the last epoch, kept until the model is trained."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from mia_audit.storage import atomic_write

if TYPE_CHECKING:
    from torch import Tensor

    State = dict[str, Tensor]


STATE = "epoch.safetensors"
"""The state's file in a checkpoint's folder."""


class Checkpoint:
    """The checkpoint of one model's training, in its own folder: the state after the last saved epoch.

    States are written atomically, with their digest, and at most once in `seconds`. A checkpoint that is damaged or has
    another identity is not used: training then starts from the beginning, and the model has the same bytes. Without a
    folder nothing is kept. A worker whose orchestrator was killed may still be training the same model. It writes the
    same bytes, and removes the folder when it ends.
    """

    def __init__(self, folder: Path | None = None, key: str = "", seconds: float = 0.0) -> None:
        self.folder = folder
        self._path = folder / STATE if folder else None
        self.key = key
        self.seconds = seconds
        self._written = time.monotonic()

    def resume(self) -> State:
        """Return the state after the last saved epoch; empty if there is none."""
        from mia_audit.models.weights import digest_of

        path = self._path
        if path is None or not path.exists():
            return {}
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            self._warn_damaged(path, str(error))
            return {}
        if metadata.get("key") != self.key:
            return {}
        if metadata.get("digest") != digest_of(state):
            self._warn_damaged(path, "its digest is not the stored one")
            return {}
        print(f"{path}: resuming training from this checkpoint", file=sys.stderr, flush=True)
        return state

    def offer(self, capture: Callable[[], State]) -> None:
        """Save the state that `capture` returns, unless fewer than `seconds` have passed since the last one was saved."""
        path = self._path
        if path is None or time.monotonic() - self._written < self.seconds:
            return
        from safetensors.torch import save_file

        from mia_audit.models.weights import digest_of

        state = {name: value.detach().cpu().contiguous().clone() for name, value in capture().items()}
        with _unless_removed(), atomic_write(path) as partial:
            save_file(state, partial, {"key": self.key, "digest": digest_of(state)})
        self._written = time.monotonic()

    def begin(self) -> None:
        """Note that an epoch begins."""

    def remove(self) -> None:
        """Remove the folder after the training."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _warn_damaged(self, path: Path, why: str) -> None:
        print(f"warning: {path}: damaged checkpoint ignored ({why}); training starts anew", file=sys.stderr)


@contextmanager
def _unless_removed() -> Iterator[None]:
    """Continue without saving if another worker removes the folder meanwhile."""
    try:
        yield
    except FileNotFoundError:
        pass
    except SafetensorError as error:
        if "No such file" not in str(error):
            raise
