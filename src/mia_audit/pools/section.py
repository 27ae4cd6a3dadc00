"""Sections of a config for data sets and for the membership of training sets.

The registry of pool sources, and the type that a source returns.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, Self

from pydantic import BeforeValidator, Field, FiniteFloat, PositiveFloat, PositiveInt, StrictInt, model_validator

from mia_audit.errors import UserError
from mia_audit.registry import Registry, code_files, file_digest
from mia_audit.sections import FilePath, Probability, Section

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from jaxtyping import Int, Num, Shaped

    from mia_audit.pools.frames import FrameColumn

Column = Annotated[str, BeforeValidator(str)]
"""The name of a column. Columns of arrays have numbers as names, which YAML does not read as text."""


class PublicRecords(Section):
    """Public records in a file of their own."""

    path: FilePath
    """File or folder of the same kind as that of the audited records; all of its records are public."""


class Dataset(Section):
    """The source of records, and the number of audited ones."""

    source: str = ""
    """Registered source, or `file.py:function`; the data set's own name when left out."""
    path: FilePath = ""
    """File or folder that the source reads (docs/how-to/pools.md); relative to the folder of the audit."""
    download: bool = False
    """Whether torchvision may download its data set into `path` if it is missing."""
    take: Literal["sample", "first"] = "sample"
    """The choice of records: drawn by the seed, or the first ones in the order of the data set (training before test images)."""
    size: int | None = Field(None, gt=0, le=4096)
    """Images: the side in pixels to which all are resized. It is required if sizes vary. Otherwise, when it is left out, images keep their size."""
    convert: Literal["none", "rgb", "grey"] = "none"
    """Images in a folder: convert all to colour or grey-scale. Without conversion, all must be of one kind."""
    white: int | None = Field(None, gt=0, le=2**16 - 1)
    """Images of 16 bits in a folder, with `convert`: the pixel value that becomes white, such as 4095 for 12 bits; 65,535 when left out."""
    label: str = "label"
    """Tables in a file: the column that holds the class."""
    columns: dict[Column, Literal["drop", "category", "feature"]] = Field({})
    """Tables in a file: the role of columns whose values do not show it: `drop` (no model gets it: an id, or whether a
    finished model was trained on the record), `category` (a column of 0 and 1 for each value), `feature` (used as it
    is, although it looks like an id).
    """
    categories: dict[Column, Annotated[tuple[Column, ...], Field(min_length=1)]] = Field({})
    """Tables in a file: the values of columns of text or codes, each of which becomes a column of 0 and 1.

    The values of other columns of text are collected from the records, so a private release requires them here.
    """
    other: str = ""
    """Tables in a file: the name of a further value, which replaces those that `categories` does not list; without it they are an error."""
    classes: tuple[Column, ...] = ()
    """The names of all classes, in the order of a model's outputs. When left out, the classes of your own data are collected
    from the records, and a private release requires them here.
    """
    impute: dict[Column, StrictInt | FiniteFloat | str] = Field({})
    """Tables in a file: constants that replace missing values, by column. They are stated, not computed from the records."""
    frame: bool = False
    """Tables in a file: `true` gives estimators and scripts a pandas DataFrame with the columns, types, categories and
    missing values of the file. An array of numbers is given when left out, and to the built-in loop.
    """
    person: str = ""
    """The source of every record's person (docs/how-to/persons.md): a table's column; an array stored with `records` and
    `labels`; for images a CSV file with the columns file and person, or a pattern of file names such as
    `{person}_*.png`.
    """
    unit: Literal["record", "person"] | None = None
    """The unit of membership, of the public part and of attacks. When left out, it is `person` if the key `person` is given, else `record`."""
    records: PositiveInt | None = None
    """Number of audited records, or of persons if they are the unit; all except the public ones when left out."""
    public: Annotated[int, Field(ge=0)] | PublicRecords = 0
    """Public records, disjoint from the audited ones: those of another file (`{path: FILE}`), or a number of records
    (persons) drawn from the audited file. Drawn ones are for audits: they are private before, and a release is refused.
    """
    label_noise: float = Field(0.0, ge=0, lt=1)
    """Share of audited records (persons) whose label is replaced by a wrong one."""
    standardise: Literal["none", "public", "stated"] = "none"
    """Tables: centre and scale columns by the public records or by the stated `constants`, never by audited records."""
    constants: dict[Column, tuple[FiniteFloat, Annotated[FiniteFloat, Field(gt=0)]]] = Field({})
    """Tables: the centre and scale of every column of numbers, known without looking at the records; [0, 1] leaves a
    column unchanged. Columns of 0 and 1 may be left out.
    """
    architectures: tuple[str, ...] = ()
    """Architectures of this audit that are trained on this data set; all when left out."""
    groups: tuple[str | dict[Column, tuple[FiniteFloat, ...]], ...] = ()
    """Groups by which every result is sliced (docs/how-to/persons.md): columns of the data, `class`, or `records` (a person's number of records).

    `{age: [18, 40, 65]}` divides a column of numbers at these edges. Without edges, a column with many values is
    divided at its quartiles.
    """
    mean: float | tuple[float, ...] | None = None
    """Images: the mean, one number or one per channel, that is subtracted from pixels scaled to [0, 1]; when left out,
    the mean of the model's published weights, else 0.5.
    """
    std: PositiveFloat | tuple[PositiveFloat, ...] | None = None
    """Images: the standard deviation, one number or one per channel, that divides the centred pixels; when left out,
    the standard deviation of the model's published weights, else 0.5.
    """

    @property
    def by_person(self) -> bool:
        """Whether a training set contains all records of a person or none of them."""
        return bool(self.person) and self.unit != "record"

    @property
    def drawn(self) -> int:
        """The number of public records (persons) drawn from the audited file."""
        return self.public if isinstance(self.public, int) else 0

    @property
    def public_path(self) -> str:
        """The file of public records; empty without one."""
        return "" if isinstance(self.public, int) else self.public.path

    @property
    def files(self) -> list[str]:
        """The user's files from which a pool is read; empty for a folder of images."""
        person = self.person
        roots = [root for root in (self.path, self.public_path) if root]
        paths = [Path(root, name) for root in roots for name in ("", "records.npy", "labels.npy")]
        paths += [*(Path(root, f"{person}.npy") for root in roots or [""]), Path(person)] if person else []
        return [str(path) for path in paths if path.is_file()]

    @property
    def digest(self) -> str:
        """The SHA-256 of the keys that a pool depends on, and of the files that they name."""
        values = self.model_dump(mode="json", exclude_defaults=True, exclude={"groups", "architectures"})
        files = {file: file_digest(file) for file in [*code_files(values), *self.files]}
        values |= {"files": files} if files else {}  # the keys of trainings follow from the digest
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    @property
    def edges_of_groups(self) -> dict[str, tuple[float, ...]]:
        """The columns of `groups` with their edges, if any."""
        return {
            name: edges
            for one in self.groups
            for name, edges in ([(one, ())] if isinstance(one, str) else [*one.items()])
        }

    @model_validator(mode="after")
    def _groups(self) -> Self:
        names = [name for one in self.groups for name in ([one] if isinstance(one, str) else one)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"groups: '{twice[0]}' is given twice")
        for name, edges in self.edges_of_groups.items():
            if any(second <= first for first, second in pairwise(edges)):
                raise ValueError(f"groups.{name}: expected edges in ascending order, each once; got {list(edges)}")
        if "records" in names and not self.person:
            raise ValueError(
                "groups: 'records' is a person's number of records; give person, which names the person of every record"
            )
        return self

    @model_validator(mode="after")
    def _unit(self) -> Self:
        if self.unit == "person" and not self.person:
            raise ValueError("unit: person needs the key person, which names every record's person, such as a column")
        return self

    @model_validator(mode="after")
    def _vocabulary(self) -> Self:
        for key, values in {
            "classes": self.classes,
            **{f"categories.{k}": v for k, v in self.categories.items()},
        }.items():
            if len(set(values)) < len(values):
                raise ValueError(f"{key}: a value is given twice; list each once")
        if self.other and not self.categories:
            raise ValueError("other: replaces values that categories does not list; give categories too")
        return self

    @model_validator(mode="after")
    def _white(self) -> Self:
        if self.white and self.convert == "none":
            raise ValueError("white: only for converting 16-bit images to 8 bits: add convert: grey")
        return self

    @model_validator(mode="after")
    def _standardise(self) -> Self:
        if self.standardise == "public" and not self.public:
            raise ValueError("standardise: public needs public records, but public is 0")
        if (self.standardise == "stated") != bool(self.constants):
            raise ValueError("standardise: stated and constants require each other: give both, or neither")
        if self.frame and self.standardise != "none":
            raise ValueError("standardise: a frame has the file's values; scale them in the model, not here")
        return self


