"""`estimator`: models with scikit-learn's interface, `fit` and `predict_proba`, trained on flattened records.

Estimators on disk, in skops' format: data with the names of types, and no pickle. The same model gives the same bytes.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import zipfile
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from mia_audit.arrays import real_array
from mia_audit.errors import UserError, first_line, suggest
from mia_audit.learners.answers import (
    FITTED_CLASSES,
    UNKNOWN_VOTES,
    BatchedModel,
    boxed_attributions,
    check_frame,
    known_classes,
    logits_of,
    prepared_rows,
)
from mia_audit.learners.finished import copy_into
from mia_audit.learners.naming import Outputs, packages_of, script_and_function, seed_everything, user_code
from mia_audit.learners.protocol import Attribution, Compute, ExplanationRequest, ModelSection, described
from mia_audit.registry import CLASS, IN_FILE, MODULE, load_class, load_file
from mia_audit.seeds import seed_for
from mia_audit.storage import atomic_write
from mia_audit.training.task import Records, TrainingTask

if TYPE_CHECKING:
    from jaxtyping import Float

FILE = "estimator.skops"

SCHEMA = "schema.json"
"""The file inside a .skops archive that describes the model; the other files hold its arrays."""

TRUSTED = ("sklearn", "numpy", "scipy", "collections")
"""Packages whose types every stored estimator may contain."""

HARMLESS = ("functools.partial", "sklearn.utils.validation.check_array")
"""What else HistGradientBoosting contains where it has categories; the function that a partial calls is checked by itself."""

INSTALL = "install it with: pip install 'mia-audit[estimators]'"


def save_estimator(estimator: Any, folder: Path) -> None:
    """Write an estimator into a folder; UserError if skops cannot store it."""
    skops = _skops()
    try:
        stored = skops.dumps(estimator)
    except Exception as error:  # skops raises various errors for unknown objects
        raise UserError(
            f"an estimator of type {type(estimator).__name__} cannot be stored by skops: {first_line(error)}"
        ) from None
    with atomic_write(folder / FILE) as partial:
        partial.write_bytes(_same_bytes(stored))


def load_estimator(folder: Path, packages: Iterable[str]) -> Any:
    """Open an estimator that contains only types of `packages`, scikit-learn, NumPy, SciPy and the standard library's containers.

    Raises UserError, which names the file, if the file is missing, damaged, or contains any other type.
    """
    skops, path = _skops(), folder / FILE
    if not path.exists():
        raise UserError(f"{path}: no such file; expected an estimator")
    try:
        types = skops.get_untrusted_types(file=path)
    except Exception as error:  # zipfile, json and NumPy raise various errors for a damaged archive
        raise UserError(f"{path}: damaged, or not an estimator: {first_line(error)}") from None
    allowed = {*TRUSTED, *packages}
    if foreign := [name for name in types if not _is_type_of(name, allowed)]:
        raise UserError(
            f"{path}: contains a {foreign[0]}, which is not a type of {', '.join(sorted(allowed))}; for models of other packages,"
            " write a script that imports these packages"
        )
    try:
        return skops.load(path, trusted=types)
    except Exception as error:
        raise UserError(f"{path}: damaged, or written by another version of its library: {first_line(error)}") from None


def _skops() -> Any:
    try:
        import skops.io
    except ImportError:
        raise UserError(f"estimators are stored by skops, which is missing; {INSTALL}") from None
    return skops.io


def _is_type_of(name: str, packages: set[str]) -> bool:
    """Return whether a dotted name is a type of one of the packages, or of the user's own file."""
    module, _, last = name.rpartition(".")
    if module.startswith(MODULE) or name in HARMLESS:
        return True
    if module.partition(".")[0] not in packages:
        return False
    try:
        return isinstance(getattr(importlib.import_module(module), last, None), type)
    except ImportError:
        return False


def _same_bytes(stored: bytes) -> bytes:
    """Replace skops' memory addresses and times in an archive by numbers in the order of its schema."""
    with zipfile.ZipFile(BytesIO(stored)) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    numbers: dict[int, int] = {}
    names: dict[str, str] = {}

    def renumber(node: Any) -> Any:
        if isinstance(node, list):
            return [renumber(part) for part in node]
        if not isinstance(node, dict):
            return node
        renewed: dict[str, Any] = {}
        for key, value in node.items():
            if key == "__id__":
                renewed[key] = numbers.setdefault(value, len(numbers))
            elif key == "file" and isinstance(value, str) and value in contents:
                renewed[key] = names.setdefault(value, f"{len(names)}{Path(value).suffix}")
            else:
                renewed[key] = renumber(value)
        return renewed

    schema = json.dumps(renumber(json.loads(contents[SCHEMA]))).encode()
    written = BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in [*((new, contents[old]) for old, new in names.items()), (SCHEMA, schema)]:
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return written.getvalue()


