"""Base classes for a config's sections: pydantic models, keys declared by registered members, and common types."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError

from mia_audit.errors import UserError, suggest
from mia_audit.seeds import PREFIX

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema

    from mia_audit.registry import Registry


class Section(BaseModel):
    """A mapping in the config; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def is_unset(value: object) -> bool:
    """Return whether an optional key is unset.

    Keys that later releases add are written only if set, because random generators are keyed by sections.
    """
    return value is None


Options = tuple[type[Section], ...]
"""The keys that a member of a registry reads, as models whose fields have defaults and docstrings."""

Declared = TypeVar("Declared", bound=Section)


class OpenSection(Section):
    """A section with its own keys and those that members of a registry declare.

    Declared keys are stored as pydantic's extra fields. Missing keys of the members that the section names are filled
    with their defaults. So results depend on these keys, and not on keys of other members.
    """

    model_config = ConfigDict(extra="allow")

    @classmethod
    def members(cls) -> Mapping[str, Options]:
        """Return the options of every registered member, by name."""
        raise NotImplementedError

    @classmethod
    def declared(cls) -> dict[str, tuple[FieldInfo, list[str]]]:
        """Return every key that registered members declare, with its field and the names of the members that read it."""
        fields: dict[str, tuple[FieldInfo, list[str]]] = {}
        for name, models in cls.members().items():
            for key, field in fields_of(models).items():
                fields.setdefault(key, (field, []))[1].append(name)
        return fields

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core_schema))
        for models in cls.members().values():
            for model in models:
                schema["properties"] |= model.model_json_schema()["properties"]
        return schema

    def read(self, options: type[Declared]) -> Declared:
        """Return the keys that a model declares, with defaults for missing ones."""
        given = self.model_extra or {}
        return options.model_validate({key: given[key] for key in options.model_fields if key in given})

    def options(self, models: Options) -> dict[str, Any]:
        """Return the keys that the models declare, with their values in JSON types."""
        return {key: value for model in models for key, value in self.read(model).model_dump(mode="json").items()}

    def _resolve(self, reader: str, chosen: Options, others: Options = ()) -> None:
        """Check the keys that are not the section's own, and add defaults for the keys of the `chosen` models.

        Keys that only `others` declare are checked and kept. Raises ValidationError for all other keys; `reader` is the
        beginning of its message, up to the verb, such as "'dp-sgd' does not read".
        """
        given = self.model_extra if self.model_extra is not None else {}
        own, foreign = fields_of(chosen), fields_of(others)
        if mistakes := [self._mistake(reader, key, value) for key, value in given.items() if key not in own | foreign]:
            raise ValidationError.from_exception_data(type(self).__name__, mistakes)
        values: dict[str, Any] = {}
        for model in dict.fromkeys(chosen):
            values |= self.read(model).model_dump()
        for model in dict.fromkeys(others):
            values |= {key: value for key, value in self.read(model).model_dump().items() if key in given}
        given.update(values)

    def _mistake(self, reader: str, key: str, value: object) -> InitErrorDetails:
        known = self.declared()
        if key in known:
            message = f"{reader} this key; it is a key of {' and '.join(known[key][1])}"
        else:
            message = f"unknown key: {suggest(key, [*type(self).model_fields, *known])}"
        return {
            "type": PydanticCustomError("value_error", "{message}", {"message": message}),
            "loc": (key,),
            "input": value,
        }


def fields_of(models: Options) -> dict[str, FieldInfo]:
    """Return the fields of several models, by their keys."""
    return {key: field for model in models for key, field in model.model_fields.items()}


def known(registry: Registry[Any], name: str) -> str:
    """Return the name of a registered member or of one in a file. Raises ValueError for other names."""
    try:
        registry.check(name)
    except UserError as error:
        raise ValueError(str(error)) from None
    return name


