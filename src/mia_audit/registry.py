"""Registries: the members of one kind (source, architecture, mechanism, explainer, attack …) by their names in configs."""

import ast
import hashlib
import importlib
import importlib.util
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from mia_audit.errors import UserError, first_line, suggest

Member = TypeVar("Member")

IN_FILE = re.compile(r"(?P<path>[^:]+\.py):(?P<function>\w+)")
"""A member in the user's own file: `file.py:function`, relative to the working folder of the audit."""

FILE = re.compile(r"(?P<path>[^:\s]+\.py)")
"""Pattern of the user's own file."""

CLASS = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*)")
"""A class of an installed package: `package.module:Class`."""

HARMLESS = ("sklearn.", "captum:")
"""Beginnings of names of classes that are loaded without being listed: scikit-learn's estimators and captum's methods."""

MODULE = "mia_audit_file_"
"""Prefix of the module names under which users' files are loaded."""


class Registry(Generic[Member]):
    """Members of `kind`, looked up by name, or in the user's own file by `file.py:function`.

    Members register themselves in `modules`, which are imported at the first look-up; a package stands for all its
    files. These files are cheap to import, since they import torch and the like inside functions. Members are in the
    order of these files, whichever of them the process has imported before.
    """

    def __init__(self, kind: str, *modules: str) -> None:
        self.kind = kind
        self.modules = modules
        self._members: dict[str, Member] = {}
        self._files: dict[str, str] = {}
        self._patterns: list[tuple[re.Pattern[str], Callable[[re.Match[str]], Member | None]]] = []
        self._examples: list[str] = []
        self._in_files: list[tuple[Any, Member]] = []

    @cached_property
    def _known(self) -> dict[str, Member]:
        files = []
        for name in self.modules:
            package = getattr(importlib.import_module(name), "__path__", ())
            files += [name, *(f"{name}.{inside.name}" for inside in pkgutil.iter_modules(package))]
        for file in files:
            importlib.import_module(file)
        place = {file: number for number, file in enumerate(files)}
        in_order = sorted(self._members, key=lambda name: place.get(self._files[name], len(files)))
        self._members = {name: self._members[name] for name in in_order}
        return self._members

    def register(self, name: str, function: object = None) -> Callable[[Member], Member]:
        """Register a member under its name in configs.

        `function` is the object that the member's file defines, unless that is the member itself. In the user's own
        file the name is ignored: such members are named `file.py:function`.
        """

        def decorate(member: Member) -> Member:
            target = member if function is None else function
            if str(getattr(target, "__module__", "")).startswith(MODULE):
                self._in_files.append((target, member))
                return member
            if name in self._members:
                raise ValueError(f"{self.kind} '{name}' is registered twice")
            self._members[name], self._files[name] = member, str(getattr(target, "__module__", ""))
            return member

        return decorate

    def register_pattern(self, pattern: str, member: Callable[[re.Match[str]], Member | None], example: str) -> None:
        """Register all members whose names match a pattern; `member` constructs one from a match, or returns None."""
        self._patterns.append((re.compile(pattern), member))
        self._examples.append(example)

    def examples(self) -> list[str]:
        """List an example of a name for every pattern."""
        _ = self._known
        return sorted(self._examples)

    def names(self) -> list[str]:
        """List the known names; members by pattern and in users' files are not included."""
        return sorted(self)

    def check(self, name: str) -> None:
        """Raise UserError unless a member of that name exists. For `file.py:function` the file is loaded."""
        if IN_FILE.fullmatch(name):
            self._in_file(name)
        elif name not in self:
            raise UserError(f"unknown {self.kind} '{name}': {suggest(name, self)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __contains__(self, name: object) -> bool:
        return name in self._known or self._by_pattern(str(name)) is not None

    def __getitem__(self, name: str) -> Member:
        """Return the member of that name.

        Raises UserError for an unknown name, listing the known ones, and for a file that cannot be loaded.
        """
        if IN_FILE.fullmatch(name):
            return self._in_file(name)
        if name in self._known:
            return self._known[name]
        if (member := self._by_pattern(name)) is not None:
            return member
        raise UserError(f"unknown {self.kind} '{name}': {suggest(name, self)}")

    def _by_pattern(self, name: str) -> Member | None:
        _ = self._known
        matches = ((pattern.fullmatch(name), member) for pattern, member in self._patterns)
        return next((member(match) for match, member in matches if match), None)

    def _in_file(self, name: str) -> Member:
        path, _, function = name.rpartition(":")
        where = f"{self.kind} '{name}'"
        module = load_file(Path(path), where)
        if not hasattr(module, function):
            defined = [key for key, value in vars(module).items() if any(value is found for found, _ in self._in_files)]
            raise UserError(f"{where}: {path} has no '{function}': {suggest(function, defined)}")
        target = getattr(module, function)
        for defined_there, member in self._in_files:
            if defined_there is target:
                return member
        line = getattr(getattr(target, "__code__", None), "co_firstlineno", None)
        at = f"{path}, line {line}" if line else str(path)
        raise UserError(
            f"{where}: {at}: '{function}' is not declared as a {self.kind}; see CONTRIBUTING.md for the declaration"
        )


def code_of(text: str) -> list[str]:
    """Return the code that a text of a config names, with the local modules that its file imports.

    This is all that `load_file` and `load_class` can load: no other text is turned into code.
    """
    if path := _file_in(text):
        return sorted({path, *imported_beside(path)})
    return [text] if CLASS.fullmatch(text) and not text.startswith(HARMLESS) else []


def _file_in(text: str) -> str:
    """Return the Python file that a text names as `file.py` or `file.py:function`, or an empty text."""
    match = re.match(rf"{IN_FILE.pattern}(?=:|$)", text) or FILE.fullmatch(text)
    return match["path"] if match else ""


def code_files(value: Any) -> list[str]:
    """Return the sorted code files that a section, a mapping, a sequence or a string names.

    They are named as `file.py:function` or `file.py`. The local modules that these files import are included, because
    results that depend on the section depend on all of them.
    """
    if isinstance(value, str):
        return code_of(value) if _file_in(value) else []
    parts: Iterable[Any]
    if isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, Sequence):
        parts = value
    else:
        parts = value.model_dump().values() if isinstance(value, BaseModel) else ()
    return sorted({path for part in parts for path in code_files(part)})