SEEDS = ("random_state", "random_seed")
"""Names of constructor arguments that seed an estimator."""

ASKED: dict[str, str] = {"probabilities": "predict_proba", "logits": "decision_function", "labels": "predict"}
"""The method that returns each kind of output."""


class EstimatorModel(BatchedModel):
    """A fitted estimator, queried one batch of records at a time."""

    def __init__(self, estimator: Any, outputs: Outputs, votes: int, compute: Compute, where: str) -> None:
        super().__init__(where, compute.micro_batch)
        self.estimator = estimator
        self._outputs = outputs
        self._votes = votes or votes_of(estimator) or UNKNOWN_VOTES
        self._threads = compute.threads

    def attributions(
        self, records: Records, request: ExplanationRequest
    ) -> dict[Attribution, Float[np.ndarray, "n ..."]]:
        """Return the attributions of explainers that need the estimator, or only its outputs."""
        from threadpoolctl import threadpool_limits

        with threadpool_limits(self._threads):
            return boxed_attributions(self._asked, records, request, request.explainers, self.estimator)

    def _batch(self, records: Records) -> Float[np.ndarray, "b C"]:
        from threadpoolctl import threadpool_limits

        method = ASKED[self._outputs]
        ask = getattr(self.estimator, method, None)
        if ask is None:
            able = [kind for kind, name in ASKED.items() if hasattr(self.estimator, name)]
            raise UserError(
                f"{self._where}: the estimator has no {method}; it supports outputs: {' or '.join(able) or 'none'}"
            )
        with user_code(self._where), threadpool_limits(self._threads):
            returned = ask(rows_of(records))
        check_frame(returned, records, self._where)
        answer = real_array(returned, self._where)
        known = known_classes(self.estimator)
        if self._outputs == "labels" and hasattr(self.estimator, FITTED_CLASSES):
            answer = np.asarray(getattr(self.estimator, FITTED_CLASSES))[answer.astype(np.int64)]
        known = np.arange(records.classes) if known is None else known
        answer = self._of_all_classes(answer, known, records.classes)
        return logits_of(answer, self._outputs, records, self._votes, self._where)

    def _of_all_classes(self, answer: np.ndarray, known: np.ndarray, classes: int) -> np.ndarray:
        """Return outputs with a column for each of the pool's classes; classes without a training record get the record's smallest value."""
        if self._outputs == "labels":
            return answer
        if answer.ndim == 1 and len(known) == 2:  # for two classes the decision function is a single number
            answer = np.stack([np.zeros_like(answer), answer], axis=1)
        if answer.ndim != 2 or answer.shape[1] != len(known) or len(known) == classes:
            return answer
        spread = np.zeros((len(answer), classes), dtype=answer.dtype)
        if self._outputs == "logits":
            spread += answer.min(axis=1, keepdims=True, initial=0.0)
        spread[:, known.astype(np.int64)] = answer
        return spread

    def save(self, folder: Path) -> None:
        """Write the estimator in skops' format."""
        save_estimator(self.estimator, folder)


