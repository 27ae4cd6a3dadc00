"""The inputs of a release: an audited setting, its pool, its initial weights, and its cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.config import expand
from mia_audit.config.expand import Setting
from mia_audit.config.schema import Audit
from mia_audit.config.specs import ArchitectureSpec, PoolSpec, TrainingSpec
from mia_audit.errors import UserError, suggest
from mia_audit.learners.naming import BUILT_IN
from mia_audit.pools.store import persons_of, read_records
from mia_audit.privacy.accounting import Charge, PoissonGaussian, Stated, Unprotected
from mia_audit.privacy.catalogue import Foreseeable, Terms
from mia_audit.sections import STATED
from mia_audit.training.task import Records

if TYPE_CHECKING:
    from mia_audit.pools.store import StoredRecords

PROTECTED, CLAIMED, UNPROTECTED = "differential privacy", "claimed", "none"
"""Kinds of a release's guarantee: accounted for here, claimed by the user's own code, or missing."""


@dataclass(frozen=True)
class Recipe:
    """A setting of an audit whose stages up to the initial weights have run."""

    audit: Audit
    setting: Setting
    results: Path

    @classmethod
    def of(cls, audit: Audit, name: str, results: Path) -> Recipe:
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
                " define foresee(section, epsilon, training, units) (docs/release.md)"
            )
        if mechanism.by_person:
            persons_of(self.pool / "records.parquet")  # this raises if a person has both public and protected records
        elif self.audit.datasets[setting.dataset].by_person and self.promise == PROTECTED:
            raise UserError(
                f"{where}.unit: record, but the unit of datasets.{setting.dataset} is the person, who may lose more privacy than"
                " one record's ε allows. Leave the mechanism's unit out"
            )

    @cached_property
    def spec(self) -> TrainingSpec:
        """The specification of the training of the setting's models."""
        one = self.setting
        return TrainingSpec.of(self.audit, one.dataset, one.architecture, one.mechanism, one.epsilon)

    @property
    def pool(self) -> Path:
        """The folder of the audit's pool."""
        return self.results / "pools" / self.setting.dataset

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
        from mia_audit.learners import Compute, open_learner

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
        """The number of the pool's records, or of its persons if the guarantee is for persons. This number is public."""
        if not self.spec.mechanism.by_person:
            return len(self.stored.labels)
        persons = Records.of(self.stored).persons
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
        if spec.training.batch > self.units:
            raise UserError(
                f"training.batch: {spec.training.batch} {self.unit}s per step, but the pool has only {self.units}"
            )
        return protect.foresee(spec.mechanism, float(spec.epsilon), spec.training, self.units)

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
            "pool": PoolSpec.of(self.audit, one.dataset).contents(),
            "architecture": ArchitectureSpec.of(self.audit, one.architecture).contents(),
            "results": str(self.results.resolve()),
        }
