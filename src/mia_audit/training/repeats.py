"""Digests of the outcome of every training run, which are kept when models are deleted. A repeated run must have the same outcome.

The digests are in files below benchmarks/, because all other results have the same bytes after every run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from mia_audit.runtime.processor import processor_names
from mia_audit.storage import write_json
from mia_audit.training.identity import identity


class Repeats:
    """The different outcomes of each training, which is identified by its inputs. `known` has the outcomes of earlier runs."""

    def __init__(self, known: Mapping[str, list[str]]) -> None:
        self._known = known
        self._own: dict[str, list[str]] = {}
        self.unrepeatable: list[int] = []
        """The numbers of the models that had another outcome in an earlier run."""

    @classmethod
    def read(cls, path: Path | None) -> Repeats:
        """Read a setting's outcomes from all blocks' files in the folder of `path`; a file that cannot be read is ignored."""
        known: dict[str, list[str]] = {}
        for other in sorted(path.parent.glob("*.json")) if path else []:
            try:
                repeats = json.loads(other.read_text(encoding="utf-8"))
                for key, digests in repeats.items():
                    known[key] = sorted({*known.get(key, []), *map(str, digests)})
            except (OSError, ValueError, AttributeError, TypeError):
                continue
        return cls(known)

    def add(self, shadow: int, key: str, table: pa.Table, outputs: str) -> None:
        """Add the outcome of a model's training: its rows of training.parquet, and the digest of its outputs, if known."""
        self._note(shadow, key, [identity(table=table.to_pydict(), outputs=outputs)])

    def keep(self, shadow: int, key: str) -> None:
        """Keep the known outcomes of a model that this run did not train."""
        self._note(shadow, key, [])

    def _note(self, shadow: int, training: str, digests: list[str]) -> None:
        key = identity(training=training, processors=processor_names())  # another processor rounds differently
        self._own[key] = sorted({*self._known.get(key, []), *digests})
        if len(self._own[key]) > 1:
            self.unrepeatable.append(shadow)

    @property
    def sentence(self) -> str:
        """The warning that names the models with another outcome."""
        numbers = ", ".join(map(str, self.unrepeatable))
        return (
            f"shadow models {numbers}, trained again from the same seed, differ from their earlier versions: the seed does not"
            " determine everything in their training; the report says so"
        )

    def write(self, path: Path | None) -> None:
        """Write the outcomes of this run's models."""
        if path:
            write_json(path, self._own)
