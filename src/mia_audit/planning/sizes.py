"""Sizes of pools, including pools that are not on disk yet."""

from dataclasses import dataclass
from math import prod
from pathlib import Path

from mia_audit.config.schema import Audit
from mia_audit.errors import UserError, few
from mia_audit.pools import pools
from mia_audit.pools.section import Dataset, load_source
from mia_audit.pools.store import read_persons
from mia_audit.storage import open_table, table_metadata

UNITS = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3}


@dataclass(frozen=True)
class Size:
    """The size of a pool: its numbers of audited and public records, the shape of a stored record, and the number of classes."""

    records: int
    public: int
    shape: tuple[int, ...]
    classes: int
    persons: int = 0
    """The number of persons to whom the audited records belong, if it is known."""

    @property
    def bytes(self) -> int:
        """Bytes of the pool's arrays on disk: images are uint8, tables float32."""
        return (self.records + self.public) * prod(self.shape) * (1 if len(self.shape) == 3 else 4)


SOURCES = {
    "breast_cancer": Size(569, 0, (30,), 2),
    "digits": Size(1797, 0, (1, 8, 8), 10),
    "cifar10": Size(60_000, 0, (3, 32, 32), 10),
    "cifar100": Size(60_000, 0, (3, 32, 32), 100),
    "svhn": Size(99_289, 0, (3, 32, 32), 10),
    "gtsrb": Size(39_270, 0, (3, 224, 224), 43),
    "food101": Size(101_000, 0, (3, 224, 224), 101),
    "mnist": Size(70_000, 0, (1, 28, 28), 10),
    "fashion_mnist": Size(70_000, 0, (1, 28, 28), 10),
}
"""Sizes of published sources, training and test records together. Images of varying size are assumed to be stored at 224 pixels."""


def size_of(audit: Audit, dataset: str, results: Path, given: dict[str, Size]) -> Size:
    """Return a data set's size: the given size, or that of its pool on disk, of its published source, or of its files.

    Raises UserError if none of these is known.
    """
    section = audit.datasets[dataset]
    if dataset in given:
        return given[dataset]
    pool = results / "pools" / dataset / "records.parquet"
    if pool.exists():
        metadata = table_metadata(pool, "records")
        records = open_table(pool, "records").metadata.num_rows
        ids = read_persons(pool) if section.by_person else None
        persons = 0 if ids is None else len(set(ids.tolist()))
        return Size(records, _public(section), tuple(metadata["shape"]), len(metadata["classes"]), persons)
    source = SOURCES.get(section.source or dataset) or _read(section, dataset)
    return selected(source, section)


def _read(section: Dataset, dataset: str) -> Size:
    """Return the size of the user's own data, from their files; only the headers of images are read."""
    where = f"datasets.{dataset}"
    try:
        source = load_source(section, where)
    except UserError as error:
        raise UserError(
            f"{error}. (If the data are on another machine, state their size: --pool {dataset}=RECORDS,COLUMNS,CLASSES for a table,"
            f" such as {dataset}=20000,24,3, and --pool {dataset}=20000,3x224x224,10 for images)"
        ) from None
    persons = 0 if source.persons is None else len(set(source.persons.tolist()))
    return Size(len(source.records), 0, tuple(source.records.shape[1:]), len(source.classes), persons)


def parse_size(text: str, audit: Audit) -> tuple[str, Size]:
    """Read NAME=RECORDS,SHAPE,CLASSES with the number of audited records, such as `faces=20000,3x224x224,10`."""
    name, _, rest = text.partition("=")
    words = rest.split(",")
    sides = words[1].split("x") if len(words) == 3 else []
    if not (name and sides and all(word.isdigit() and int(word) for word in (words[0], words[2], *sides))):
        raise UserError(
            f"--pool: NAME=RECORDS,SHAPE,CLASSES was expected, such as faces=20000,3x224x224,10, not '{text}'"
        )
    if name not in audit.datasets:
        raise UserError(f"--pool: the audit has no data set '{name}'; it has {few(audit.datasets)}")
    public = _public(audit.datasets[name])
    return name, Size(int(words[0]), public, tuple(int(side) for side in sides), int(words[2]))


def selected(source: Size, section: Dataset) -> Size:
    """Return the size of the pool that a section draws from a source of this size."""
    shape = (source.shape[0], section.size, section.size) if section.size else source.shape
    persons = source.persons or source.records
    each = source.records / persons if section.by_person else 1
    drawn = round(section.drawn * each)
    records = round(section.records * each) if section.records else source.records - drawn
    return Size(
        records, drawn or _public(section), shape, source.classes, round(records / each) if section.by_person else 0
    )


def _public(section: Dataset) -> int:
    """Return the number of public records; 0 if those of a file are not counted yet."""
    if not section.public_path:
        return section.drawn
    return pools[section.source].known(section.model_copy(update={"path": section.public_path})).records or 0


def human(size: float) -> str:
    """Write bytes in a suitable unit."""
    unit = next((name for name, scale in UNITS.items() if size >= scale), "kB")
    return f"{size / UNITS[unit]:.1f} {unit}"
