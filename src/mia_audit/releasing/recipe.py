"""The inputs of a release (an audited setting, its pool, its initial weights, its cost), and an unfinished release.

An unfinished release has a hidden folder beside that of the release. Only this user can read it, because it may hold
records; the release's own folder never does. It is removed when the release is finished, and never holds the state of a
random generator.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mia_audit.config import expand
from mia_audit.config.expand import Setting
from mia_audit.config.schema import Audit
from mia_audit.config.specs import ArchitectureSpec, PoolSpec, TrainingSpec
from mia_audit.errors import UserError, suggest
from mia_audit.foreign_json import read_object
from mia_audit.learners.naming import BUILT_IN
from mia_audit.pools.build import record_digest
from mia_audit.pools.store import ARRAY, persons_of, read_records
from mia_audit.privacy.accounting import Charge, PoissonGaussian, Stated, Unprotected
from mia_audit.privacy.catalogue import Foreseeable, Terms
from mia_audit.privacy.ledger import UNCHARGED, Entry
from mia_audit.regular_files import open_regular, private_folder
from mia_audit.sections import STATED
from mia_audit.seeds import folder_of_seed, folders_of_seeds
from mia_audit.storage import open_table, read_table, sha256, table_metadata, write_json, write_table
from mia_audit.storage.atomic import sync
from mia_audit.training.task import Records, identity

if TYPE_CHECKING:
    from mia_audit.pools.store import StoredRecords

PROTECTED, CLAIMED, UNPROTECTED = "differential privacy", "claimed", "none"
"""Kinds of a release's guarantee: accounted for here, claimed by the user's own code, or missing."""


@dataclass(frozen=True)
class ReleaseRecipe:
    """A setting of an audit whose stages up to the initial weights have run."""

    audit: Audit
    setting: Setting
    results: Path

    @classmethod
    def from_audit(cls, audit: Audit, name: str, results: Path) -> ReleaseRecipe:
        """Return the recipe of a setting by its name. Raises UserError if there is no such setting, or it cannot be released."""
        known = {one.path: one for one in expand.settings(audit) if one.trained}
        if name not in known:
            raise UserError(f"--setting {name}: no trained setting of {audit.audit}: {suggest(name, known)}")
        recipe = cls(audit, known[name], results)
        recipe._refuse()
        return recipe

    def _refuse(self) -> None:
        mechanism, setting = self.spec.mechanism, self.setting
        where = f"mechanisms.{setting.mechanism}"
        if mechanism.kind.no_guarantee:
            raise UserError(
                f"{where}: '{mechanism.mechanism}' guarantees nothing ({mechanism.kind.no_guarantee}). Its model is not released,"
                " because the card would state an ε that does not hold. Choose another mechanism, or 'none', whose card promises"
                " nothing"
            )
        if setting.epsilon.startswith(STATED):
            raise UserError(
                f"{where}: noise_multiplier is stated, but a release promises an ε: state epsilon instead (`mia-audit epsilon` computes it"
                " from a noise multiplier)"
            )
        if (
            mechanism.kind.private
            and not mechanism.kind.claimed
            and not isinstance(mechanism.kind.protect, Foreseeable)
        ):
            raise UserError(
                f"{where}: a release is charged before training, and '{mechanism.mechanism}' cannot state its cost in advance:"
                " define foresee(section, epsilon, training, units) (docs/how-to/release.md)"
            )
        if self.promise != UNPROTECTED:
            self._refuse_data()
        if mechanism.by_person:
            persons_of(self.pool / "records.parquet")  # this raises if a person has both public and protected records
        elif self.audit.datasets[setting.dataset].by_person and self.promise == PROTECTED:
            raise UserError(
                f"{where}.unit: record, but the unit of datasets.{setting.dataset} is the person, who may lose more privacy than"
                " one record's ε allows. Leave the mechanism's unit out"
            )

    def _refuse_data(self) -> None:
        """Raise UserError, with the lines to paste, if the pool has properties that a release would publish without noise."""
        metadata, section = self.stored.metadata, self.audit.datasets[self.setting.dataset]
        where = f"datasets.{self.setting.dataset}"
        if section.drawn and not self.audit.privacy.acknowledge:
            raise UserError(
                f"{where}.public: {section.drawn} {self.unit_of_dataset}s were drawn from the audited file, and no ε covers them: give public"
                " records in a file of their own, public: {path: FILE}, or leave them out and state constants, or, if everybody"
                " may know them, add privacy: {acknowledge: [public-records-are-public]}"
            )
        if self.spec.mechanism.by_person and not section.by_person:
            raise UserError(
                f"{where}.unit: record, but mechanisms.{self.setting.mechanism}.unit is person: which records were dropped as duplicates, or"
                " drawn, may depend on other persons' records. Set it to person and run the audit again"
            )
        if section.frame:
            raise UserError(
                f"{where}.frame: true, but the types of its columns (int64, float64, bool) depend on all records, and no ε covers them: set frame:"
                " false, state categories and constants for missing values (impute), and run the audit again"
            )
        if section.label_noise:
            raise UserError(
                f"{where}.label_noise: {section.label_noise:g}, but which labels are wrong depends on the number of records: leave it out and"
                " run the audit again"
            )
        collected = metadata.get("collected", {"classes": metadata["classes"]})
        if collected:
            lines = ", ".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in collected.items())
            state = (
                f"let {section.source} take only those that are known without looking at the records"
                if "categories" in collected and ":" in (section.source or "")
                else "state those that are known without looking at the records, and `other` for further values of a column"
            )
            raise UserError(
                f"{where}: the values of {' and '.join(collected)} were collected from the records, and a release"
                f" would publish them without noise: {state}, and run the audit again. Collected were {lines}"
            )

    def check_training(self) -> None:
        """Raise UserError if the mechanism cannot be set up for the model, or its records' gradients cannot be computed as stated."""
        if self.architecture["learner"] != BUILT_IN:
            return
        from mia_audit.privacy.noise import automatic
        from mia_audit.privacy.per_record import ClippedSum
        from mia_audit.training.shadow import check_mechanism

        training, mechanism = self.spec.training, self.spec.mechanism
        if mechanism.kind.per_record and training.precision == "bf16":
            raise UserError(
                "training.precision: bf16: not for a private release, because rounding to 8 bits hides whether other records of a pass change"
                " how a gradient is rounded; audit and release in float32"
            )
        units = max(self.units, training.batch)  # `terms` refuses a larger batch
        trained, inputs = check_mechanism(self.architecture, mechanism, training, float(self.spec.epsilon), units)
        if mechanism.kind.per_record:
            gradients = ClippedSum(trained, automatic(1.0), 1, training.per_record or "auto")
            gradients.decide(tuple(inputs[0:1].shape[1:]), mechanism.by_person)

    @cached_property
    def spec(self) -> TrainingSpec:
        """The specification of the training of the setting's models."""
        one = self.setting
        return TrainingSpec.from_audit(self.audit, one.dataset, one.architecture, one.mechanism, one.epsilon)

    @property
    def pool(self) -> Path:
        """The folder of the audit's pool."""
        return self.results / "pools" / self.setting.dataset

    @property
    def beside(self) -> list[Path]:
        """The folder of the results of all audits; two if these results are a link to another folder."""
        owns = {self.results.absolute(), self.results.resolve()}
        parents = {own.parent.parent if own in folders_of_seeds(own.parent) else own.parent for own in owns}
        return sorted({parent.resolve() for parent in parents})

    def others(self, kept: str) -> Iterator[tuple[Path, Path]]:
        """Yield hidden files of this kind of other names, audits and seeds that released some of the same records, and their pools."""
        mine = self.results.resolve() / f"{kept}{self.setting.dataset}"
        patterns = (f"*/{kept}*", f"*/{folder_of_seed('*')}/{kept}*")
        paths = {path.resolve() for folder in self.beside for pattern in patterns for path in folder.glob(pattern)}
        own = set(_hashes(self.pool / "records.parquet")) if paths - {mine} else set()
        for path in sorted(paths - {mine}):
            dataset = path.name.removeprefix(kept)
            pool, released = path.parent / "pools" / dataset, _released(path.parent, dataset)
            if own & set(_hashes(released if released.exists() else pool / "records.parquet")):
                yield path, pool

    def remember_records(self) -> None:
        """Keep the digests of the pool's records with those of earlier releases, whatever becomes of the pool."""
        path = _released(self.results, self.setting.dataset)
        try:
            hashes = sorted({*_hashes(path), *_hashes(self.pool / "records.parquet")})
            private_folder(path.parent)
            write_table(path, pa.table({"sha256": pa.array(hashes, pa.string())}), "records", len(hashes))
        except PermissionError:
            raise UserError(
                f"{path}: of another user; expected one who has released from {self.results} before"
            ) from None

    @property
    def uncharged(self) -> list[Path]:
        """The files with the entries of releases that no ledger was charged for: that of these results, and others of the same records."""
        return self.kept(UNCHARGED)

    def kept(self, kind: str) -> list[Path]:
        """Return the hidden file of this kind of these results, which may not exist, and those of others with the same records."""
        return [self.results / f"{kind}{self.setting.dataset}", *(path for path, _ in self.others(kind))]

    def earlier(self) -> list[Entry]:
        """Return the entries of those files."""
        return [entry for path in self.uncharged for entry in read_uncharged(path)]

    @property
    def folder(self) -> Path:
        """The folder of the architecture's results on this pool."""
        return self.results / self.setting.group

    @property
    def architecture_file(self) -> Path:
        """The specification of the architecture."""
        return self.folder / "architecture.json"

    @cached_property
    def architecture(self) -> dict[str, Any]:
        """Return the architecture.json; UserError if the audit has not written it."""
        from mia_audit.learners.protocol import Compute, open_learner

        return open_learner(self.architecture_file, Compute())[0]

    @property
    def start(self) -> Path | None:
        """The initial weights of the model; UserError if the audit has not written them."""
        name = expand.initial_weights(self.audit, self.setting.architecture)
        if name and not (self.folder / name).exists():
            raise UserError(f"{self.folder / name}: no such file; run the audit before releasing one of its settings")
        return self.folder / name if name else None

    @cached_property
    def stored(self) -> StoredRecords:
        """The audit's records."""
        if not (self.pool / "records.parquet").exists():
            raise UserError(
                f"{self.pool}: no such pool; run the audit before releasing one of its settings (--results names its folder)"
            )
        return read_records(self.pool)

    @cached_property
    def units(self) -> int:
        """The number of the pool's records, or of its persons if they are the unit. This number is public."""
        if self.unit == "record":
            return len(self.stored.labels)
        persons = Records.from_stored(self.stored).persons
        if persons is None:
            raise UserError(
                f"{self.pool}: the pool has no persons, but mechanisms.{self.setting.mechanism}.unit is person"
            )
        return len(np.unique(persons))

    @property
    def unit(self) -> str:
        """The unit of the guarantee."""
        protected = self.spec.mechanism.by_person if self.promise == PROTECTED else self.unit_of_dataset == "person"
        return "person" if protected else "record"

    @property
    def unit_of_dataset(self) -> str:
        """The unit of the data set's ledger."""
        return "person" if self.audit.datasets[self.setting.dataset].by_person else "record"

    @property
    def promise(self) -> str:
        """The kind of the release's guarantee."""
        kind = self.spec.mechanism.kind
        return CLAIMED if kind.claimed else PROTECTED if kind.private else UNPROTECTED

    @cached_property
    def terms(self) -> tuple[Terms | None, int]:
        """The terms and the number of steps of training on the whole pool by the built-in loop; None and 0 for other learners."""
        spec, protect = self.spec, self.spec.mechanism.kind.protect
        if self.learner != BUILT_IN or not isinstance(protect, Foreseeable):
            return None, 0
        unit, drawn = (self.unit, self.units) if self.promise == PROTECTED else ("record", len(self.stored.labels))
        if spec.training.batch > drawn:
            raise UserError(f"training.batch: {spec.training.batch} {unit}s per step, but the pool has only {drawn}")
        return protect.foresee(spec.mechanism, float(spec.epsilon), spec.training, drawn)

    @property
    def learner(self) -> str:
        """The learner that trains the model."""
        return self.audit.architectures[self.setting.architecture].learner

    @property
    def charge(self) -> Charge:
        """The charge of the training."""
        terms, steps = self.terms
        if self.promise == UNPROTECTED:
            return Unprotected()
        if self.promise == CLAIMED or terms is None:
            return Stated(float(self.spec.epsilon), self.spec.mechanism.delta)
        return PoissonGaussian(terms.noise_multiplier, terms.sampling_rate, steps)

    def identity(self) -> Mapping[str, Any]:
        """Return the identity under which an unfinished release may be continued."""
        one = self.setting
        return {
            "training": self.spec.contents(),
            "pool": PoolSpec.from_audit(self.audit, one.dataset).contents(),
            "architecture": ArchitectureSpec.from_audit(self.audit, one.architecture).contents(),
            "results": str(self.results.resolve()),
            "records": [sha256(path) for path in self.pool_files],
        }

    @property
    def pool_files(self) -> Iterator[Path]:
        """The tables of the pool's audited and public records, and then the arrays whose digests these tables lack."""
        tables = [self.pool / f"{name}.parquet" for name in ("records", "public")]
        yield from tables
        yield from (path.with_suffix(".npy") for path in tables if ARRAY not in table_metadata(path, "records"))


