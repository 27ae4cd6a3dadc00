"""Sizes of pools before they are built."""

from dataclasses import dataclass
from math import prod

from mia_audit.config.schema import Audit
from mia_audit.errors import UserError, few
from mia_audit.pools import pools
from mia_audit.pools.section import Dataset

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


def parse_size(text: str, audit: Audit) -> tuple[str, Size]:
    """Read NAME=RECORDS,SHAPE,CLASSES with the number of audited records, such as `faces=20000,3x224x224,10`."""
    name, _, rest = text.partition("=")
    words = rest.split(",")
    sides = words[1].split("x") if len(words) == 3 else []
    if not (name and sides and all(word.isdigit() and int(word) for word in (words[0], words[2], *sides))):
        raise UserError(f"--pool: expected NAME=RECORDS,SHAPE,CLASSES, such as faces=20000,3x224x224,10, not '{text}'")
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