def known_all(registry: Registry[Any]) -> AfterValidator:
    """Return a validator for a tuple of names of a registry's members."""

    def check(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(known(registry, name) for name in names)

    return AfterValidator(check)


def _epsilon(value: object) -> str:
    """Return ε as the text that the user wrote."""
    text = str(value).strip().lower()
    try:
        number = math.nan if isinstance(value, bool) else float(text)
    except ValueError:
        number = math.nan
    if not number > 0:
        raise ValueError(f"expected a positive number or inf as ε, got '{value}'")
    return "inf" if math.isinf(number) else text


STATED = "z"
"""Prefix of the noise multiplier that replaces ε in the name of a setting without a stated ε, such as `z1.3`."""


def stated_noise(multiplier: float) -> str:
    """Return the replacement of ε in the name of a setting with a stated noise multiplier."""
    return f"{STATED}{multiplier!r}"


def budget(epsilon: str) -> float:
    """Return the budget in a setting's name; inf if it states a noise multiplier, which leaves ε unlimited."""
    return math.inf if epsilon.startswith(STATED) else float(epsilon)


def _setting_epsilon(value: object) -> str:
    if isinstance(value, str) and value.startswith(STATED):
        try:
            if 0 < (multiplier := float(value.removeprefix(STATED))) < math.inf:
                return stated_noise(multiplier)
        except ValueError:
            pass
    return _epsilon(value)


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LONGEST_NAME = 100
"""Largest length of a name in characters: file names combine several names, and file systems allow 255."""


def folder_name(value: str) -> str:
    """Return a name that is valid for a folder. Raises ValueError for others."""
    if not NAME.fullmatch(value):
        raise ValueError(
            f"'{value}' becomes the name of a folder: use letters, digits, '.', '_' and '-', and begin with a letter or digit"
        )
    if len(value) > LONGEST_NAME:
        raise ValueError(
            f"'{value[:20]}…' becomes the name of a folder: expected at most {LONGEST_NAME} characters, got {len(value)}"
        )
    return value


def file_path(value: str) -> str:
    """Return the path of a file. Raises ValueError if Snakemake would read part of it as a wildcard."""
    if odd := sorted(set(value) & set("{}\0\n\r")):
        raise ValueError(f"{odd[0]!r} is not allowed in a path: rename the file or folder")
    return value


RESERVED = (
    *("benchmarks", "canaries", "figures", "logs", "paper", "pools", "specs", "tables"),
    *("SHA256SUMS", "SHA256SUMS.minisig", "answer.json", "provenance.json", "report.html"),
)
"""Files and folders that an audit writes beside the folders of its data sets; some of them are not in SHA256SUMS."""


def data_set_name(value: str) -> str:
    """Return the name of a data set. Raises ValueError for the name of another file or folder of results."""
    if value in RESERVED or re.fullmatch(rf"{PREFIX}\d+", value):
        raise ValueError(
            f"'{value}' is the name of a file or folder of the results: choose another name (source: {value})"
        )
    return value


FilePath = Annotated[str, AfterValidator(file_path)]
Name = Annotated[str, AfterValidator(folder_name)]
DataSetName = Annotated[Name, AfterValidator(data_set_name)]
Epsilon = Annotated[
    str,
    BeforeValidator(_epsilon),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "inf"}]}),
]


SettingEpsilon = Annotated[str, BeforeValidator(_setting_epsilon)]
"""The budget in a setting's name: ε, inf, or the stated noise multiplier."""


def one_or_more(value: object) -> object:
    """Convert a single number or text to a list of one."""
    return (value,) if isinstance(value, int | float | str) and not isinstance(value, bool) else value


_EPSILON: dict[str, Any] = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "inf"}]}
Epsilons = Annotated[
    tuple[Epsilon, ...],
    BeforeValidator(one_or_more),
    WithJsonSchema({"anyOf": [*_EPSILON["anyOf"], {"type": "array", "items": _EPSILON}]}),
]
"""Privacy budgets: a list or one number."""
Precision = Literal["float32", "tf32", "bf16"]
Probability = Annotated[float, Field(gt=0, lt=1)]
