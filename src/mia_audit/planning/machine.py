"""Check a machine before an audit runs on it. Every finding is ok, or says what to do."""

import fcntl
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from getpass import getuser
from pathlib import Path
from typing import Literal

import yaml

from mia_audit.errors import UserError, first_line, suggest
from mia_audit.planning.requests import existing
from mia_audit.planning.sizes import human

SKEW = 2.0
"""Largest accepted difference between the clocks of a file server and this machine, in seconds.

If it is larger, Snakemake cannot tell which file is newer.
"""

EARLIEST_DATE = 1.75e9
"""June 2025; if this machine's date is earlier, it is wrong."""

PROFILES = ("slurm", "profiles/slurm")
"""Folders of workflow profiles for SLURM, as docs/how-to/slurm.md names them."""

TIMEOUT = 10.0
"""Time limit of a system command, in seconds."""


@dataclass(frozen=True)
class CheckResult:
    """The result of one check: `ok`, `warn` (an audit runs, with a limitation) or `fail` (an audit would stop)."""

    what: str
    verdict: Literal["ok", "warn", "fail"]
    says: str


Ask = Callable[[Sequence[str]], "str | None"]
"""Runs a command and returns its output; None if the command is missing, fails or does not answer."""


def ask(words: Sequence[str]) -> str | None:
    """Run a command for at most TIMEOUT seconds."""
    try:
        result = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def gpus(
    ask: Ask, torch_cuda: str | None, problem: Callable[[], str | None], wanted: str, slurm: bool
) -> Iterator[CheckResult]:
    """List the driver's GPUs, and check that torch can use them.

    `torch_cuda` is the version of CUDA for which torch was built, or None. `problem` returns the error that torch
    raises on a GPU, if any. `wanted` is the config's compute.device. With `slurm`, jobs run on other machines.
    """
    found = partial(CheckResult, "gpus")
    needed: Literal["warn", "fail"] = "fail" if wanted.startswith("cuda") and not slurm else "warn"
    listed = ask(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"])
    if not listed:
        where = "jobs on SLURM use those of their partition" if slurm else "everything runs on the CPU"
        says = f"the NVIDIA driver does not respond to nvidia-smi: {where}"
        yield found(
            "fail" if needed == "fail" else "ok", says + (f", but compute.device is {wanted}" * (needed == "fail"))
        )
        return
    names = "; ".join(listed.splitlines())
    if torch_cuda is None:
        yield found(needed, f"{names}; but this torch is built without CUDA: install a torch with CUDA (pytorch.org)")
    elif trouble := problem():
        yield found(
            needed,
            f"{names}; but torch, built for CUDA {torch_cuda}, cannot use them ({trouble}): update the driver, or install a torch"
            " built for an older CUDA",
        )
    else:
        yield found("ok", f"{names}; torch is built for CUDA {torch_cuda}")


def slurm(ask: Ask, which: Callable[[str], str | None], profile: Path | None) -> Iterator[CheckResult]:
    """Check that SLURM answers and has a profile's partitions and accounts, and that it keeps accounts; without a profile, nothing."""
    found = partial(CheckResult, "slurm")
    if profile is None:
        return
    if which("sbatch") is None:
        yield found("ok", "SLURM is not installed here: jobs run on this machine")
        return
    said = ask(["sinfo", "--noheader", "--format=%P %a"])
    if said is None:
        yield found(
            "warn", "sinfo does not answer: an audit runs on this machine; to use the cluster, start its controller"
        )
        return
    known = {line.split()[0].rstrip("*"): line.endswith(" up") for line in said.splitlines()}
    if odd := [
        name for names in stated_in(profile, "slurm_partition") for name in names.split(",") if name not in known
    ]:
        yield found("fail", f"{profile}: slurm_partition: no partition '{odd[0]}': {suggest(odd[0], known)}")
    elif not any(known.values()):
        yield found("warn", "no partition is available: audits run on this machine, not on the cluster")
    else:
        yield found("ok", f"partitions {', '.join(name for name, up in known.items() if up)}")
    listed = ask(["sacctmgr", "-n", "-s", "list", "user", getuser(), "format=account%256"]) or ""
    accounts = {line.strip().lower() for line in listed.splitlines()}
    if accounts and (odd := [name for name in stated_in(profile, "slurm_account") if name.lower() not in accounts]):
        yield found("fail", f"{profile}: slurm_account: no account '{odd[0]}' of yours: {suggest(odd[0], accounts)}")
    if ask(["sacct", "--noheader", "--parsable2", "--starttime=now-1minute", "--format=JobID"]) is None:
        yield CheckResult(
            "slurm accounts",
            "warn",
            "sacct does not answer: jobs are lost when the controller cannot be reached; ask the cluster's administrators for slurmdbd",
        )
    else:
        yield CheckResult("slurm accounts", "ok", "sacct answers")


def slurm_profile(folder: Path) -> Path | None:
    """Return the workflow profile for SLURM that lies in the folder of an audit, if there is one."""
    return next((path for name in PROFILES if (path := folder / name / "config.yaml").is_file()), None)


def stated_in(profile: Path, key: str) -> list[str]:
    """Return the values of a resource in a workflow profile, such as partitions; UserError for a file that is not YAML."""
    try:
        values = yaml.safe_load(profile.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{profile}: not readable as YAML: {first_line(error)}") from None
    stated = values if isinstance(values, dict) else {}
    rules = stated.get("set-resources")
    resources = [stated.get("default-resources"), *(rules.values() if isinstance(rules, dict) else ())]
    return list(dict.fromkeys(str(one[key]) for one in resources if isinstance(one, dict) and key in one))


def disk(
    results: Path, needed: int, usage: Callable[[Path], "tuple[int, int, int]"] = shutil.disk_usage
) -> CheckResult:
    """Compare the free bytes at the results with those that the plan needs."""
    found = partial(CheckResult, "disk")
    free = usage(existing(results))[2]
    if free < needed:
        return found("fail", f"{human(free)} free at {results}, but the audit writes about {human(needed)}: make room")
    verdict: Literal["ok", "warn"] = "ok" if free > 2 * needed else "warn"
    tight = "" if verdict == "ok" else ": tight"
    return found(verdict, f"{human(free)} free at {results}; the audit writes about {human(needed)}{tight}")


def memory(job: int, available: int) -> CheckResult:
    """Compare the available bytes with those that the largest job needs."""
    says = f"{human(available)} available; the largest job takes about {human(job)}"
    if available < job:
        return CheckResult("memory", "fail", f"{says}: lower compute.micro_batch")
    return CheckResult("memory", "ok", f"{says}: {available // job} at a time")


def file_system(results: Path) -> Iterator[CheckResult]:
    """Check that files in the folder of results can be written, renamed, locked and removed, and compare their dates with the clock."""
    found = partial(CheckResult, "file system")
    folder = existing(results)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".check.") as name:
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
            skew = dated - min(max(dated, before), after)  # the time spent waiting in between does not matter
    except OSError as error:
        yield found("fail", f"{folder}: {error.strerror}: choose a folder in which you may write")
        return
    if not renamed:
        yield found("fail", f"{folder}: a rename does not replace a file: keep results on another file system")
    elif not locked:
        yield found(
            "fail",
            f"{folder}: locks (flock) do not work: jobs would use the same GPUs and files at once; mount the file system with"
            " locks, or use another folder",
        )
    else:
        yield found("ok", f"{folder}: written, renamed and locked")
    yield clock(skew, time.time())


def clock(skew: float, now: float) -> CheckResult:
    """Check that the clocks of the file system and of this machine differ by at most `SKEW` seconds, and that the date is plausible."""
    found = partial(CheckResult, "clock")
    if abs(skew) > SKEW:
        return found(
            "fail",
            f"the dates of files differ by {skew:+.0f} s from this machine's clock: synchronise both clocks (ntp)",
        )
    if now < EARLIEST_DATE:
        return found("fail", f"the date here is {time.strftime('%Y-%m-%d', time.gmtime(now))}: set the clock")
    return found("ok", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now)))


def _lock_excludes(path: Path) -> bool:
    """Return whether a second exclusive lock is refused."""
    with path.open() as first, path.open() as second:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def cannot_use_cuda() -> str | None:
    """Return the error that torch raises when it uses a GPU, or None."""
    import torch

    try:
        torch.zeros(1, device="cuda")
    except (RuntimeError, AssertionError) as error:
        return str(error).splitlines()[0]
    return None
