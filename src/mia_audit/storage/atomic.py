"""Atomic writes: files and folders appear complete or not at all."""

import errno
import fcntl
import glob
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from mia_audit.errors import UserError

PARTIAL = ".partial"
"""Suffix of the temporary folders in which files are written."""
SUMS = "SHA256SUMS"
"""The list of a finished audit's files."""
SWAPS = 10
"""Number of attempts to replace a folder that other processes replace at the same time."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FULL_SIGNS = ("No space left", "os error 28", "File too large", "os error 27", "Disk quota", " requested and ")
"""Parts of the messages of Arrow, safetensors and NumPy (`8 requested and 4 written`) that mean a full disk.

They identify errors without an error number.
"""


def check_out(out: Path, *read: Path | None) -> None:
    """Raise UserError if an output is a folder, or one of the files that `check_overwritten` refuses."""
    if out.is_dir():
        raise UserError(f"{out}: cannot be written: a folder; choose another place")
    check_overwritten(out, *read)


def check_overwritten(out: Path, *read: Path | None) -> None:
    """Raise UserError if an output is a link, a file that the command reads, or a file of a finished audit."""
    if out.is_symlink():
        raise UserError(f"{out}: a link, which would be replaced; give the file itself, or choose another place")
    if not out.is_file():
        return
    if any(path and path.is_file() and path.samefile(out) for path in read):
        raise UserError(f"{out}: would overwrite a file that is read; choose another place")
    for folder in out.absolute().parents:
        if (folder / SUMS).is_file() and _listed(folder, out):
            raise UserError(f"{out}: would overwrite a result, which {folder / SUMS} lists; choose another place")


def _listed(folder: Path, out: Path) -> bool:
    name = f"  {out.absolute().relative_to(folder).as_posix()}\n".encode()
    return name in (folder / SUMS).read_bytes()


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` and rename it to `path` on success, so that a reader never sees a partial file.

    Temporary files that killed processes left for this path are removed before and after writing, because an orphaned
    worker may still write one. Raises UserError, naming the file, if the disk is full or the folder cannot be written
    to.
    """
    with _naming_full_disk(path), _reserved(path) as folder:
        partial = folder / path.name
        yield partial
        partial.chmod(0o666 & ~_umask())
        with _naming_place(path):
            partial.replace(path)


def sync(*paths: Path) -> None:
    """Wait until files, and the names in folders, are on the disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def create_once(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """Yield a temporary path like `atomic_write`, but if another process has created the file meanwhile, keep that file."""
    with _naming_full_disk(path), _reserved(path) as folder:
        partial = folder / path.name
        yield partial
        partial.chmod(mode & ~_umask())
        with _naming_place(path), suppress(FileExistsError):
            path.hardlink_to(partial)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path` that replaces `path` on success, like `atomic_write` for files."""
    with _naming_full_disk(path), _reserved(path) as folder:
        partial = folder / path.name
        partial.mkdir()
        yield partial
        _swap(partial, path)


@contextmanager
def _reserved(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path`, locked while this process lives, so that no other process removes it as stale."""
    with _naming_place(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    _clear(path)
    descriptor = None
    while descriptor is None:
        with _naming_place(path):
            folder = Path(tempfile.mkdtemp(PARTIAL, f".{path.name}.", path.parent))
        descriptor = _hold(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)
        _clear(path)


def _hold(folder: Path) -> int | None:
    """Lock a temporary folder for the life of this process; return None if another process removed it first.

    On a file system without flock, no folder is ever considered stale. (filelock locks only files.)
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    if folder.exists():
        return descriptor
    os.close(descriptor)
    return None


def _clear(path: Path) -> None:
    """Remove the temporary folders for `path` that no living process has locked."""
    for stale in path.parent.glob(f".{glob.escape(path.name)}.*{PARTIAL}"):
        with suppress(OSError):  # another process is writing to that folder, or has just finished
            descriptor = os.open(stale, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(stale)
            finally:
                os.close(descriptor)


def _swap(partial: Path, path: Path) -> None:
    """Replace a folder by another one, and try again if another process replaced it in between.

    The old folder is renamed before it is removed, so that no reader sees a folder with only some of its files.
    """
    before = partial.with_name(f"{path.name}.before")
    for attempt in count(1):
        with suppress(FileNotFoundError):
            path.rename(before)
        try:
            partial.rename(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or attempt == SWAPS:
                raise
        else:
            return
        finally:
            shutil.rmtree(before, ignore_errors=True)


@contextmanager
def _naming_full_disk(path: Path) -> Iterator[None]:
    """Turn errors due to a full disk or a limit on file sizes into a UserError that names the file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        message = str(error)
        if getattr(error, "errno", None) in FULL or any(sign in message for sign in FULL_SIGNS):
            raise UserError(
                f"{path}: could not be written: {_reason(error)}. Make room and run again; finished work is kept"
            ) from None
        raise


@contextmanager
def _naming_place(path: Path) -> Iterator[None]:
    """Turn errors due to a folder that cannot be created or written to into a UserError that names the file.

    If an existing folder has disappeared, another process removed it. That is not the user's mistake, so the error is
    raised unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL or (error.errno == errno.ENOENT and not path.parent.exists()):
            raise
        reason = os.strerror(error.errno).lower() if error.errno else error
        raise UserError(f"{path}: cannot be written: {reason}; choose another place") from None


def _reason(error: Exception) -> str:
    code = getattr(error, "errno", None)
    return os.strerror(code).lower() if code in FULL else "the disk is full, or a limit on file sizes is reached"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    with atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file with sorted keys atomically."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")