class Draw(Section):
    """How training sets are drawn. Each depends on these keys, the seed, the data set and the model's number, but not on other models."""

    design: Literal["half", "bernoulli", "split"] = "half"
    share: Probability | None = None
    unit: Literal["record", "person"] = "record"
    """The unit of the draw: records, or persons with all of their records."""


class Membership(Section):
    """The design of the shadow models' training sets."""

    design: Literal["half", "bernoulli", "split"] = "half"
    """`half`: every model trains on its own uniformly random half; `bernoulli`: a fair coin per record and model; `split`: a random `share`."""
    share: Probability | None = None
    """A model's share of the pool for training; only for design split, 0.8 when left out."""
    models: int = Field(17, ge=4, le=10_000)
    """Number of shadow models per setting, from 4 to 10,000. Each is the target once."""

    @model_validator(mode="before")
    @classmethod
    def _default_share(cls, values: Any) -> Any:
        return {"share": 0.8} | values if isinstance(values, dict) and values.get("design") == "split" else values

    @model_validator(mode="after")
    def _share(self) -> Self:
        if (self.share is None) != (self.design != "split"):
            raise ValueError(f"share: only for design split, but design is {self.design}")
        return self


if TYPE_CHECKING:
    Load = Callable[[Dataset, str], "Source"]


