"""Read and validate an audit's YAML file; every mistake in it becomes one line that says how to fix it.

Read a config as plain YAML: only JSON's types, of bounded size, and nothing that Snakemake would run as code.

Read a policy's YAML file; every mistake in it becomes one line that says how to fix it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from itertools import accumulate, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from mia_audit.errors import UserError, suggest
from mia_audit.registry import FILE, code_of

if TYPE_CHECKING:
    from mia_audit.config.schema import Audit
    from mia_audit.report.spec import Policy

MOST_BYTES = 1 << 18
"""Largest size of a config in bytes."""
MOST_VALUES, MOST_DEPTH = 100_000, 50
"""Largest number of values in a config, with aliases expanded, and largest depth of nesting."""

YTE = ("__use_yte__", "__definitions__", "__variables__")
"""Keys that make Snakemake treat a config as a template of yte, and run its code."""


def folder_of(config: Path) -> Path:
    """Return the folder of an audit: its results lie there, and relative paths in its config start there.

    It is the config's own folder; for a config below `config/` of a Snakemake project, it is the project's.
    """
    path = config.absolute()
    for folder in path.parents:
        project = folder.parent
        if folder.name == "config" and any((project / name).is_file() for name in ("Snakefile", "workflow/Snakefile")):
            return project
    return path.parent


@contextmanager
def in_folder_of(config: Path) -> Iterator[Path]:
    """Work in the folder of an audit; the value is the path of its config there."""
    folder = folder_of(config)
    if not folder.is_dir() or folder.samefile(Path()):
        yield config
        return
    config = config.absolute()
    with chdir(folder):
        yield config


def read_plain(path: Path) -> Any:
    """Return the values of a config file; UserError for anything that is not plain YAML, or too large for a config."""
    try:
        if not path.is_file():
            raise FileNotFoundError
        if path.stat().st_size > MOST_BYTES:
            raise UserError(f"{path}: {path.stat().st_size:,} bytes; a config has at most {MOST_BYTES:,}")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; an audit is one YAML file, see config/README.md") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not YAML: {error}") from None
    except (OSError, ValueError) as error:  # a path with a null byte is a ValueError
        raise UserError(f"{path}: cannot be read: {error}") from None
    if _brackets(text) > 4 * MOST_DEPTH:  # a parser would take minutes for such nesting
        raise UserError(f"{path}: nested too deep; a config has at most {MOST_DEPTH} levels")
    try:
        _refuse_tags(text, path)
        node = yaml.compose(text, yaml.SafeLoader)
        if node is not None:
            _refuse_node(node, path, set())
            if wrong := _excess(node):
                raise UserError(f"{path}: {wrong}")
        values = yaml.safe_load(text)
    except RecursionError:
        raise UserError(f"{path}: nested too deep; a config has at most {MOST_DEPTH} levels") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{path}{at}: not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:  # malformed dates and numbers
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())[:400]}") from None
    refuse_code(values, str(path))
    return values


def _refuse_tags(text: str, path: Path) -> None:
    """Raise UserError for the first value with a tag: tags make sets, bytes and objects, which are not types of JSON."""
    for event in yaml.parse(text, yaml.SafeLoader):
        if tag := getattr(event, "tag", None):
            shown_tag = tag.replace("tag:yaml.org,2002:", "!!")[:60]
            raise UserError(f"{_place(path, event.start_mark)}: the tag '{shown_tag}': write a value without a tag")


PLAIN = {f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str", "seq", "map")}
KEYS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "merge")}
"""Types of keys: texts, the numbers of an array's columns, a policy's FPRs, and `<<`."""


def _refuse_node(node: yaml.Node, path: Path, seen: set[int]) -> None:
    """Raise UserError for a type that JSON does not have, such as a date, and for a repeated key, of which YAML would keep the last."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if node.tag not in PLAIN:
        raise UserError(
            f"{_place(path, node.start_mark)}: {_written(node)} is a {node.tag.rpartition(':')[2]}: write it in quotes"
        )
    keys: set[str] = set()
    for part in node.value if _nested(node) else ():
        if isinstance(part, tuple):
            key, part = part
            if key.tag not in KEYS:
                raise UserError(
                    f"{_place(path, key.start_mark)}: the key {_written(key)} is no text: write it in quotes"
                )
            if key.value in keys:
                raise UserError(f"{path}, line {key.start_mark.line + 1}: the key '{key.value[:60]}' is given twice")
            keys.add(key.value)
        _refuse_node(part, path, seen)