def read_uncharged(path: Path) -> list[Entry]:
    """Return the entries of releases without a ledger; none if there is no such file."""
    if not path.exists():
        return []
    expected = "the entries of releases without a ledger"
    try:
        return [Entry(**one) for one in read_object(path, expected)["entries"]]
    except (KeyError, TypeError):
        raise UserError(f"{path}: damaged; expected {expected}") from None


def _released(results: Path, dataset: str) -> Path:
    """Return the table of the digests of all records that releases of a data set's name have read."""
    return results / ".released" / f"{dataset}.parquet"


def _hashes(path: Path) -> Iterator[str]:
    """Yield the digests of released records, or of a pool's: computed if its table lacks them or the digest of its array."""
    if not path.exists():
        return
    names = open_table(path, "records").schema_arrow.names
    if "label" in names and not ("sha256" in names and ARRAY in table_metadata(path, "records")):
        yield from map(record_digest, read_records(path.parent).data)
    else:
        yield from read_table(path, "records", ["sha256"])["sha256"].to_pylist()


STATE, LOCK = "release.json", "lock"


@dataclass
class Unfinished:
    """The working folder of a release, and the state of the release. The folder remains if the process is killed."""

    folder: Path
    key: str
    id: str
    charged: list[dict[str, Any]] = field(default_factory=list)
    """The terms of all charges of the release, in the form of ledger entries."""
    begun: list[str] = field(default_factory=list)
    """The parts whose work began after their charge."""

    def begin(self, parts: Sequence[str], terms: Sequence[Mapping[str, Any]]) -> None:
        """Record that parts were charged and begin now, so that a restart knows which parts were interrupted."""
        self.begun += [part for part in parts if part not in self.begun]
        self.charged += [dict(one) for one in terms]
        self.write()

    def write(self) -> None:
        """Write the state to disk."""
        values = {"key": self.key, "id": self.id, "charged": self.charged, "begun": self.begun}
        write_json(self.folder / STATE, values)
        sync(self.folder / STATE, self.folder)


