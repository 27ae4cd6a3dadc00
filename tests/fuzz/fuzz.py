"""Break files and read them: a line or a result is right, and nothing else.

    python tests/fuzz/fuzz.py FOLDER --seconds 60 --seed 0

A traceback, two lines, a crash, a file or a program outside of FOLDER, or more memory than declared ends the run with the file in
FOLDER/broken and exit code 1. What is wrong with one file costs no other its turn: readers take turns, each with its own generator.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from readers import HEAVY, LIGHT, Reader

MEGABYTES = 1500
"""Memory that a reader may take beyond what the process has when all libraries are loaded."""
STRINGS = (
    *(
        b"\n\\input{x}\\immediate\\write18{id}",
        b"=HYPERLINK(1)",
        b"\x1b]0;x\x07",
        b"\xe2\x80\xae",
        b"\0",
        b"\xff\xfe",
        b"'\"`$(id)",
    ),
    *(
        b"{x}",
        b"../../x",
        b"/etc/passwd",
        b"nan",
        b"inf",
        b"-1",
        b"9" * 400,
        b"1e999",
        b"[" * 300,
        b"&a [*a]",
        b"!!python/name:x",
    ),
    *(
        b"\xff" * 8,
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x80",
        b"<script>",
        b"null",
        b"{}",
        b"[]",
        b"true",
        b"\xed\xb3\xa9",
    ),
)


def broken(content: bytes, rng: random.Random) -> bytes:
    """Return content with some bytes flipped, cut, repeated, filled or replaced, more often near either end, where headers are."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not data:
            break
        near = min(len(data), 400)
        place = rng.choice((rng.randrange(len(data)), rng.randrange(near), len(data) - 1 - rng.randrange(near)))
        kind = rng.randrange(7)
        if kind == 0:
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[place:]
        elif kind == 2:
            data[place:place] = rng.choice(STRINGS)
        elif kind == 3:
            text = rng.choice(STRINGS)
            data[place : place + len(text)] = text
        elif kind == 4:
            length = rng.choice((1, 4, 8))
            data[place : place + length] = rng.choice((b"\xff", b"\x00", b"\x7f")) * length
        elif kind == 5:
            digits = [index for index in range(len(data)) if 48 <= data[index] < 58]
            if digits:
                data[rng.choice(digits)] = rng.choice(b"0123456789-.e")
        else:
            other = rng.randrange(len(data))
            data[place : place + 16] = data[other : other + 64]
    return bytes(data)


class Outside(Exception):
    """Something was written, or started, that no reader has to."""


CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate")
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect", "pickle.find_class")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def placed(path: str | bytes | os.PathLike[str]) -> str:
    """Return where a path leads without following links."""
    return os.path.normpath(Path.cwd() / os.fsdecode(path))


def watch(allowed: Path) -> None:
    """Let this process write below a folder alone, start no program and reach no network, from now on."""
    kept = (str(allowed), "/dev/null")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        named = bool(arguments) and isinstance(arguments[0], str | bytes | os.PathLike)
        changes = event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES)
        if event in STARTS or (named and changes and not placed(arguments[0]).startswith(kept)):
            raise Outside(f"{event} {arguments}")

    sys.addaudithook(hook)


def attempt(reader: Reader, path: Path) -> str:
    """Read a file and say what is wrong with how it was read; empty where nothing is."""
    from mia_audit.errors import UserError

    try:
        reader.read(path)
    except UserError as error:
        text = str(error)
        return "" if text.strip() and len(text) < 20_000 else f"a message of {len(text)} characters"
    except BaseException:
        return traceback.format_exc()
    return ""


def main() -> int:
    """Fuzz until the time is up; return 1 where a reader failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--cases", type=int, default=0, help="of every reader, instead of seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--light", action="store_true", help="readers that need no torch alone")
    parser.add_argument("--only", default="", help="a reader's name")
    options = parser.parse_args()
    (options.folder / "tmp").mkdir(parents=True, exist_ok=True)
    tempfile.tempdir = str((options.folder / "tmp").resolve())
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.tempdir  # PyTorch makes that folder when it is imported
    readers = [one for one in (LIGHT if options.light else [*LIGHT, *HEAVY]) if options.only in ("", one.name)]
    root = options.folder.resolve()
    whole: dict[str, Path] = {}
    for number, reader in enumerate(readers):
        whole[reader.name] = root / f"whole-{number}"
        whole[reader.name].mkdir(parents=True)
        reader.make(whole[reader.name])
        wrong = attempt(reader, whole[reader.name] / reader.name)
        if "Traceback" in wrong:
            print(f"{reader.name}: a whole file is not read: {wrong}")
            return 1
    os.chdir(root)
    watch(root)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEGABYTES * 1_000_000, resource.RLIM_INFINITY))
    generators = {reader.name: random.Random(f"{options.seed} {reader.name}") for reader in readers}
    until, cases, failures = time.monotonic() + options.seconds, 0, 0
    while cases < options.cases if options.cases else time.monotonic() < until:
        cases += 1
        for reader in readers:
            folder = root / "work"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(whole[reader.name], folder)
            path = folder / reader.name
            content = broken(path.read_bytes(), generators[reader.name])
            path.write_bytes(content)
            suspect = root / "broken" / f"{reader.name.replace('/', '_')}"
            suspect.parent.mkdir(exist_ok=True)
            suspect.write_bytes(content)  # before it is read: a crash ends this process
            if wrong := attempt(reader, path):
                failures += 1
                suspect.rename(suspect.with_name(f"{failures}-{suspect.name}"))
                print(f"{reader.name}, case {cases} of seed {options.seed}: {wrong}\n", flush=True)
            else:
                suspect.unlink()
    print(f"{cases} cases of {len(readers)} readers, {failures} failures")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
