"""What a machine lacks for an audit, check by check: each finding says ok or what to do."""

import fcntl
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from mia_audit.planning.sizes import human

LEAST_PYTHON = (3, 11)
SKEW = 2.0
"""Seconds that a file system's clock may differ from this machine's before Snakemake misjudges what is newer."""

LEAST_DATE = 1.75e9
"""2025-06: this program is not older."""

PATIENCE = 10.0
"""Seconds that a command of the cluster may take to answer."""


@dataclass(frozen=True)
class Finding:
    """One check: `ok`, `note` (it runs, but …) or `mend` (an audit would stop)."""

    verdict: Literal["ok", "note", "mend"]
    what: str
    says: str


Ask = Callable[[Sequence[str]], "str | None"]
"""Runs a command: what it printed, or None where it is missing, fails or does not answer."""


def ask(words: Sequence[str]) -> str | None:
    """Run a command with patience."""
    try:
        told = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.strip()


def versions(lock: Path, installed: Callable[[str], str] = version) -> Iterator[Finding]:
    """Python, and every locked package against what is installed."""
    python = platform.python_version()
    if sys.version_info < LEAST_PYTHON:
        yield Finding(
            "mend", "python", f"{python} is too old: install Python 3.11 or newer, then make PYTHON=python3.11 audit"
        )
    else:
        yield Finding("ok", "python", python)
    if not lock.exists():
        yield Finding(
            "note", "packages", f"{lock} is not there, so that versions cannot be compared: run in the checkout"
        )
        return
    pinned = dict(re.findall(r"^([\w.-]+)==([^\s;+]+)", lock.read_text(encoding="utf-8"), re.MULTILINE))
    missing, other = [], []
    for name, wanted in pinned.items():
        try:
            found = installed(name).partition("+")[0]
        except PackageNotFoundError:
            missing.append(name)
            continue
        if found != wanted:
            other.append(f"{name} {found} instead of {wanted}")
    if missing:
        yield Finding("mend", "packages", f"missing: {', '.join(missing)}: pip install --requirement {lock}")
    elif other:
        yield Finding(
            "note",
            "packages",
            f"not as locked: {', '.join(other)}: pip install --requirement {lock} for the tested ones",
        )
    else:
        yield Finding("ok", "packages", f"all {len(pinned)} as locked")