@contextmanager
def unfinished(out: Path, depends_on: Mapping[str, Any]) -> Iterator[Unfinished]:
    """Lock the working folder of the release to `out`, and resume the unfinished release in it, if any.

    Raises UserError if another process holds the lock, or if the folder is damaged or belongs to another release. The
    folder is removed when the release is finished, and kept if it fails.
    """
    folder = out.with_name(f".{out.name}.unfinished")
    private_folder(folder)
    try:
        lock = open_regular(folder / LOCK, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"{out}: cannot be written: {reason}; choose another --out") from None
    try:
        busy = UserError(f"{out}: another process is working on this release")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise busy from None
        # the other one has just ended and removed the folder, which a third one may have created again
        if not os.fstat(lock).st_nlink:
            raise busy
        calibrated_by = [version(name) for name in ("mia-audit", "opacus")]  # with others, the noise may be another
        place = {"out": str(out.resolve()), "version": calibrated_by}
        state = _read(folder, out, identity(**depends_on, **place))
        try:
            yield state
        except UserError:
            if not state.begun:  # nothing was charged yet
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)  # another process may try to lock it
    finally:
        os.close(lock)


def _read(folder: Path, out: Path, key: str) -> Unfinished:
    path = folder / STATE
    if not path.exists():
        begun = Unfinished(folder, key, secrets.token_hex(16))
        begun.write()  # a restart recognises the charges of this release by its id
        return begun
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        state = Unfinished(folder, values["key"], values["id"], values["charged"], values["begun"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"{path}: damaged ({error}); its release stays charged and cannot be resumed. Choose another --out"
        ) from None
    if state.key != key:
        raise UserError(
            f"{folder}: an unfinished release of another setting, config or audit, of other records, to another recipient, a copy from another"
            " place, or begun by another version of mia-audit or opacus; finish that release as it was begun, or choose another --out, which is"
            " charged as a new release"
        )
    return state