def imported_beside(path: str) -> set[str]:
    """Return the local files that a Python file imports, directly or indirectly; empty if it is missing or not Python."""
    folder, files, left = Path(path).parent, set[str](), [Path(path)] if path.endswith(".py") else []
    while left:
        for module in _imports(left.pop(), folder):
            for beside in (module.with_suffix(".py"), module / "__init__.py"):
                if beside.is_file() and str(beside) not in {path, *files}:
                    files.add(str(beside))
                    left.append(beside)
    return files


def _imports(path: Path, folder: Path) -> set[Path]:
    """Return where the modules that a file imports would lie, and their packages, in a folder or from the file's own on."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()
    names: set[tuple[Path, str]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {(folder, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = Path(*path.parts[: -node.level]) if node.level else folder
            parts = [node.module] if node.module else []
            names |= {(start, ".".join([*parts, alias.name])) for alias in node.names if alias.name != "*"}
            names |= {(start, part) for part in parts}
    return {
        start.joinpath(*name.split(".")[:length]) for start, name in names for length in range(1, name.count(".") + 2)
    }


def file_digest(path: str) -> str:
    """Return the SHA-256 of a file, or an empty string if it is missing."""
    if not Path(path).is_file():
        return ""
    stat = Path(path).stat()
    return _digest(path, stat.st_size, stat.st_mtime_ns)


@lru_cache
def _digest(path: str, size: int, mtime: int) -> str:
    """Return the SHA-256 of a file. Size and modification time are part of the cache's key."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_class(text: str, where: str) -> type:
    """Return the estimator class that `package.module:Class` names, which is not called.

    Raises UserError if the package is missing, or what it holds under this name is not a class with `fit`.
    """
    module, _, name = text.partition(":")
    if not CLASS.fullmatch(text):
        raise UserError(f"{where}: '{text}': expected package.module:Class")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise UserError(f"{where}: {first_line(error)}; install the package that contains it") from None
    if not isinstance(found, type) or not callable(getattr(found, "fit", None)):
        raise UserError(f"{where}: {module} has no class '{name}' with a method fit; expected an estimator")
    return found


def load_file(path: Path, where: str) -> ModuleType:
    """Load a Python file once per process, under a module name derived from its path.

    Raises UserError that names file and line if the file is missing or raises an exception.
    """
    if not path.is_file():
        raise UserError(f"{where}: no such file: {path} in {Path.cwd()}, where relative paths start")
    resolved = path.resolve()
    name = f"{MODULE}{hashlib.sha256(str(resolved).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise UserError(f"{where}: {path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's file may raise any exception
        del sys.modules[name]
        raise UserError(
            f"{where}: {path}, line {line_in(error, resolved)}: {type(error).__name__}: {first_line(error)}"
        ) from None
    return module


@contextmanager
def forgotten_files(paths: Iterable[str]) -> Iterator[None]:
    """Within this context, the user's files are loaded again when they are needed; afterwards the earlier modules are back."""
    files = {str(Path(path).resolve()) for path in paths}
    known = {
        name: module
        for name, module in sys.modules.items()
        if name.startswith(MODULE) or getattr(module, "__file__", None) in files
    }
    for name in known:
        del sys.modules[name]
    try:
        yield
    finally:
        sys.modules.update(known)


def line_in(error: Exception, path: Path) -> int:
    """Return the innermost line of the file that raised an error, or the line of a syntax error."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 0
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno or 0 for frame in reversed(frames) if frame.filename == str(path)), 0)
