"""What an audit left on disk, read once for its tables, figures and page."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from mia_audit.errors import UserError
from mia_audit.evaluation.files import Scored, read_scores
from mia_audit.interpretability.summary import per_model
from mia_audit.storage import open_table, read_frame, table_facts


@dataclass(frozen=True)
class Setting:
    """Dataset × architecture × mechanism × ε, and what its mechanism promises."""

    dataset: str
    architecture: str
    mechanism: str
    epsilon: str
    private: bool = False
    delta: float | None = None
    accountant: str | None = None
    clipping: str | None = None
    trained: bool = True
    """False: the signals are somebody else's, and there is no training.parquet."""
    design: str = ""
    """How membership was drawn, as far as it is known."""
    model: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What the architecture's section says of its model."""
    swept: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Those parameters that a sweep varies."""
    explained: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Not empty: one fixed black box, and membership is that of the records that its explanations are computed from."""
    folder: str = ""
    """Below the results; {dataset}/{architecture}/{mechanism}-eps{epsilon} when left out."""
    no_guarantee: str = ""
    """Why the ε that names the setting is nominal: its mechanism promises nothing."""

    @property
    def promised(self) -> str:
        """The ε as tables print it: none where it is nominal."""
        return f"none (nominal {self.epsilon})" if self.no_guarantee else self.epsilon

    @property
    def path(self) -> str:
        """The setting's folder below the results."""
        return self.folder or f"{self.dataset}/{self.architecture}/{self.mechanism}-eps{self.epsilon}"

    @property
    def group(self) -> tuple[str, str]:
        """Settings of one group differ in their protection only, so that they are compared."""
        return self.dataset, self.architecture


@dataclass(frozen=True)
class Gap:
    """Models that a setting goes without, why each by number, and whether enough are left to attack it."""

    setting: Setting
    models: Mapping[int, str]
    attacked: bool


@dataclass(frozen=True)
class Spec:
    """What the tables, figures and page of one audit depend on, besides its files."""

    audit: str
    settings: tuple[Setting, ...]
    title: str = ""
    exposed: int = 0
    variance: str = "pooled"
    confidence: float = 0.95
    delta: float = 1e-5
    """δ of what attacks show of ε where a setting promises none."""
    explainers: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    config_hash: str | None = None
    gaps: tuple[Gap, ...] = ()
    """What is missing; settings that could not be attacked stand here and not among the settings."""
    interpreted: bool = False
    """Whether explanations were measured, of every architecture that was trained."""
    shown: bool = False
    """Whether the maps of some records were kept."""
    inherent: tuple[str, ...] = ()
    """Data sets on which explanations that are the model itself are held against others."""
    curved: bool = False
    """Whether curves were measured on explanations (deletion, insertion)."""
    studies: Mapping[str, Any] = field(default_factory=dict)
    """Studies of private explanations by data set, as `settings.private_report_slice` says them."""


def parse_spec(text: str, private: str = "") -> Spec:
    """Read a spec from JSON; keys that nothing here reads are left alone, missing ones are a UserError.

    `private` is the JSON of the audit's studies of private explanations; with them an audit may do without settings.
    """
    try:
        values = json.loads(text) | (json.loads(private) if private else {})
        settings = tuple(Setting(**_known(Setting, setting)) for setting in values["settings"])
        if not settings and not values.get("studies"):
            raise UserError("--spec: 'settings' is empty; expected at least one setting")
        confidence = (values.get("evaluation") or {}).get("confidence", 0.95)
        studies = {
            dataset: study | {"black_boxes": tuple(study["black_boxes"]), "settings": tuple(study["settings"])}
            for dataset, study in values.get("studies", {}).items()
        }
        given = _known(Spec, values) | {"settings": settings, "studies": studies}
        return Spec(**given, confidence=confidence)
    except json.JSONDecodeError as error:
        raise UserError(f"--spec: not JSON: {error}") from None
    except KeyError as error:
        raise UserError(f"--spec: no key {error}; expected audit, settings and the rest that a report needs") from None
    except (TypeError, AttributeError) as error:
        raise UserError(f"--spec: {str(error).splitlines()[0]}; expected the mapping that a report needs") from None