def _written(node: yaml.Node) -> str:
    return f"'{node.value[:60]}'" if isinstance(node, yaml.ScalarNode) else "before the colon"


def _place(path: Path, mark: yaml.Mark) -> str:
    return f"{path}, line {mark.line + 1}, column {mark.column + 1}"


def _brackets(text: str) -> int:
    """Return the largest number of brackets and braces open at once, inside quotes or not."""
    steps = (1 if mark in "[{" else -1 for mark in re.findall(r"[\[\]{}]", text))
    return max(accumulate(steps), default=0)


def _excess(node: yaml.Node) -> str:
    """Return why a document is too large for a config, with aliases expanded, or an empty text."""
    return check_size(node, lambda one: [part for pair in one.value for part in _parts(pair)] if _nested(one) else [])


def _nested(node: yaml.Node) -> bool:
    return isinstance(node, yaml.MappingNode | yaml.SequenceNode)


def _parts(pair: Any) -> tuple[Any, ...]:
    return pair if isinstance(pair, tuple) else (pair,)


def check_size(root: Any, parts_of: Any) -> str:
    """Return why a tree is too large or too deep for a config, or an empty text. A value counts once per reference."""
    sizes: dict[int, int] = {}

    def size(node: Any, depth: int, above: frozenset[int]) -> int:
        if id(node) in above:
            raise ValueError("a value contains itself through an alias; write the value out")
        if depth > MOST_DEPTH:
            raise ValueError(f"nested too deep; a config has at most {MOST_DEPTH} levels")
        if id(node) not in sizes:
            parts = parts_of(node)
            within = above | {id(node)} if parts else above
            sizes[id(node)] = 1 + sum(size(part, depth + 1, within) for part in parts)
        if sizes[id(node)] > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES:,} values with aliases expanded; a config has fewer")
        return sizes[id(node)]

    try:
        size(root, 0, frozenset())
    except ValueError as error:
        return str(error)
    return ""


def refuse_excess(values: Any, where: str) -> None:
    """Raise UserError if there are too many values for a config, or one that JSON does not have, whatever their origin."""

    def parts_of(value: Any) -> list[Any]:
        if isinstance(value, Mapping):
            return list(value.values())
        return list(value) if isinstance(value, list | tuple) else []

    if wrong := check_size(values, parts_of):
        raise UserError(f"{where}: {wrong}")
    _refuse_foreign(values, where, "", set())


def _refuse_foreign(value: Any, where: str, key: str, seen: set[int]) -> None:
    """Raise UserError for a value whose type JSON does not have."""
    if id(value) in seen:
        return
    if isinstance(value, Mapping):
        seen.add(id(value))
        for name, part in value.items():
            if not isinstance(name, str | int | float) or isinstance(name, bool):
                raise UserError(f"{where}: {key or 'config'}: the key {shown(name)} is no text: write it in quotes")
            _refuse_foreign(part, where, f"{key}.{name}" if key else str(name)[:60], seen)
    elif isinstance(value, list | tuple):
        seen.add(id(value))
        for part in value:
            _refuse_foreign(part, where, key, seen)
    elif value is not None and not isinstance(value, str | int | float):
        raise UserError(f"{where}: {key or 'config'}: a {type(value).__name__}; expected text, number, list or keys")


def refuse_code(values: Any, where: str) -> None:
    """Raise UserError for keys and values that Snakemake evaluates before this package reads them."""
    for key, text in _texts(values, ""):
        if text in YTE or text.startswith("?"):
            raise UserError(
                f"{where}: {key or 'a key'}: '{text[:60]}' is code that Snakemake would run while it reads the file (yte);"
                " an audit's config is plain YAML: write the value itself"
            )


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield every key and text of nested values, with the path of keys that leads there."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            if isinstance(name, str):
                yield key, name
            yield from _texts(part, f"{key}.{name}" if key else str(name)[:60])
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part, key)


