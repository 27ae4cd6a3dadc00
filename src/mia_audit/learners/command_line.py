"""Command lines with placeholders. They are checked when a config is read, and filled in and run without a shell."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress

from mia_audit.errors import UserError, suggest
from mia_audit.learners.user_code import overrun

TRAIN = (
    "records", "labels", "members", "persons", "public", "public_labels", "progress", "epsilon", "delta", "seed", "device", "threads", "checkpoints",
    "classes", "model", "out",
)  # fmt: skip
"""Placeholders of the train command; `model` and `out` are the file or folder that the command writes."""

PREDICT = ("records", "model", "device", "threads", "classes", "out")
"""Placeholders of the predict command; `model` is the file or folder that training wrote, `out` the .npy file for the outputs."""

PLACEHOLDER = re.compile(r"\{(\w+)\}")


def check_commands(train: str, predict: str, outputs: str) -> None:
    """Raise UserError, which names the key, if a command, a required placeholder or `outputs` is missing, or a command is malformed."""
    if not (train and predict):
        raise UserError(f"{'predict' if train else 'train'}: missing; train and predict must be given together")
    _check("train", train, TRAIN, [("records",), ("members",), ("model", "out")])
    _check("predict", predict, PREDICT, [("records",), ("model",), ("out",)])
    if not outputs:
        raise UserError("outputs: missing; state what predict writes: logits, probabilities or labels")


def _check(key: str, command: str, known: Collection[str], needed: list[tuple[str, ...]]) -> None:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"{key}: not a command line: {error}") from None
    named = PLACEHOLDER.findall(_unescaped(command))
    if unknown := [name for name in named if name not in known]:
        raise UserError(
            f"{key}: unknown placeholder {{{unknown[0]}}}: {suggest(unknown[0], known)}; a literal brace is written twice"
        )
    for choice in needed:
        if not set(choice) & set(named):
            raise UserError(f"{key}: the command does not mention {' or '.join(f'{{{name}}}' for name in choice)}")
    if not words or PLACEHOLDER.search(words[0]):
        raise UserError(f"{key}: the command must begin with a program")


def _unescaped(text: str) -> str:
    """Return a text without doubled braces."""
    return text.replace("{{", "").replace("}}", "")


def filled(command: str, values: Mapping[str, object]) -> list[str]:
    """Split a command into words as a shell would, and fill in placeholders afterwards, so that no value is split or run."""
    return [_fill(word, values) for word in shlex.split(command)]


def _fill(word: str, values: Mapping[str, object]) -> str:
    parts = re.split(r"(\{\{|\}\}|\{\w+\})", word)
    braces = {"{{": "{", "}}": "}"}
    return "".join(
        braces.get(part) or (str(values[part[1:-1]]) if PLACEHOLDER.fullmatch(part) else part) for part in parts
    )


def check_program(key: str, command: str) -> None:
    """Raise UserError unless the program of a command exists."""
    program = shlex.split(command)[0]
    if shutil.which(program) is None:
        raise UserError(f"{key}: no program '{program}' on the PATH of this machine, or it is not executable")


def run_command(words: list[str], where: str, minutes: float, environment: Mapping[str, str]) -> None:
    """Run a command for at most `minutes` (0: no limit) and pass its output on to stderr.

    Raises UserError, which begins with `where`, if the command cannot start, fails or takes longer. The error quotes
    the last line that a failed command printed.
    """
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(environment),
            text=True, errors="replace",
        )  # fmt: skip
    except OSError as error:
        raise UserError(f"{where}: '{words[0]}' cannot be started: {error.strerror}") from None
    late = threading.Event()

    def stop() -> None:
        late.set()
        _kill(process.pid)

    timer = threading.Timer(60 * minutes, stop) if minutes else None
    last = ""
    try:
        if timer:
            timer.start()
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", file=sys.stderr, flush=True)
            last = line.strip() or last
        code = process.wait()
    finally:
        if timer:
            timer.cancel()
        if process.poll() is None:
            _kill(process.pid)
    if late.is_set():
        raise UserError(overrun(where, minutes))
    if code:
        ended = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        raise UserError(f"{where}: '{words[0]}' {ended}" + (f": {last} (its output is above)" if last else ""))


def _kill(number: int) -> None:
    """End a process and all that it started. They are in this process's group, so that they also end with the job."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(number)
        for one in [*process.children(recursive=True), process]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
