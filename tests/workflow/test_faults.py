"""Whatever happens to an audit on one machine, the next run ends in the same bytes; what is damaged is named, never used."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

KILLS = 20
LINGER = 120.0
"""Seconds after which a worker left over would have ended by itself."""
Copy = Callable[[dict[str, Any]], Any]

REPRODUCED = (
    "pools/**/*",
    "*/*/interpretability.parquet",
    "*/*/explanations.parquet",
    "*/*/curves.parquet",
    "*/*/*/*.parquet",
    "*/*/*/models/**/*",
    "*/*/*/signals/**/*",
    "tables/*",
    "figures/*",
)


def contents(results: Path) -> dict[str, bytes]:
    """Read what is the same after every run; what a name with a dot begins is Snakemake's or nobody's."""
    files = {path for pattern in REPRODUCED for path in results.glob(pattern) if path.is_file()}
    shown = {path: path.relative_to(results) for path in files}
    return {str(name): path.read_bytes() for path, name in shown.items() if not path.name.startswith(".")}


def entries(folder: Path) -> int:
    """Count files and folders, whoever is making and removing some meanwhile."""
    return sum(len(folders) + len(files) for _, folders, files in os.walk(folder))


def group_of(process: "subprocess.Popen[bytes]", program: bytes = b"/mia-audit") -> list[int]:
    """List the workers of an orchestrator that are alive, whoever their parent is by now; b"": and shells about to start one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            session = int((folder / "stat").read_text().rpartition(") ")[2].split()[3])
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        if session == process.pid and any(word and word.endswith(program) for word in words):
            found.append(int(folder.name))
    return sorted(found)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_twenty_kills_change_nothing(finished: Any, tmp_path: Path) -> None:
    """Kill the orchestrator, a worker or both at moments that a seed chooses, and run again at once, workers left over or not."""
    audit = finished.elsewhere(tmp_path)
    chance = random.Random(0)
    started = []
    try:
        for number in range(KILLS):
            moment = entries(audit.results) + chance.randrange(
                1, 8
            )  # new files, partial ones, logs and folders included
            victims = chance.choice(["orchestrator", "worker", "all"])
            with (tmp_path / f"log{number}").open("wb") as log:
                process = subprocess.Popen(
                    audit.command(),
                    cwd=tmp_path,
                    env=audit.environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            started.append(process)
            while process.poll() is None and entries(audit.results) < moment:
                time.sleep(0.02)
            workers = group_of(process)
            if victims != "orchestrator":
                for worker in workers if victims == "all" else workers[:1]:
                    kill(worker)
            if victims != "worker" or not workers:
                kill(process.pid)
            process.wait()
        result = audit.run()
        given_up = time.monotonic() + LINGER
        while any(group_of(process, b"") for process in started) and time.monotonic() < given_up:
            time.sleep(0.1)  # a worker left over writes what it writes, and tidies up after itself
    finally:
        for process in started:
            process.kill()  # not by its number, which another process may have by now
            for pid in group_of(process, b""):
                kill(pid)
    assert result.returncode == 0, result.stdout
    assert contents(audit.results) == contents(finished.results)
    assert [path for path in audit.results.rglob("*") if path.name.endswith(".partial")] == []


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("path", "damage"),
    [
        ("digits/vit/none-epsinf/signals/ig/000-004.parquet", flip),
        ("digits/vit/none-epsinf/scores.parquet", truncate),
        ("digits/vit/none-epsinf/models/000-002/shadow-1.safetensors", flip),
        ("digits/vit/public.safetensors", truncate),
        ("pools/digits/records.npy", flip),
    ],
)
def test_a_damaged_intermediate_is_named_and_never_used(
    copy_of_finished: Copy, tiny: dict[str, Any], path: str, damage: Callable[[Path], None]
) -> None:
    copy = copy_of_finished(tiny)
    damaged = copy.results / path
    damage(damaged)
    if "models" in path:
        (damaged.parent / ".snakemake_timestamp").touch()  # what Snakemake looks at where a folder is the output
    report = (copy.results / "report.html").read_bytes()
    result = copy.run()
    assert result.returncode == 1
    assert f"mia-audit: results/tiny/{path}: {'damaged' if damage is flip else 'truncated'}" in result.stdout
    assert "Traceback" not in result.stdout
    assert (copy.results / "report.html").read_bytes() == report


