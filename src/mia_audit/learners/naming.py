"""Determine the learner for a model in a config from the model's name and the text of the user's file, which is not run.

Run a user's code in this process: an exception becomes one line that names the file.

Seed the global generators of Python, NumPy and torch while the user's own code trains a model.
"""

from __future__ import annotations

import ast
import random
import secrets
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np

from mia_audit.errors import UserError, first_line, suggest
from mia_audit.registry import CLASS, FILE, IN_FILE, line_in

BUILT_IN = "torch-module"
"""The learner of the built-in models; only this one uses the built-in loop."""

Outputs = Literal["logits", "probabilities", "labels"]
"""Kinds of a model's outputs."""

TRAINED_BY = {BUILT_IN: "the built-in loop", "estimator": "its own fit", "script": "your script"}
"""Descriptions of how each learner's models are trained."""

ESTIMATOR = "estimator"
"""Name of the decorator of functions that return an estimator."""


def learner_of(model: str) -> str:
    """Return the learner of an architecture, given its model.

    `file.py` is a script, and so is `file.py:function` if the function has no decorator. A function decorated by
    `@estimator` returns an estimator. A function with another decorator, or a name that is not a function, is an
    architecture. Raises UserError if the file cannot be read.
    """
    if FILE.fullmatch(model):
        functions_of(Path(model))
        return "script"
    if match := IN_FILE.fullmatch(model):
        decorators = functions_of(Path(match["path"])).get(match["function"])
        if decorators == []:
            return "script"
        return "estimator" if decorators and ESTIMATOR in decorators else BUILT_IN
    return "estimator" if CLASS.fullmatch(model) else BUILT_IN


def described_as(learner: str) -> str:
    """Return a description of how a learner's models are trained."""
    return TRAINED_BY.get(learner, f"the learner '{learner}'")


def script_and_function(model: str) -> tuple[Path, str]:
    """Return the file of a script and the name of its training function: `train` if `file.py` names none."""
    match = IN_FILE.fullmatch(model)
    return (Path(match["path"]), match["function"]) if match else (Path(model), "train")


def functions_of(path: Path) -> dict[str, list[str]]:
    """Return the functions that a Python file defines at its top level, each with the names of its decorators.

    The file is parsed, not run. Raises UserError if it is missing or not Python.
    """
    return {
        node.name: [_last_name(decorator) for decorator in node.decorator_list]
        for node in _parsed(path).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def check_script(path: Path, function: str, outputs: str) -> None:
    """Raise UserError unless a script has its training function. If it has `predict`, the section must state `outputs`."""
    functions = functions_of(path)
    if function not in functions:
        raise UserError(
            f"{path} has no function '{function}(task)': {suggest(function, functions) if functions else 'it has none'}"
        )
    if not _takes_task(path, function):
        raise UserError(
            f"{path}: '{function}' takes no task: expected {function}(task), which returns a trained model; a function that returns"
            " an unfitted estimator is declared by @estimator() from mia_audit.learners"
        )
    if "predict" in functions and not outputs:
        raise UserError(f"outputs: missing; state what predict of {path} returns: logits, probabilities or labels")
    if "explain" in functions and "predict" not in functions:
        raise UserError(f"{path} defines explain, but no predict(model, records): define both")


def _takes_task(path: Path, function: str) -> bool:
    """Return whether a function of a Python file can be called with one argument."""
    for node in _parsed(path).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            given = node.args
            count = len(given.posonlyargs) + len(given.args)
            return bool(count or given.vararg) and count - len(given.defaults) <= 1
    return True


def packages_of(path: Path) -> set[str]:
    """Return the top-level names of the packages that a Python file imports."""
    named: list[str] = []
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Import):
            named += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            named.append(node.module)
    return {name.partition(".")[0] for name in named}


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"no such file: {path} in {Path.cwd()}, where relative paths start") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as Python: {error}") from None
    except SyntaxError as error:
        raise UserError(f"{path}, line {error.lineno}: SyntaxError: {error.msg}") from None


def _last_name(node: ast.expr) -> str:
    """Return the last name of a decorator: `estimator` of `learners.estimator()`."""
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@contextmanager
def user_code(where: str, path: Path | None = None) -> Iterator[None]:
    """Run the user's code within this context.

    An exception is printed with its traceback and becomes a UserError that begins with `where` and, if the file at
    `path` raised the exception, names the line.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        line = line_in(error, path.resolve()) if path else 0
        at = f"{path}, line {line}: " if line else ""
        raise UserError(f"{where}: {at}{type(error).__name__}: {first_line(error)} (the traceback is above)") from None


WORDS = 624
"""Number of 32-bit words in the state of a Mersenne Twister, the CPU generator of all three packages."""


def seed_everything(seed: int | None) -> None:
    """Seed the global generators of all packages that are imported.

    Without a seed, as for a released model, their whole state comes from the operating system's entropy.
    """
    if seed is None:
        random.seed(secrets.token_bytes(4 * WORDS))
        np.random.seed(np.frombuffer(secrets.token_bytes(4 * WORDS), np.uint32))  # noqa: NPY002
        if "torch" in sys.modules:
            from mia_audit.privacy.noise import seed_layers

            seed_layers(secrets.token_bytes(4 * WORDS))
        return
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - for scripts that draw from it
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