class EstimatorLearner:
    """Trains and opens the estimators of an architecture.json."""

    def __init__(self, architecture: Mapping[str, Any], compute: Compute) -> None:
        missing = [key for key in ("model", "arguments", "outputs", "votes") if key not in architecture]
        if missing:
            raise UserError(f"the key '{missing[0]}' is missing; expected the architecture of an estimator")
        self.architecture = architecture
        self._compute = compute
        self._model = str(architecture["model"])
        self._where = f"architectures.{architecture.get('name', self._model)}: {self._model}"
        self._make, self._packages = constructor(self._model)
        self.environment = {"threads": compute.threads, **versions(self._packages)}

    @classmethod
    def describe(cls, section: ModelSection, pool: Mapping[str, Any]) -> dict[str, Any]:
        """Build the estimator once, unfitted, and return its architecture.json."""
        metadata = described("estimator", section, pool) | {"outputs": section.outputs or "probabilities"}
        try:
            import skops.io  # noqa: F401
        except ImportError:
            raise UserError(f"architectures.{section.name}: estimators are stored by skops; {INSTALL}") from None
        learner = cls(metadata, Compute())
        built = learner.unfitted(None, "describe")
        if lacking := [name for name in ("fit", ASKED[metadata["outputs"]]) if not hasattr(built, name)]:
            able = [kind for kind, name in ASKED.items() if hasattr(built, name)]
            raise UserError(
                f"{learner._where}: the estimator has no {lacking[0]}"
                + (f"; it supports outputs: {' or '.join(able)}" if able and lacking != ["fit"] else "")
            )
        return metadata | {"versions": versions(learner._packages)}

    def unfitted(self, threads: int | None, *key: int | str) -> Any:
        """Return an estimator with the config's parameters and `threads` threads; with a `key`, its parts have keyed seeds."""
        given = self.architecture["arguments"]
        try:
            accepted = inspect.signature(self._make).parameters
            seeds = {name: _seed(*key, name) for name in SEEDS if key and name in accepted and name not in given}
            with user_code(self._where):
                estimator = self._make(**given, **seeds)
        except UserError as error:
            unknown = [name for name in given if name not in accepted]
            hint = f"; parameters.{unknown[0]}: {suggest(unknown[0], accepted)}" if unknown else ""
            raise UserError(f"{error}{hint}") from None
        except (TypeError, ValueError) as error:  # the constructor has no signature
            raise UserError(f"{self._where}: {first_line(error)}") from None
        return prepared(estimator, threads, *key)

    def train(self, task: TrainingTask) -> EstimatorModel:
        """Fit an estimator to the task's members."""
        from threadpoolctl import threadpool_limits

        if task.key is None:
            seed_everything(None)  # parts of an estimator without a seed use NumPy's global generator
        estimator = self.unfitted(self._compute.threads, *(() if task.key is None else (*task.key, task.shadow)))
        inside = task.records[np.flatnonzero(task.members)]
        with user_code(self._where), threadpool_limits(self._compute.threads):
            fit(estimator, rows_of(inside), inside.labels, inside.classes)
        task.progress(len(inside), 1)
        return self.model(estimator)

    def load(self, folder: Path) -> EstimatorModel:
        """Open a stored estimator, which may hold types of its own package and of packages that the user's file imports."""
        return self.model(load_estimator(folder, self._packages))

    def adopt(self, path: Path, folder: Path) -> None:
        """Copy an estimator that skops stored."""
        if path.is_dir():
            path = path / FILE
        if path.suffix != ".skops":
            raise UserError(
                f"{path}: not a .skops file. Pickles are not opened; write the estimator with skops.io.dump(model, 'model.skops')"
            )
        copy_into(folder, path, FILE)
        self._check_recipe(load_estimator(folder, self._packages))

    def _check_recipe(self, finished: Any) -> None:
        """Raise UserError if a finished estimator has another type or other parameters than those that are trained."""
        trained = self.unfitted(None)
        if type(finished) is not type(trained):
            raise UserError(
                f"a {type(finished).__name__}, but shadow models are a {type(trained).__name__} ({self._where})"
            )
        ours, theirs = _plain_parameters(trained), _plain_parameters(finished)
        for name in ours.keys() & theirs.keys():
            if ours[name] != theirs[name]:
                raise UserError(
                    f"its {name} is {theirs[name]}, and {ours[name]} in shadow models ({self._where}), which must be of the same"
                    " recipe: set the parameters of the finished model"
                )

    def model(self, estimator: Any) -> EstimatorModel:
        """Return a fitted estimator as a model."""
        outputs = cast(Outputs, self.architecture["outputs"])
        return EstimatorModel(estimator, outputs, self.architecture["votes"], self._compute, self._where)


def fit(estimator: Any, rows: Any, labels: np.ndarray, classes: int) -> None:
    """Fit an estimator; where the labels lack classes they are numbered anew, because some libraries expect 0, 1 … k − 1.

    They are not where parameters name classes, as the dictionary `class_weight` does.
    """
    present, numbered = np.unique(labels, return_inverse=True)
    parameters = estimator.get_params(deep=True) if hasattr(estimator, "get_params") else {}
    weighted = any(name.endswith("class_weight") and isinstance(value, dict) for name, value in parameters.items())
    if len(present) == classes or weighted:
        estimator.fit(rows, labels)
    else:
        estimator.fit(rows, numbered)
        setattr(estimator, FITTED_CLASSES, present)


