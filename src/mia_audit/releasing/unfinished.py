"""An unfinished release in its working folder: its random id, its charges, and the state after its last epoch.

The folder is hidden, beside that of the release. Only this user can read it, because it may hold records; the release's
own folder never does. It is removed when the release is finished, and never holds the state of a random generator.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mia_audit.errors import UserError
from mia_audit.regular_files import open_regular, private_folder
from mia_audit.storage import write_json
from mia_audit.training.identity import identity

STATE, LOCK = "release.json", "lock"


@dataclass
class Unfinished:
    """The working folder of a release, and the state of the release. The folder remains if the process is killed."""

    folder: Path
    key: str
    id: str
    charged: list[dict[str, Any]] = field(default_factory=list)
    """The terms of all charges of the release, in the form of ledger entries."""
    begun: list[str] = field(default_factory=list)
    """The parts whose work began after their charge."""

    def begin(self, parts: Sequence[str], terms: Sequence[Mapping[str, Any]]) -> None:
        """Record that parts were charged and begin now, so that a restart knows which parts were interrupted."""
        self.begun += [part for part in parts if part not in self.begun]
        self.charged += [dict(one) for one in terms]
        self.write()

    def write(self) -> None:
        """Write the state to disk."""
        values = {"key": self.key, "id": self.id, "charged": self.charged, "begun": self.begun}
        write_json(self.folder / STATE, values)
        for path in (self.folder / STATE, self.folder):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


@contextmanager
def unfinished(out: Path, depends_on: Mapping[str, Any]) -> Iterator[Unfinished]:
    """Lock the working folder of the release to `out`, and resume the unfinished release in it, if any.

    Raises UserError if another process holds the lock, or if the folder is damaged or belongs to another release. The
    folder is removed when the release is finished, and kept if it fails.
    """
    folder = out.with_name(f".{out.name}.unfinished")
    private_folder(folder)
    try:
        lock = open_regular(folder / LOCK, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"{out}: cannot be written: {reason}; choose another --out") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"{out}: another process is working on this release") from None
        state = _read(folder, out, identity(**depends_on))
        try:
            yield state
        except UserError:
            if not state.begun:  # nothing was charged yet
                shutil.rmtree(folder)
            raise
        shutil.rmtree(folder)
    finally:
        os.close(lock)


def _read(folder: Path, out: Path, key: str) -> Unfinished:
    path = folder / STATE
    if not path.exists():
        begun = Unfinished(folder, key, secrets.token_hex(16))
        begun.write()  # a restart recognises the charges of this release by its id
        return begun
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        state = Unfinished(folder, values["key"], values["id"], values["charged"], values["begun"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"{path}: damaged ({error}); its release stays charged and cannot be resumed. Choose another --out"
        ) from None
    if state.key != key:
        raise UserError(
            f"{folder}: an unfinished release of another setting, config or audit; finish that release, or choose another --out"
        )
    return state
