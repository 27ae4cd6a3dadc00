"""Open files safely on shared machines: only regular files of this user, never through a link."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mia_audit.errors import UserError

OWNER_ONLY = 0o600
"""The mode of files with personal data or privacy budgets."""


def open_regular(path: Path, flags: int, mode: int = OWNER_ONLY, own: bool = True, single: bool = False) -> int:
    """Open a regular file and return its descriptor. With `own` it must belong to this user; with `single` it must have no other hard links.

    Raises UserError for links, FIFOs, devices and sockets, without waiting for, truncating or creating anything through
    them. Other errors, such as a missing file, are raised unchanged.
    """
    truncate = flags & os.O_TRUNC
    try:
        descriptor = os.open(path, (flags & ~os.O_TRUNC) | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(f"{path}: a symbolic link; expected a regular file. Remove the link") from None
        if error.errno in (errno.ENXIO, errno.EISDIR):
            raise UserError(f"{path}: not a regular file; move it away") from None
        raise
    try:
        status = os.fstat(descriptor)
        _check(path, status, own)
        if single and status.st_nlink > 1:
            raise UserError(f"{path}: has other hard links; expected a file with a single name. Move it away")
        if truncate:
            os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check(path: Path, status: os.stat_result, own: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{path}: not a regular file; move it away")
    if own and status.st_uid != os.geteuid():
        raise UserError(f"{path}: belongs to another user (number {status.st_uid}); expected a file of your own")


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Hold the lock of an open file or folder, which others wait for, and close it at the end."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def private_folder(path: Path) -> None:
    """Create a folder that only this user can access; an existing folder keeps its mode, since a group may share it.

    If creation fails, the error appears when a file is written there.
    """
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)


def refuse_links(folder: Path) -> None:
    """Raise UserError for a link below a folder; the folder itself may be reached through one.

    Jobs would write into what is behind the link, and delete from it.
    """
    for parent, folders, files in os.walk(folder):
        if link := next((name for name in (*folders, *files) if Path(parent, name).is_symlink()), None):
            raise UserError(
                f"{Path(parent, link)}: a link inside results; replace it by the folder or file itself (a link at {folder} is allowed)"
            )


def own_folder(path: Path) -> Path:
    """Create a folder that only this user can access, or check an existing one. Raises UserError for others' folders and links."""
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise UserError(
            f"{path}: a link, or a folder that another user owns or can write to; expected a folder to which only you can write. Move it"
            " away, or set XDG_RUNTIME_DIR to a folder of your own"
        )
    return path
