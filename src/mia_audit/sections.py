"""The sections of a config: the base of their pydantic models, keys that registered members declare, and common types."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError

from mia_audit.errors import UserError, suggest

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema

    from mia_audit.registry import Registry


class Section(BaseModel):
    """A mapping of the config; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def is_unset(value: object) -> bool:
    """Whether an optional key was left out: a newer key that is unset is not written, since sections key a training's randomness."""
    return value is None


Options = tuple[type[Section], ...]
"""The keys that a member of a registry reads, each group of them as a model whose fields have defaults and docstrings."""

Declared = TypeVar("Declared", bound=Section)


class OpenSection(Section):
    """A section that has, beside its own keys, those that members of a registry declare.

    Declared keys are stored as pydantic's extra fields: those of the members that the section names with their
    defaults, so that what depends on the section depends on them, and on no other member's.
    """

    model_config = ConfigDict(extra="allow")

    @classmethod
    def members(cls) -> Mapping[str, Options]:
        """Return the options of every registered member, by its name."""
        raise NotImplementedError

    @classmethod
    def declared(cls) -> dict[str, tuple[FieldInfo, list[str]]]:
        """Return every key that registered members declare: its field, and the names of the members that read it."""
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
        """Return the keys that a model declares, with their defaults for those that the section leaves out."""
        given = self.model_extra or {}
        return options.model_validate({key: given[key] for key in options.model_fields if key in given})

    def options(self, models: Options) -> dict[str, Any]:
        """Return the keys that the models declare and their values, as JSON has them."""
        return {key: value for model in models for key, value in self.read(model).model_dump(mode="json").items()}

    def _resolve(self, reader: str, chosen: Options, others: Options = ()) -> None:
        """Check the keys beside the section's own, and fill in the defaults of those that the `chosen` models declare.

        Keys that only `others` declare are checked and kept. Raises ValidationError for any other key, which `reader`
        does not read.
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
            message = f"{reader} does not read it; {' and '.join(known[key][1])} would"
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
    """Return the name of a registered member, or of one in a file; ValueError says what is wrong with any other."""
    try:
        registry.check(name)
    except UserError as error:
        raise ValueError(str(error)) from None
    return name


def known_all(registry: Registry[Any]) -> AfterValidator:
    """Validate a tuple of names of members of a registry."""

    def check(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(known(registry, name) for name in names)

    return AfterValidator(check)


def _epsilon(value: object) -> str:
    """Keep ε as the text that the user wrote."""
    text = str(value).strip().lower()
    try:
        number = math.nan if isinstance(value, bool) else float(text)
    except ValueError:
        number = math.nan
    if not number > 0:
        raise ValueError(f"an ε is a positive number or inf, got '{value}'")
    return "inf" if math.isinf(number) else text


STATED = "z"
"""Prefix of what replaces ε in the names of a setting whose noise multiplier is stated: `z1.3`. Its ε is computed in training."""


def stated_noise(multiplier: float) -> str:
    """Return what stands for ε in the names of a setting with a stated noise multiplier."""
    return f"{STATED}{multiplier!r}"


def budget(epsilon: str) -> float:
    """Return the budget that a setting is named by; inf where its noise multiplier is stated, so that nothing limits its ε."""
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
"""Characters of a name at most: files are named after several of them, and file systems take 255."""


def folder_name(value: str) -> str:
    """Return a name that folders can have; ValueError for any other."""
    if not NAME.fullmatch(value):
        raise ValueError(
            f"'{value}' names a folder: use letters, digits, '.', '_' and '-' and begin with a letter or digit"
        )
    if len(value) > LONGEST_NAME:
        raise ValueError(
            f"'{value[:20]}…' names a folder: expected at most {LONGEST_NAME} characters, got {len(value)}"
        )
    return value


def file_path(value: str) -> str:
    """Return the path of a file; ValueError where Snakemake would read part of it as a wildcard."""
    if odd := sorted(set(value) & set("{}\0\n\r")):
        raise ValueError(f"{odd[0]!r} cannot be part of a path here: rename the file or folder")
    return value


FilePath = Annotated[str, AfterValidator(file_path)]
Name = Annotated[str, AfterValidator(folder_name)]
Epsilon = Annotated[
    str,
    BeforeValidator(_epsilon),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "inf"}]}),
]


SettingEpsilon = Annotated[str, BeforeValidator(_setting_epsilon)]
"""What a setting is named by: ε, inf, or the noise multiplier that is stated instead."""


def one_or_more(value: object) -> object:
    """Take a single number, or text, for a list of one."""
    return (value,) if isinstance(value, int | float | str) and not isinstance(value, bool) else value


_EPSILON: dict[str, Any] = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "inf"}]}
Epsilons = Annotated[
    tuple[Epsilon, ...],
    BeforeValidator(one_or_more),
    WithJsonSchema({"anyOf": [*_EPSILON["anyOf"], {"type": "array", "items": _EPSILON}]}),
]
"""Privacy budgets: a list, or one number."""
Precision = Literal["float32", "tf32", "bf16"]
Probability = Annotated[float, Field(gt=0, lt=1)]
