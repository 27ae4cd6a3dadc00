"""The command line: subcommands for people, and one for every stage of the workflow."""

import argparse
import errno
import importlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mia_audit.errors import QUOTED, Mistakes, UserError, first_line
from mia_audit.sanitise import safe_streams, visible

LONGEST = 10_000
"""Largest length of a message in characters, since it may quote a file written by others."""
LONG = re.compile(rf"(?<=[ (=\[]')[^'/]{{{QUOTED + 1},}}(?=')|[^\s'/:]{{{3 * QUOTED},}}")
"""A quoted text, or a word, of which the first characters are enough."""

FOR_PEOPLE = {
    "init": "look at your data and write a config that runs",
    "run": "check a config and run the workflow on it",
    "plan": "estimate what an audit takes: models, jobs, hours, disk, memory",
    "check": "find the mistakes in a config, its data and its models, without running any code that it names",
    "verify": "check that no file of an audit has changed",
    "answer": "print the answer of a finished audit's report",
    "gate": "check a finished audit against a policy: pass (exit code 0), fail (3) or inconclusive (4)",
    "audit": "audit your own score matrices: attacks, metrics, figures and report in one step",
    "draw-membership": "draw the records that each of your own models should be trained on",
    "import": "convert published score files to a signals.parquet",
    "release": "train one model on the whole pool for release, with its model card",
    "ledger": "print the releases from a data set, or add one",
    "epsilon": "compute the ε of a noise multiplier, or the noise multiplier of an ε",
    "epsilon-bound": "compute lower bounds on ε from membership scores",
    "canaries": "audit one real training run with canaries, each in its training set with probability ½",
    "reproduce": "compare the paper's Table 3 with its published score matrices",
    "paper": "write a paper's tables and figures with its printed numbers beside those of your audits",
}

STAGES = {
    "pool": "load a data set, drop duplicates, set public records aside",
    "groups": "assign the records of a pool to groups",
    "membership": "draw every shadow model's training set",
    "architecture": "check that a model fits its pool and its mechanisms",
    "weights": "download or read published initial weights of shadow models",
    "pretrain": "train the public model from which shadow models start",
    "train": "train the missing shadow models of a job",
    "canary-draw": "draw the canaries of a data set for one training run",
    "canary-bounds": "train once on canaries, without a seed, and compute lower bounds on ε",
    "discard": "delete the weights of shadow models whose signals are computed",
    "signals": "compute the signals of some shadow models",
    "target": "import a finished model, to attack it with shadow models of its recipe",
    "merge": "join the tables of all shadow models of a setting",
    "explanation-metrics": "measure explanations and the effect of privacy on them",
    "black-box": "record a black box's outputs on a pool",
    "explain-privately": "explain a black box privately, and measure cost and error",
    "explanation-signals": "compute signals of membership in the explanation set of a black box",
    "attack": "turn signals into membership scores",
    "evaluate": "compute ROC metrics of membership scores",
    "evaluate-groups": "compute the same metrics for every group of records",
    "filters": "draw the filters of locally linear maps",
    "report": "write tables, figures and the self-contained HTML report",
    "over-seeds": "write the means over seeds: tables, figure, answer and report",
    "manifest": "list the files of finished results with their SHA-256",
}

COMMANDS = FOR_PEOPLE | STAGES