class BadRecordError(Exception):
    """A record that cannot be read. The message names the record and the reason."""


class Rows(Protocol):
    """Records in the order of their source: an array [n, …], or images that are decoded on access."""

    @property
    def shape(self) -> tuple[int, ...]:
        """[n, C, H, W] or [n, d]."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> Num[np.ndarray, ...]:
        """Return one record. Several threads call this at a time. Raises BadRecordError for a record that cannot be read."""


@dataclass(frozen=True)
class Source:
    """A data set as loaded: uint8 [n, C, H, W] images or float32 [n, d] rows, int labels [n], and names."""

    kind: Literal["image", "table"]
    records: Rows
    labels: Int[np.ndarray, " n"]
    classes: list[str]
    features: list[str]
    flags: frozenset[str] = frozenset()
    """Features that are always 0 or 1, because they encode a category or a truth value."""
    persons: Shaped[np.ndarray, " n"] | None = None
    """The id of every record's person, int64 or text, if the section names persons."""
    columns: Callable[[str], pl.Series] | None = None
    """Returns a column by name, with a value for every record.

    The column need not be a feature; an unknown name raises UserError. If None, only the columns in `features` are
    known, and only for rows of a table.
    """
    files: Sequence[str] | None = None
    """The file of every record, if each has its own, relative to the section's path."""
    published: bool = False
    """Whether the classes are those of a published data set, and were not collected from the records."""
    collected: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The values of the columns of text that were collected from the records."""
    frame: Sequence[FrameColumn] = ()
    """The columns of the DataFrame that models receive in place of an array, if the section asks for one."""


@dataclass(frozen=True)
class Header:
    """The facts about a data set that are known before its records are read. Unknown parts are empty or None."""

    kind: Literal["image", "table", ""] = ""
    records: int | None = None
    """An upper limit on the number of records, including duplicates."""
    columns: tuple[str, ...] = ()
    """Columns of a table in a file, including those of label and persons."""
    persons: int = 0
    """If it is known, the number of persons to whom the audited records belong; `records` then counts no others."""


@dataclass(frozen=True)
class PoolSource:
    """The description of a data set's source: how it is loaded, its keys in the section, and the facts known before reading.

    `load` takes the section and its name for errors (`datasets.NAME`); it raises UserError for invalid files. `header`
    is the header of all data sets of the source, or a function that reads the beginning of the section's file.
    """

    load: Load
    keys: tuple[str, ...] = ()
    header: Header | Callable[[Dataset], Header] = Header()

    def known(self, section: Dataset) -> Header:
        """Return the facts that are known before records are read. The header is empty if the file is missing or unreadable."""
        if isinstance(self.header, Header):
            return self.header
        try:
            return self.header(section)
        except Exception:  # the source's own error for a damaged file is more precise
            return Header()


pools: Registry[PoolSource] = Registry("source", "mia_audit.pools.sources")
"""Sources by name. All files are imported, because that is cheap and one file may register several sources."""

TABLE_KEYS = ("standardise", "constants")
"""Keys of a dataset's section for pools of rows."""
FILE_KEYS = ("label", "person", "columns", "impute", "categories", "other", "frame")
"""Keys of a dataset's section for tables in a file."""
OPTIONAL_KEYS = ("path", "download", "size", "convert", "white", *FILE_KEYS, *TABLE_KEYS)
"""Keys of a dataset's section that only some pools read."""


def pool(name: str = "", *keys: str, header: Header | Callable[[Dataset], Header] = Header()) -> Callable[[Load], Load]:
    """Register the decorated function as a source that reads the given optional keys of its section; see `PoolSource`."""

    def decorate(load: Load) -> Load:
        pools.register(name, load)(PoolSource(load, keys, header))
        return load

    return decorate