def code_named(values: Any) -> list[str]:
    """List the code that a config's values and keys name, sorted: Python files, and classes of packages other than scikit-learn."""
    return sorted({name for _, text in _texts(values, "") for name in code_of(text)})


def loads_code(values: Any) -> bool:
    """Return whether checking a config loads code that it names; scripts, which are named as `file.py`, are only parsed."""
    return any(code_of(text) and not FILE.fullmatch(text) for _, text in _texts(values, ""))


Model = TypeVar("Model", bound=BaseModel)


def load_audit(path: Path) -> Audit:
    """Read an audit's YAML file; UserError for a mistake, with the file, the key and a way to fix it."""
    return check_audit(read_plain(path), str(path))


def check_audit(values: Any, where: str) -> Audit:
    """Validate the mapping of an audit's YAML file; UserError for a mistake in it, with `where` and the key."""
    from mia_audit.config.fit import check_fit  # audits of matrices parse parts of a config, and need neither
    from mia_audit.config.schema import Audit

    refuse_excess(values, where)
    audit = parse(Audit, values, where)
    check_fit(audit, where)
    return audit


def parse(model: type[Model], values: Any, where: str) -> Model:
    """Validate `values` with a model; all mistakes become one line of a UserError that names `where` and each key."""
    if not isinstance(values, dict):
        raise UserError(
            f"{where}: expected keys and values ({', '.join(model.model_fields)}), got {type(values).__name__}"
        )
    try:
        return model.model_validate(values)
    except ValidationError as error:
        mistakes = []
        for _, group in groupby(error.errors(include_url=False), key=lambda one: (one["loc"][:-1], id(one["input"]))):
            mistakes += _described(model, list(group))
        raise UserError(f"{where}: {'; '.join(mistakes)}") from None


FORMS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string": "text",
    "model": "keys and values",
    "dict": "keys and values",
    "tuple": "a list",
}
"""What is expected, by the beginning of a complaint's type."""


def _described(model: type[BaseModel], details: list[ErrorDetails]) -> list[str]:
    """Describe mistakes; the complaints about one value that may have several forms are a single mistake."""
    forms = [
        str(one.get("ctx", {}).get("expected", "")) or FORMS.get(one["type"].partition("_")[0], "") for one in details
    ]
    if len(details) < 2 or not all(forms):
        return [_describe(model, one) for one in details]
    key = ".".join(str(part) for part in details[0]["loc"][:-1])
    *first, last = dict.fromkeys(forms)
    return [f"{key}: expected {', '.join(first)} or {last}, got {shown(details[0]['input'])}"]


def _describe(model: type[BaseModel], detail: ErrorDetails) -> str:
    location = [part for part in detail["loc"] if part != "[key]"]
    key = ".".join(str(part)[:60] for part in location)
    if detail["type"] == "extra_forbidden":
        section = _section(model, detail["loc"][:-1])
        known = section.model_fields if section else {}
        return f"unknown key '{key}': {suggest(str(location[-1]), known)}"
    if detail["type"] == "missing":
        return f"missing key '{key}'"
    message = detail["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    given = "" if detail["type"] == "value_error" else f", got {shown(detail['input'])}"
    return f"{key}: {message}{given}" if key else f"{message}"


def shown(value: Any) -> str:
    """Return a given value as text, cut to a few words."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a whole number of thousands of digits
        text = f"a very long {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:79]}…"


def _section(model: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel] | None:
    """Return the model at a location: a field that holds a section, or a mapping from names to sections."""
    section: type[BaseModel] | None = model
    for part in location:
        if section is None:
            return None
        if part not in section.model_fields:
            continue  # the name in a mapping from names to sections
        annotation = section.model_fields[str(part)].annotation
        candidates = [annotation, *getattr(annotation, "__args__", ())]
        section = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)
    return section


def load_policy(path: Path) -> Policy:
    """Return the policy of a YAML file; UserError for a mistake, with the file, the key and a way to fix it."""
    from mia_audit.report.spec import Policy

    if not path.is_file():
        raise UserError(f"{path}: no such file; a policy is one YAML file, see docs/how-to/release.md")
    return parse(Policy, read_plain(path), str(path))