MODULES = {
    "after": ("answer", "gate", "verify"),
    "before": ("init", "check", "plan", "run", "epsilon"),
    "canaries": ("canaries", "canary-draw", "canary-bounds"),
    "explaining": ("explanation-metrics", "black-box", "explain-privately", "explanation-signals"),
    "matrices": ("audit", "import", "draw-membership"),
    "models": ("architecture", "weights", "pretrain", "target"),
    "papers": ("paper", "reproduce"),
    "pools": ("pool", "groups", "membership"),
    "release": ("release", "ledger"),
    "report": ("report", "filters", "over-seeds", "manifest"),
    "scores": ("attack", "evaluate", "evaluate-groups", "epsilon-bound"),
    "signals": ("signals", "merge"),
    "training": ("train", "discard"),
}
"""The commands of every module of `mia_audit.commands`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code; a user's mistake gives one line on stderr and exit code 2.

    Without `argv` the process's own arguments are used. In that case the workflow's warm worker, if there is one, runs
    the stages.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    # set by `run`; programs that a user's code starts find the modules beside them
    os.environ.pop("PYTHONSAFEPATH", None)
    if argv is None and arguments and arguments[0] in STAGES:
        from mia_audit.runtime.warm import run_warm  # commands for people do not need the worker's imports

        code = run_warm(arguments)
        if code is not None:
            return code
    return _run(arguments)


def serve(listener: int, pytorch: bool) -> None:
    """Run the warm worker, which runs stages for the jobs of a workflow."""
    from mia_audit.runtime import warm

    warm.serve(listener, _run, lambda stage: function_of(stage, "run_{}"), pytorch)


OUTPUTS = ("out", "json", "junit")
"""Options that name what a command writes."""


def _run(arguments: Sequence[str]) -> int:
    started = time.monotonic()
    name = next((word for word in arguments if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(
        prog="mia-audit",
        usage="mia-audit COMMAND …",
        description="Audit what models and their explanations leak about their training set.\n\n"
        "mia-audit COMMAND --help lists the arguments of a command.",
        epilog="\n".join(["for people:", *_listed(FOR_PEOPLE), "", "stages of the workflow:", *_listed(STAGES)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    number = _version() if "--version" in arguments else ""
    parser.add_argument("--version", action="version", version=f"mia-audit {number}", help="print the version")
    subparsers = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", prog="mia-audit", help=argparse.SUPPRESS
    )
    for command, line in COMMANDS.items():
        subparser = subparsers.add_parser(command, description=f"{line[0].upper()}{line[1:]}.")
        if command == name:  # other commands' arguments and imports are not needed
            function_of(command, "{}_arguments")(subparser)
            if command in STAGES:
                subparser.add_argument("--usage", type=Path, metavar="FILE", help="file for time and peak memory (TSV)")
    # argparse takes what follows -- for a positional argument only where it stands beside the others
    before, after = list(arguments), list[str]()
    if "--" in arguments and name == "run":
        place = before.index("--")
        before, after = before[:place], before[place + 1 :]
    with safe_streams():
        options = parser.parse_args(before)
        if after:
            options.options = [*options.options, *after]
        return _call(options, started)


def _version() -> str:
    from importlib.metadata import version

    return version("mia-audit")


def _check_outputs(options: argparse.Namespace) -> None:
    """Raise UserError if a file that a command writes would replace a link, a file that the command reads, or a result."""
    given = {name: value for name, value in vars(options).items() if isinstance(value, Path)}
    if outputs := [name for name in OUTPUTS if name in given]:
        from mia_audit.storage.atomic import check_overwritten

        read = [path for name, path in given.items() if name not in (*OUTPUTS, "usage")]
        for name in outputs:
            check_overwritten(given[name], *read)


def readable(message: str) -> str:
    """Return a message as one line; long words and quoted texts are cut, paths are left whole."""
    line = LONG.sub(lambda found: f"{found[0][:QUOTED]}…", visible(message))
    return f"{line[:LONGEST]}{'…' * (len(line) > LONGEST)}"


def _call(options: argparse.Namespace, started: float) -> int:
    try:
        try:
            _check_outputs(options)
            code: int | None = function_of(options.command, "run_{}")(options)
        finally:
            if getattr(options, "usage", None):
                from mia_audit.runtime.progress import write_usage

                write_usage(options.usage, time.monotonic() - started)
    except UserError as error:
        for message in map(readable, error.messages if isinstance(error, Mistakes) else [str(error)]):
            print(f"mia-audit: {message}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"mia-audit: not enough memory: {visible(first_line(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("mia-audit: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM) or not error.filename:
            raise
        print(f"mia-audit: {visible(str(error.filename))}: {os.strerror(error.errno).lower()}", file=sys.stderr)
        return 2
    return code or 0


def _listed(commands: Mapping[str, str]) -> Iterator[str]:
    width = max(map(len, COMMANDS))
    yield from (f"  {name:{width}}  {line}" for name, line in commands.items())


def function_of(command: str, name: str) -> Callable[..., Any]:
    """Return a subcommand's function by the pattern of its name, importing its module."""
    module = next(module for module, commands in MODULES.items() if command in commands)
    function: Callable[..., Any] = getattr(
        importlib.import_module(f"mia_audit.commands.{module}"), name.format(command.replace("-", "_"))
    )
    return function


if __name__ == "__main__":
    sys.exit(main())