def constructor(model: str) -> tuple[Any, set[str]]:
    """Return the class or function that creates an estimator, and the packages whose types it may contain.

    Raises UserError if the package is missing or has no such class.
    """
    if not IN_FILE.fullmatch(model) and (match := CLASS.fullmatch(model)):
        return load_class(model, f"model '{model}'"), {match["module"].partition(".")[0]}
    path, function = script_and_function(model)
    made = getattr(load_file(path, f"model '{model}'"), function, None)
    if not callable(made):
        raise UserError(f"model '{model}': {path} has no function '{function}'")
    return made, packages_of(path)


def prepared(estimator: Any, threads: int | None, *key: int | str) -> Any:
    """Seed every part of an estimator that takes a seed and has none, by key. Set the threads of every part that uses threads."""
    if not hasattr(estimator, "get_params"):
        return estimator
    parameters = estimator.get_params(deep=True)

    def of_sklearn(name: str) -> bool:  # scikit-learn uses one thread by default; LightGBM uses every core
        return type(parameters.get(name.rpartition("__")[0], estimator)).__module__.startswith("sklearn.")

    seeds = {
        name: _seed(*key, name)
        for name, value in sorted(parameters.items())
        if key and value is None and name.rpartition("__")[2] in SEEDS
    }
    jobs = {
        name: threads
        for name, value in parameters.items()
        if threads and value is None and name.rpartition("__")[2] == "n_jobs" and (threads > 1 or not of_sklearn(name))
    }
    return estimator.set_params(**seeds, **jobs) if seeds or jobs else estimator


def _plain_parameters(estimator: Any) -> dict[str, Any]:
    """Return an estimator's parameters that are numbers, truth values, text or None, but no seeds, threads or verbosity."""
    known = estimator.get_params(deep=True) if hasattr(estimator, "get_params") else {}
    return {
        name: value
        for name, value in sorted(known.items())
        if (value is None or (isinstance(value, bool | int | float | str) and value == value))
        and name.rpartition("__")[2] not in (*SEEDS, "n_jobs", "verbose", "verbosity", "silent", "device")
    }


def _seed(*key: int | str) -> int:
    return seed_for(*key, "estimator") % 2**31


def rows_of(records: Records) -> Any:
    """Return records as rows: tables as stored or as a frame, images flattened and with pixels in [0, 1]."""
    return prepared_rows(np.ascontiguousarray(records.values).reshape(len(records), -1), records.metadata)


def votes_of(estimator: Any) -> int:
    """Return the number of votes (trees, neighbours, members) averaged in an estimator's probabilities; 0 if they are not means of votes.

    For a pipeline return the number for its last step.
    """
    from sklearn.ensemble import BaggingClassifier, ExtraTreesClassifier, RandomForestClassifier
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import Pipeline
    from sklearn.tree import DecisionTreeClassifier

    if isinstance(estimator, Pipeline):
        return votes_of(estimator.steps[-1][1])
    if isinstance(estimator, RandomForestClassifier | ExtraTreesClassifier | BaggingClassifier):
        return len(estimator.estimators_)
    if isinstance(estimator, KNeighborsClassifier):
        return int(estimator.n_neighbors)
    return 1 if isinstance(estimator, DecisionTreeClassifier) else 0


def is_estimator(model: Any) -> bool:
    """Return whether a model has scikit-learn's interface."""
    return hasattr(model, "fit") and hasattr(model, "get_params") and hasattr(model, "predict")


def versions(packages: set[str]) -> dict[str, str]:
    """Return the versions of packages by import name, without packages that have no version."""
    numbers = {package: version_of(package) for package in sorted(packages | {"sklearn", "numpy"})}
    return {package: number for package, number in numbers.items() if number}


@cache
def version_of(package: str) -> str | None:
    """Return the version of an imported package, from its `__version__` if possible, because a distribution look-up takes a second."""
    own = getattr(sys.modules.get(package), "__version__", None)
    if isinstance(own, str):
        return own
    names = packages_distributions().get(package, [])
    try:
        return version(names[0]) if names else None
    except PackageNotFoundError:
        return None