def check_keys(section: Dataset, where: str) -> None:
    """Raise UserError for a key of a section that its source does not read."""
    member = pools[section.source]
    for key in OPTIONAL_KEYS:
        if key not in member.keys and getattr(section, key) != Dataset.model_fields[key].get_default(
            call_default_factory=True
        ):
            raise UserError(
                f"{where}.{key}: pool '{section.source}' does not read this key; it reads {', '.join(member.keys) or 'no optional keys'}"
            )


def check_kind(section: Dataset, kind: str, where: str) -> None:
    """Raise UserError for keys of tables if the records are images, and for keys of images if they are rows."""
    if kind == "image" and section.standardise != "none":
        raise UserError(f"{where}.standardise: only for tables, but these records are images: see mean and std")
    if kind == "table" and (given := [key for key in ("mean", "std") if getattr(section, key) is not None]):
        raise UserError(f"{where}.{given[0]}: only for images, but these records are rows of a table: see standardise")


def check_enough(section: Dataset, available: int, held: str, where: str) -> None:
    """Raise UserError if a section asks for more records (persons) than the `available` ones, which the message says are `held`."""
    units = "persons" if section.by_person else "records"
    if section.drawn >= available:
        raise UserError(
            f"{where}.public: {section.drawn} public {units} are requested, but '{section.source}' has {available} {held}, and some"
            " must be left to audit; request fewer"
        )
    wanted = section.drawn + (section.records or 0)
    if wanted > available:
        raise UserError(
            f"{where}: {section.records} {units} and {section.drawn} public ones are {wanted}, but '{section.source}' has"
            f" {available} {held}; lower {where}.records or {where}.public"
        )


def load_source(section: Dataset, where: str) -> Source:
    """Load a section's source, with the classes that the section states.

    Raises UserError for a record of another class, and for one without a person where persons are named.
    """
    import numpy as np

    from mia_audit.pools.persons import numbered_ids

    source = pools[section.source].load(section, where)
    if source.persons is not None:
        source = replace(source, persons=numbered_ids(source.persons, f"{where}.person: '{section.person}'"))
    if not section.classes:
        return source
    check_numbers(source, where)
    if odd := [name for name in source.classes if name not in section.classes]:
        held = int(np.isin(source.labels, [source.classes.index(name) for name in odd]).sum())
        if held:
            raise UserError(
                f"{where}.classes: {held} of {len(source.labels)} records have another class, such as '{odd[0]}': list all classes, or leave"
                " those records out"
            )
    places = {name: place for place, name in enumerate(section.classes)}
    numbers = np.array([places.get(name, 0) for name in source.classes], dtype=np.int64)
    return replace(source, labels=numbers[source.labels], classes=list(section.classes))


def check_numbers(source: Source, where: str) -> None:
    """Raise UserError for a label that is no class's number."""
    import numpy as np

    outside = np.flatnonzero((source.labels < 0) | (source.labels >= len(source.classes)))
    if len(outside):
        raise UserError(
            f"{where}: record {outside[0]} of the data set has the label {source.labels[outside[0]]}, but its {len(source.classes)}"
            f" classes are numbered from 0 to {len(source.classes) - 1} ({len(outside)} such labels)"
        )


def load_public(source: Source, section: Dataset, where: str) -> Source:
    """Load the public records in a file of their own. Raises UserError unless their columns and classes are those of the audited ones."""
    values = {name: tuple(one) for name, one in source.collected.items()}
    changes = {"path": section.public_path, "classes": tuple(source.classes), "categories": section.categories | values}
    public = load_source(section.model_copy(update=changes), f"{where}.public")
    mine, theirs = ((one.kind, one.records.shape[1:], one.features) for one in (source, public))
    if mine != theirs:
        odd = sorted(set(source.features) ^ set(public.features))
        raise UserError(
            f"{where}.public.path: {section.public_path}: {'images' if public.kind == 'image' else 'rows'} of {list(theirs[1])} numbers"
            f"{f', and other columns, such as {odd[0]!r}' if odd else ''}; expected the columns or size of {section.path}:"
            f" {list(mine[1])}"
        )
    return public


def root_of(dataset: Dataset, where: str, must_exist: bool = True) -> Path:
    """Return the section's root; UserError if there is none."""
    if not dataset.path:
        raise UserError(f"{where}.path: missing; state where the files of pool '{dataset.source}' are")
    root = Path(dataset.path)
    if root.exists() and not (root.is_dir() or root.is_file()):
        raise UserError(f"{where}.path: {root}: neither a folder nor a regular file")
    if must_exist and not root.exists():
        raise UserError(
            f"{where}.path: {root}: no such file or folder; state where the files of pool '{dataset.source}' are"
        )
    return root