def test_a_full_disk_is_one_line_and_the_next_run_goes_on(
    finished: Any, copy_of_finished: Copy, tiny: dict[str, Any]
) -> None:
    """The page is the largest file by far: with a limit on the size of files it alone cannot be written."""
    copy = copy_of_finished(tiny)
    page = copy.results / "report.html"
    page.unlink()
    unlimited = copy.prefix
    copy.prefix = ["prlimit", "--fsize=200000"]
    result = copy.run()
    assert result.returncode == 1
    assert (
        "mia-audit: results/tiny/report.html: could not be written: file too large. Make room and run again"
        in result.stdout
    )
    assert "Traceback" not in result.stdout
    assert not page.exists()
    copy.prefix = unlimited
    assert copy.run().returncode == 0
    assert page.read_bytes() == (finished.results / "report.html").read_bytes()


def test_two_orchestrators_are_kept_apart(copy_of_finished: Copy, tiny: dict[str, Any]) -> None:
    copy = copy_of_finished(tiny)
    (copy.results / "report.html").unlink()
    other = copy.elsewhere(copy.folder)
    other.log = copy.folder / "other.log"
    copy.hold("report")
    with copy.started() as first:
        copy.wait_until_held("report", first)
        result = other.run()
        copy.release("report")
        first.wait()
    assert first.returncode == 0, copy.log.read_text()
    assert result.returncode == 1
    assert "Directory cannot be locked" in result.stdout
    assert "Traceback" not in result.stdout


def test_a_clock_that_jumps_does_no_harm(finished: Any, copy_of_finished: Copy, tiny: dict[str, Any]) -> None:
    """Some files were written while the clock was ahead and some while it was behind: nothing ends in other bytes."""
    copy = copy_of_finished(tiny)
    jumps = {
        "*/*/none-*/models/*/.snakemake_timestamp": 20,
        "*/*/*/scores.parquet": 20,
        "tables/*": -20,
        "pools/*/*": -20,
    }
    for pattern, years in jumps.items():
        for path in copy.results.glob(pattern):
            moved = path.stat().st_mtime + years * 365 * 86400
            os.utime(path, (moved, moved))
    result = copy.run()
    assert result.returncode == 0, result.stdout
    assert contents(copy.results) == contents(finished.results)


def test_divergence_stops_its_block_alone_and_the_audit_goes_on_without_when_asked(
    finished: Any, copy_of_finished: Copy, tiny: dict[str, Any]
) -> None:
    """A mechanism that diverges is added to a finished audit: what was there is neither computed again nor changed."""
    copy = copy_of_finished(
        tiny | {"mechanisms": tiny["mechanisms"] | {"hot": {"mechanism": "none", "training": {"learning_rate": 1e30}}}}
    )
    result = copy.run()
    assert result.returncode == 1
    assert "mia-audit: shadow 0 of digits/vit/hot-epsinf: training diverged in epoch 1: " in result.stdout
    assert not (copy.results / "digits" / "vit" / "hot-epsinf" / "models" / "000-002").exists()
    copy.configure(copy.config | {"compute": tiny["compute"] | {"keep_going": True}})
    result = copy.run()
    assert result.returncode == 0, result.stdout
    page = (copy.results / "report.html").read_text()
    assert "Left out of digits, vit, hot at ε = inf: 5 models (0, 1, 2, 3 and 4) diverged in epoch 1: " in page
    assert "this setting is missing from all that follows" in page
    settings = {
        name: data for name, data in contents(finished.results).items() if "-eps" in name and "digits/vit" in name
    }
    assert settings.items() <= contents(copy.results).items()
