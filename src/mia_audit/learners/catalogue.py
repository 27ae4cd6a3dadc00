"""The registry of learners, and their look-up by architecture.json. Nothing here imports torch."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from mia_audit.errors import UserError
from mia_audit.foreign_json import read_object
from mia_audit.learners.protocol import Compute, Learner, LearnerFactory, ModelSection
from mia_audit.registry import Registry, file_digest

learners: Registry[LearnerFactory] = Registry("learner", "mia_audit.learners.kinds", "-")


def open_learner(path: Path, compute: Compute) -> tuple[dict[str, Any], Learner]:
    """Read an architecture.json, and return it and the learner that it names, set up with `compute`.

    Raises UserError, which names the file, if the file is missing or damaged, the learner is unknown, or the
    architecture does not suit the learner.
    """
    architecture = read_object(path, "a file that `mia-audit architecture` wrote")
    if not isinstance(architecture.get("learner"), str):
        raise UserError(f"{path}: the key 'learner' is missing; expected a file that `mia-audit architecture` wrote")
    code = architecture.get("code", {})
    if not isinstance(code, dict):
        raise UserError(f"{path}: code: expected code files and their digests")
    for file, digest in code.items():
        if digest != file_digest(file):
            raise UserError(f"{file}: changed after {path} was written; start the workflow again")
    try:
        return architecture, learners[architecture["learner"]](architecture, compute)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def described(learner: str, section: ModelSection, pool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that architecture.json has for every learner except the built-in one. The learner adds its own keys."""
    return {
        "name": section.name,
        "learner": learner,
        "model": section.model,
        "arguments": dict(section.parameters),
        "shape": list(pool["shape"]),
        "input_shape": list(pool["shape"]),
        "classes": len(pool["classes"]),
        "outputs": section.outputs,
        "votes": section.votes,
        "code": dict(section.code),
        "reads_public": False,
    }


MakesEstimator = TypeVar("MakesEstimator", bound=Callable[..., Any])


def estimator() -> Callable[[MakesEstimator], MakesEstimator]:
    """Declare as a model the decorated function `make(**parameters)`, which returns an unfitted estimator.

    A config names it as `file.py:function`. `learners.naming` looks for the decorator in the file's text, to
    distinguish the function from a training function.
    """

    return lambda make: make
