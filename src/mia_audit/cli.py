"""The command line: one subcommand per stage of the workflow, and a few for people."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from keyword import iskeyword
from types import ModuleType

from mia_audit.errors import UserError

COMMANDS = {
    "sample-images": "write made-up images to try an audit of images on",
    "pool": "load a data set, drop duplicates, set public records aside",
    "membership": "draw who is in whose training set",
    "architecture": "check that a model fits its pool and its mechanisms",
    "weights": "fetch published weights, or read a file of them, for shadows to start from",
    "pretrain": "train the public model that shadows start from",
    "train": "train a block of shadow models",
    "signals": "compute the signals of a block of shadow models",
    "cost": "what a training step took under every mechanism, from the logs",
    "interpretability": "measure explanations, and what privacy does to them",
    "gather": "join the tables of all blocks of a setting",
    "black-box": "record what a black box says of a pool, for explanations of it",
    "explain-privately": "explain a black box privately and measure what it costs and misses",
    "explanation-signals": "signals of who is in the explanation set, from explanations of a fixed black box",
    "private-report": "tables and figures of private explanations",
    "attack": "turn signals into membership scores",
    "evaluate": "read ROC metrics off membership scores",
    "tables": "write the tables of an audit (CSV, Parquet, LaTeX)",
    "figures": "draw the figures of an audit (PDF, SVG, PNG)",
    "side-by-side": "draw the same records' explanations by several architectures",
    "filters": "draw the filters of locally linear maps",
    "report": "write the self-contained HTML report",
    "bound": "lower bounds on ε that the attacks prove",
    "compare": "is one attack better than another on the same targets?",
    "audit": "audit score matrices of your own: attacks, metrics, figures and report in one step",
    "import": "read published score files into a signals.parquet",
    "reproduce": "the paper's Table 3 beside what its published score matrices say",
    "plan": "what an audit will take: models, jobs, hours, disk, memory",
    "doctor": "check this machine before an audit runs on it",
    "epsilon": "what a noise multiplier promises, or which one a budget needs",
    "verify": "check that every file of an audit is still what was written",
    "schema": "write config/schema.json and the key table of config/README.md",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; a user's mistake is one line on stderr and exit code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = next((word for word in arguments if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(
        prog="mia-audit", description="Audit what models and their explanations leak about their training set."
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command, line in COMMANDS.items():
        subparser = subparsers.add_parser(command, help=line, description=_sentence(line))
        if command == name:  # the others' arguments, and what they import, are not needed
            _module(command).add_arguments(subparser)
    options = parser.parse_args(arguments)
    try:
        _module(options.command).run(options)
    except UserError as error:
        print(f"mia-audit: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}{'' if line.endswith('?') else '.'}"


def _module(command: str) -> ModuleType:
    """Import a subcommand's file; one whose name Python keeps for itself has an underscore behind it."""
    return importlib.import_module(f"mia_audit.commands.{command.replace('-', '_')}{'_' * iskeyword(command)}")


if __name__ == "__main__":
    sys.exit(main())
