"""Targets of the tester: registered ones, a Python function, or a command."""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mia_audit.errors import UserError, suggest
from mia_audit.privacy.gaussian import check_privacy
from mia_audit.proving.mechanism import ADJACENCIES, Claim, Mechanism
from mia_audit.proving.neighbours import DOMAINS, pairs
from mia_audit.proving.sequential import RANGE
from mia_audit.registry import IN_FILE, Registry, load_file

COMMAND = "command:"
PATIENCE = 60.0
"""Time limit for a command's output, in seconds."""
EPSILON, DELTA = 1.0, 1e-5
"""The claim of this package's own mechanisms, if none is given."""


@dataclass(frozen=True)
class Options:
    """The claim and, for functions and commands, their inputs: the number of records and features, and the domain.

    With `secret_seed` the claim depends on the given seed. All bits of the seed must then matter, and two releases
    under one seed (from another input, or with the arguments in `terms`) must be independent. With `gaussian` the claim
    is that of a Gaussian mechanism without sampling; this package's mechanisms state this themselves.
    """

    epsilon: float | None = None
    delta: float | None = None
    adjacency: str | None = None
    records: int = 8
    features: int = 2
    classes: int = 0
    domain: str = "any"
    empty: bool = True
    secret_seed: bool = False
    terms: Sequence[Mapping[str, Any]] = ()
    gaussian: bool = False

    def claim(self, adjacency: str) -> Claim:
        """Return the claim for one of this package's mechanisms, with its known adjacency."""
        if self.adjacency not in (None, adjacency):
            raise UserError(f"--adjacency: the adjacency of this target is {adjacency}")
        epsilon = EPSILON if self.epsilon is None else self.epsilon
        delta = DELTA if self.delta is None else self.delta
        check_privacy(epsilon, delta)
        return Claim(epsilon, delta, adjacency)


Target = Callable[[Options], Sequence[Mechanism]]
"""Makes the mechanisms of a target, each with its claim."""

targets: Registry[Target] = Registry("target", "mia_audit.proving.targets", "-")
"""Targets by name."""


def resolve(name: str, options: Options) -> Sequence[Mechanism]:
    """Return the mechanisms of a registered target, `file.py:function`, or `command:COMMAND LINE`.

    Raises UserError for an unknown name, a file without that function, a function or command without a claim, and a
    claim too weak to be tested.
    """
    if options.epsilon is not None and options.epsilon * (1 + len(options.terms)) > RANGE:
        together = " in all releases with the same seed" if options.terms else ""
        raise UserError(
            f"--epsilon {options.epsilon:g}: expected at most {RANGE:g}{together}; an ε this large guarantees nothing that could be refuted"
        )
    if name.startswith(COMMAND):
        return [_external(name, Command(name.removeprefix(COMMAND)), options)]
    if IN_FILE.fullmatch(name):
        path, _, function = name.rpartition(":")
        module = load_file(Path(path), f"target '{name}'")
        run = getattr(module, function, None)
        if not callable(run):
            callables = [key for key, value in vars(module).items() if callable(value)]
            raise UserError(f"target '{name}': {path} has no function '{function}': {suggest(function, callables)}")
        return [_external(name, run, options)]
    if name not in targets:
        others = "or file.py:function, or 'command:…'"
        raise UserError(f"unknown target '{name}': {suggest(name, targets)}, {others}")
    return targets[name](options)


def _external(name: str, run: Callable[..., Any], options: Options) -> Mechanism:
    if options.epsilon is None or options.delta is None or options.adjacency is None:
        raise UserError(f"target '{name}': the claim is missing: give --epsilon, --delta and --adjacency")
    if not 0 < options.epsilon < float("inf") or not 0 <= options.delta < 1:
        raise UserError("--epsilon, --delta: expected a positive ε, and a δ of at least 0 and below 1")
    for value, known, key in (
        (options.adjacency, ADJACENCIES[:2], "adjacency"),
        (options.domain, DOMAINS, "domain"),
    ):
        if value not in known:
            raise UserError(f"--{key} {value}: expected {' or '.join(known)}")
    if options.classes < 0:
        raise UserError(f"--classes {options.classes}: expected a number of classes, or 0 if there is no label")
    if options.records < 1 or options.features < 1 + bool(options.classes):
        raise UserError(
            "--records, --features: expected at least one record and one feature, and with --classes a further column for the label"
        )
    neighbours = list(
        pairs(options.records, options.features, options.adjacency, options.domain, options.classes, options.empty)
    )
    other = neighbours[0].first.copy()
    other[0, 0] += 0.25  # this input is not adjacent to any input of the pairs
    claim = Claim(options.epsilon, options.delta, options.adjacency)
    return Mechanism(
        name,
        run,
        claim.gaussian() if options.gaussian else claim,
        neighbours,
        options.terms,
        other if options.secret_seed else None,
        secret_seed=options.secret_seed,
    )


class Command:
    """A mechanism in another program: for every run it reads a line of JSON, {"records": …, "randomness": …}, and writes a line of JSON.

    NaN and Infinity are written as in Python's json. The program is started once, and again whenever it ends. Its
    stderr is discarded.
    """

    def __init__(self, line: str) -> None:
        self.line = line
        self.folder = Path.cwd()
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, records: Any, randomness: int, **terms: Any) -> Any:
        """Run once. Raises RuntimeError if the program ends without output, and TimeoutError if it is too slow."""
        question = json.dumps({"records": records.tolist(), "randomness": randomness, **terms})
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(question + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # the output before the program's end is read below
        if not select.select([process.stdout], [], [], PATIENCE)[0]:
            self.close()
            raise TimeoutError(f"no output in {PATIENCE:g} seconds")
        answer = process.stdout.readline()
        if not answer:
            code = process.wait()
            self._process = None
            raise RuntimeError(f"the command ended with exit code {code}")
        return json.loads(answer)

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self.line,
                shell=True,
                text=True,
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._process

    def close(self) -> None:
        """End the program."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