def cards(
    ask: Ask, torch_cuda: str | None, problem: Callable[[], str | None], wanted: str = "auto"
) -> Iterator[Finding]:
    """The driver's cards, and whether torch (built for CUDA `torch_cuda`, None without) can use them.

    `problem` says what torch says when it tries; `wanted` is the config's compute.device.
    """
    needed: Literal["note", "mend"] = "mend" if wanted.startswith("cuda") else "note"
    told = ask(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"])
    if not told:
        says = "no NVIDIA driver answers (nvidia-smi): everything runs on the CPU"
        yield Finding(
            "mend" if needed == "mend" else "ok",
            "cards",
            says + (f", but compute.device is {wanted}" * (needed == "mend")),
        )
        return
    names = "; ".join(told.splitlines())
    if torch_cuda is None:
        yield Finding(
            needed,
            "cards",
            f"{names}; but this torch is built without CUDA: pip install a torch with CUDA (pytorch.org)",
        )
    elif trouble := problem():
        yield Finding(
            needed,
            "cards",
            f"{names}; but torch, built for CUDA {torch_cuda}, cannot use them ({trouble}): update the driver"
            " or install a torch for an older CUDA",
        )
    else:
        yield Finding("ok", "cards", f"{names}; torch is built for CUDA {torch_cuda}")


def slurm(ask: Ask, which: Callable[[str], str | None], shim: Path) -> Iterator[Finding]:
    """Whether a cluster is in reach, whether it keeps accounts, and whether the shim is there that the workflow wraps `sacct` in."""
    if which("sbatch") is None:
        yield Finding("ok", "slurm", "not installed here: jobs run on this machine")
        return
    partitions = ask(["sinfo", "--noheader", "--format=%P %a"])
    if partitions is None:
        yield Finding(
            "note",
            "slurm",
            "sinfo does not answer: on this machine an audit runs; for the cluster see that the controller is up",
        )
        return
    up = [line.split()[0] for line in partitions.splitlines() if line.endswith(" up")]
    if not up:
        yield Finding("note", "slurm", "on this machine an audit runs; for the cluster, no partition is up")
    else:
        yield Finding("ok", "slurm", f"partitions {', '.join(up)}")
    if ask(["sacct", "--noheader", "--parsable2", "--starttime=now-1minute", "--format=JobID"]) is None:
        yield Finding(
            "note",
            "slurm accounts",
            "sacct does not answer: a controller that is away would lose jobs; ask for slurmdbd",
        )
    elif not shim.exists():
        yield Finding(
            "note",
            "slurm accounts",
            f"{shim} is not there: a job cancelled by scancel would never be noticed; run in the checkout",
        )
    else:
        yield Finding("ok", "slurm accounts", "sacct answers")


def disk(
    results: Path, needed: int | None, usage: Callable[[Path], "tuple[int, int, int]"] = shutil.disk_usage
) -> Finding:
    """Free bytes where results go, against what the plan wants (None without a config)."""
    free = usage(_existing(results))[2]
    if needed is None:
        return Finding("ok", "disk", f"{human(free)} free at {results}; name a config to compare with its plan")
    if free < needed:
        return Finding(
            "mend", "disk", f"{human(free)} free at {results}, but the audit writes about {human(needed)}: make room"
        )
    verdict: Literal["ok", "note"] = "ok" if free > 2 * needed else "note"
    tight = "" if verdict == "ok" else ": tight"
    return Finding(verdict, "disk", f"{human(free)} free at {results}, the audit writes about {human(needed)}{tight}")


def memory(job: int | None, available: int | None) -> Finding:
    """Available bytes against what the largest job wants."""
    if available is None or job is None:
        return Finding("ok", "memory", "unknown" if available is None else f"{human(available)} available")
    says = f"{human(available)} available, the largest job takes about {human(job)}"
    if available < job:
        return Finding("mend", "memory", f"{says}: lower compute.batch")
    return Finding("ok", "memory", f"{says}: {available // job} at a time")


def file_system(results: Path) -> Iterator[Finding]:
    """Write, rename, lock and date a file where results go; nothing of it is left."""
    folder = _existing(results)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".doctor.") as name:
            old, new = Path(name, "old"), Path(name, "new")
            old.write_text("old")
            new.write_text("new")
            new.replace(old)
            renamed = old.read_text() == "new" and not new.exists()
            locked = _lock_excludes(old)
            before = time.time()
            new.touch()
            after = time.time()
            dated = new.stat().st_mtime
            skew = dated - min(max(dated, before), after)  # however long this process was kept waiting meanwhile
    except OSError as error:
        yield Finding("mend", "file system", f"{folder}: {error.strerror}: choose a folder that you may write to")
        return
    if not renamed:
        yield Finding(
            "mend", "file system", f"{folder}: a rename does not replace a file: keep results on another file system"
        )
    elif not locked:
        yield Finding(
            "mend",
            "file system",
            f"{folder}: flock does not exclude: cards and results would be shared; mount it with locks, or use another",
        )
    else:
        yield Finding("ok", "file system", f"{folder}: written, renamed and locked")
    yield clock(skew, time.time())


def clock(skew: float, now: float) -> Finding:
    """Whether the file system dates files as this machine would, `skew` seconds apart, and whether the date makes sense."""
    if abs(skew) > SKEW:
        return Finding(
            "mend", "clock", f"files are dated {skew:+.0f} s off this machine's clock: let both keep time (ntp)"
        )
    if now < LEAST_DATE:
        return Finding(
            "mend", "clock", f"this machine believes it is {time.strftime('%Y-%m-%d', time.gmtime(now))}: set its clock"
        )
    return Finding("ok", "clock", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now)))


def available_memory() -> int | None:
    """Return the bytes that Linux says are available; None elsewhere."""
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def _lock_excludes(path: Path) -> bool:
    """Whether a second holder of an exclusive lock is turned away."""
    with path.open() as first, path.open() as second:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _existing(path: Path) -> Path:
    """The nearest folder that is there."""
    path = path.absolute()
    while not path.is_dir():
        path = path.parent
    return path


def cannot_use_cuda() -> str | None:
    """Return what torch says when it is asked for a card; None where it works."""
    import torch

    try:
        torch.zeros(1, device="cuda")
    except (RuntimeError, AssertionError) as error:
        return str(error).splitlines()[0]
    return None
