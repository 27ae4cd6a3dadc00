"""From a source to a pool: duplicates dropped, public records set aside, audited records drawn, labels made noisy."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, Num

from mia_audit.config.schema import Dataset
from mia_audit.errors import UserError
from mia_audit.pools.catalogue import Source
from mia_audit.seeds import generator


@dataclass(frozen=True)
class Records:
    """Records of one side: data [n, …], labels [n], content hashes [n], rows in the source [n], labels made wrong [n]."""

    data: Num[np.ndarray, "n ..."]
    labels: Int[np.ndarray, " n"]
    sha256: list[str]
    source: Int[np.ndarray, " n"]
    flipped: Bool[np.ndarray, " n"]


@dataclass(frozen=True)
class Pool:
    """The audited and the public records of a data set, and the facts about them."""

    audited: Records
    public: Records
    facts: dict[str, Any]


def build_pool(source: Source, section: Dataset, name: str, seed: int) -> Pool:
    """Build the pool that a dataset section asks for.

    Records with equal bytes make membership ambiguous: all but the first are dropped and counted. Raises UserError when
    more records are asked for than remain.
    """
    hashes = [hashlib.sha256(record.tobytes()).hexdigest() for record in source.records]
    distinct = np.array(
        list({digest: row for row, digest in reversed(list(enumerate(hashes)))}.values()), dtype=np.int64
    )
    distinct.sort()
    available = len(distinct)
    if section.public >= available:
        raise UserError(
            f"datasets.{name}.public: {section.public} public records asked for, but '{section.pool}' has {available} distinct records"
            " and some must be left to audit; ask for fewer"
        )
    wanted = section.records if section.records is not None else available - section.public
    if section.public + wanted > available:
        raise UserError(
            f"datasets.{name}: {wanted} records and {section.public} public ones are {section.public + wanted}, but '{section.pool}' has"
            f" {available} distinct records; lower datasets.{name}.records or datasets.{name}.public"
        )
    order = generator(seed, "pool", name).permutation(distinct)
    public, audited = np.sort(order[: section.public]), np.sort(order[section.public : section.public + wanted])
    data, scaling = _standardised(source, public, section)
    labels = source.labels.astype(np.int32)
    noisy, flipped = _with_label_noise(labels[audited], len(source.classes), section.label_noise, name, seed)
    facts = {
        "name": name,
        "kind": source.kind,
        "shape": list(source.records.shape[1:]),
        "classes": source.classes,
        "features": source.features,
        "duplicates": len(source.records) - available,
        "available": available,
        "label_noise": section.label_noise,
        **scaling,
    }
    return Pool(
        Records(data[audited], noisy, [hashes[row] for row in audited], audited, flipped),
        Records(
            data[public], labels[public], [hashes[row] for row in public], public, np.zeros(len(public), dtype=bool)
        ),
        facts,
    )


def _standardised(
    source: Source, public: Int[np.ndarray, " p"], section: Dataset
) -> tuple[Num[np.ndarray, "n ..."], dict[str, Any]]:
    if source.kind == "image":
        return source.records, {"mean": section.mean, "sd": section.sd}
    if section.standardise == "none":
        return source.records, {"standardise": "none"}
    centre = source.records[public].mean(axis=0, dtype=np.float64)
    scale = source.records[public].std(axis=0, dtype=np.float64)
    scale[scale == 0] = 1.0
    data = ((source.records - centre) / scale).astype(np.float32)
    return data, {"standardise": "public", "centre": centre.tolist(), "scale": scale.tolist()}


def _with_label_noise(
    labels: Int[np.ndarray, " n"], classes: int, share: float, name: str, seed: int
) -> tuple[Int[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Replace the labels of a `share` of the records, drawn by the seed, by one of the other classes."""
    random = generator(seed, "label noise", name)
    flipped = np.zeros(len(labels), dtype=bool)
    flipped[random.permutation(len(labels))[: round(share * len(labels))]] = True
    shift = random.integers(1, classes, size=len(labels))
    return np.where(flipped, (labels + shift) % classes, labels).astype(np.int32), flipped
