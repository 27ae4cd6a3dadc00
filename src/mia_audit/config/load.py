"""Read and validate an audit's YAML file; every mistake in it becomes one line that says how to fix it."""

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from mia_audit.config.fit import check_fit
from mia_audit.config.plain import read_plain, refuse_excess
from mia_audit.config.schema import Audit
from mia_audit.errors import UserError, suggest

Model = TypeVar("Model", bound=BaseModel)


def load_audit(path: Path) -> Audit:
    """Read an audit's YAML file; UserError for a mistake, with the file, the key and a way to fix it."""
    return check_audit(read_plain(path), str(path))


def check_audit(values: Any, where: str) -> Audit:
    """Validate the mapping of an audit's YAML file; UserError for a mistake in it, with `where` and the key."""
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
        mistakes = [_describe(model, detail) for detail in error.errors(include_url=False)]
        raise UserError(f"{where}: {'; '.join(mistakes)}") from None


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
    return text if len(text) <= 120 else f"{text[:100]}…"


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