def _known(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {key: value for key, value in values.items() if key in names}


@dataclass(frozen=True)
class Results:
    """The files of an audit below `root`, read when asked for."""

    root: Path
    spec: Spec

    @cached_property
    def metrics(self) -> list[pl.DataFrame]:
        """metrics.parquet of every setting, in the order of the spec."""
        return [read_frame(self._file(setting, "metrics.parquet"), "metrics") for setting in self.spec.settings]

    @cached_property
    def training(self) -> list[pl.DataFrame | None]:
        """Every setting's training.parquet, one row per shadow (its last epoch); None where nothing was trained."""
        return [
            read_frame(self._file(setting, "training.parquet"), "training")
            .sort("shadow", "epoch")
            .group_by("shadow", maintain_order=True)
            .last()
            if setting.trained
            else None
            for setting in self.spec.settings
        ]

    @cached_property
    def curves(self) -> dict[Any, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """ROC curves that have been read, by setting and attack: FPRs, mean TPRs and their standard deviation."""
        return {}

    @cached_property
    def exposures(self) -> dict[Any, dict[str, np.ndarray]]:
        """Exposures of records that are known already, by setting and attack."""
        return {}

    @cached_property
    def datasets(self) -> list[str]:
        """The data sets of all settings and studies."""
        return list(dict.fromkeys([*(setting.dataset for setting in self.spec.settings), *self.spec.studies]))

    @cached_property
    def groups(self) -> list[tuple[str, str]]:
        """Dataset × architecture of all models that were trained, in the order of the spec."""
        return list(dict.fromkeys(setting.group for setting in self.spec.settings if setting.trained))

    @cached_property
    def interpretability(self) -> dict[tuple[str, str], pl.DataFrame]:
        """Measures of explanations by dataset × architecture, averaged over the records of every model."""
        return {
            group: per_model(read_frame(self.root.joinpath(*group, "interpretability.parquet"), "interpretability"))
            for group in self.groups
            if self.spec.interpreted
        }

    def maps(self, group: tuple[str, str]) -> pl.DataFrame:
        """Return the maps of the records that are shown, by every setting of a dataset × architecture."""
        return read_frame(self.root.joinpath(*group, "explanations.parquet"), "explanations")

    def explanation_curves(self, group: tuple[str, str]) -> pl.DataFrame:
        """Return the curves measured on the explanations of every setting of a dataset × architecture, a row a model and step."""
        return read_frame(self.root.joinpath(*group, "curves.parquet"), "curves")

    def scored(self, setting: Setting, attack: str, signal: str, variance: str) -> Scored:
        """Return the scores of one attack on the true membership."""
        path = self._file(setting, "scores.parquet")
        found = next(read_scores(path, attack, signal, variance), None)
        if found is None:
            raise UserError(
                f"{path}: no scores of {attack} on {signal} ({variance}), of which metrics.parquet has metrics"
            )
        return found

    def pool_facts(self, dataset: str) -> dict[str, Any] | None:
        """Return the facts of a pool and its membership design; None where the audit has no pool."""
        folder = self.root / "pools" / dataset
        if not (folder / "records.parquet").exists():
            return None
        facts = table_facts(folder / "records.parquet", "records")
        facts["records"] = open_table(folder / "records.parquet", "records").metadata.num_rows
        public = folder / "public.parquet"
        facts["public"] = open_table(public, "records").metadata.num_rows if public.exists() else 0
        if (folder / "membership.parquet").exists():
            facts["membership"] = table_facts(folder / "membership.parquet", "membership")
        return facts

    def inputs(self) -> Iterator[Path]:
        """List the files that the report rests on and that exist, sorted."""
        paths = {
            self._file(setting, f"{name}.parquet")
            for setting in self.spec.settings
            for name in ("metrics", "scores", "training")
        }
        paths |= {
            self.root.joinpath(*group, f"{name}.parquet")
            for group in self.groups
            for name in ("interpretability", "explanations", *(["curves"] if self.spec.curved else []))
            if self.spec.interpreted
        }
        for dataset, study in self.spec.studies.items():
            boxes = (*study["black_boxes"], *(setting["name"] for setting in study["settings"]))
            paths |= {self.root / dataset / "private" / name / "answers.parquet" for name in boxes}
        for dataset in self.datasets:
            paths |= {
                self.root / "pools" / dataset / name
                for name in ("records.npy", "records.parquet", "membership.parquet")
            }
        return iter(sorted(path for path in paths if path.exists()))

    def _file(self, setting: Setting, name: str) -> Path:
        return self.root / setting.path / name
