"""The files of an audit, each read once, for its tables, figures and page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from mia_audit.attacks.design import CORRECTION
from mia_audit.attacks.io.parquet import GIVEN
from mia_audit.attacks.persons import NONE, PERSON
from mia_audit.errors import UserError
from mia_audit.evaluation.files import Scored, read_scores
from mia_audit.evaluation.model_counts import MODEL_COUNTS
from mia_audit.evaluation.summary import summarise
from mia_audit.explanation_metrics.summary import per_model
from mia_audit.foreign_json import parse_object
from mia_audit.pools.store import read_persons
from mia_audit.report.data.baselines import PUBLIC, Guessing, Start, read_guessing, read_start
from mia_audit.report.data.spec import Setting, Spec
from mia_audit.storage import given_digest, open_table, read_frame, read_table, table_metadata

if TYPE_CHECKING:
    from mia_audit.report.data.private import Studied


@dataclass(frozen=True)
class Results:
    """The files of an audit below the folder `root`, each read when it is first needed."""

    root: Path
    spec: Spec

    @cached_property
    def metrics(self) -> list[pl.DataFrame]:
        """metrics.parquet of every setting, in the order of the spec."""
        return [read_frame(self._file(setting, "metrics.parquet"), "metrics") for setting in self.spec.settings]

    @cached_property
    def summaries(self) -> list[pl.DataFrame]:
        """The metrics of every setting summarised over targets, in the order of the spec."""
        return [summarise(metrics, self.spec.confidence) for metrics in self.metrics]

    @cached_property
    def design_corrections(self) -> list[str]:
        """The membership designs, over all settings, for which attacks were corrected."""
        facts = map(self.facts, self.spec.settings)
        return list(dict.fromkeys(known[CORRECTION] for known in facts if CORRECTION in known))

    @cached_property
    def model_counts(self) -> list[list[dict[str, Any]]]:
        """Metrics with fewer other models, by setting (`evaluation.model_counts`)."""
        return [self.facts(setting).get(MODEL_COUNTS, []) for setting in self.spec.settings]

    @cached_property
    def evenly_mixed(self) -> list[tuple[str, dict[str, Any]]]:
        """The data set, and the row of shares.csv, of every setting whose locally linear maps are mixed evenly."""
        tables = ((path.parent.name, pl.read_csv(path)) for path in self._shares())
        return [(dataset, row) for dataset, table in tables for row in table.filter("mixed_evenly").to_dicts()]

    def _shares(self) -> list[Path]:
        return sorted((self.root / "figures" / "filters").glob("*/shares.csv"))

    def facts(self, setting: Setting) -> dict[str, Any]:
        """Return the metadata of a setting's metrics.parquet."""
        return table_metadata(self._file(setting, "metrics.parquet"), "metrics")

    def groups(self, setting: Setting) -> tuple[pl.DataFrame, dict[str, dict[str, int]]]:
        """Return the metrics of a setting's groups, and by aggregate and column the number of groups that were too small."""
        path = self._file(setting, "groups.parquet")
        return read_frame(path, "group_metrics"), table_metadata(path, "group_metrics").get("small", {})

    @cached_property
    def given(self) -> dict[str, dict[str, str]]:
        """The SHA-256 of the files that no audit wrote, by setting and by file name."""
        known = {}
        for setting in self.spec.settings:
            path = self._file(setting, "metrics.parquet")
            if digests := self.facts(setting).get(GIVEN, {}) | given_digest(path):
                known[setting.path] = digests
        return known

    @cached_property
    def training(self) -> list[pl.DataFrame | None]:
        """Every setting's training.parquet, one row per shadow (its last epoch); None if training is unknown."""
        return [
            read_frame(self._file(setting, "training.parquet"), "training")
            .sort("shadow", "epoch")
            .group_by("shadow", maintain_order=True)
            .last()
            if setting.trained or (self.root / setting.path / "training.parquet").exists()
            else None
            for setting in self.spec.settings
        ]

    @cached_property
    def starts(self) -> dict[tuple[str, str], Start]:
        """The public models from which trainings started, with their accuracy and loss, by dataset × architecture."""
        starts = {group: read_start(self.root.joinpath(*group, PUBLIC)) for group in self.spec.groups}
        return {group: start for group, start in starts.items() if start}

    def guessing(self, setting: Setting) -> Guessing | None:
        """Return what guessing achieves on the records that a setting's models were trained on; None if that is not known."""
        return read_guessing(self.root / "pools" / setting.pool / "records.parquet") if setting.trained else None

    @cached_property
    def curves(self) -> dict[Any, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Cache of ROC curves by setting and attack: FPRs, mean TPRs and their standard deviation."""
        return {}

    @cached_property
    def exposures(self) -> dict[Any, dict[str, np.ndarray]]:
        """Cache of records' exposures by setting and attack."""
        return {}

    @cached_property
    def datasets(self) -> list[str]:
        """The data sets of all settings and studies."""
        return list(dict.fromkeys([*(setting.dataset for setting in self.spec.settings), *self.spec.studies]))

    @cached_property
    def explanation_metrics(self) -> dict[tuple[str, str], pl.DataFrame]:
        """Measures of explanations by dataset × architecture, averaged over the records of every model."""
        return {
            group: per_model(
                read_frame(self.root.joinpath(*group, "explanation_metrics.parquet"), "explanation_metrics")
            )
            for group in self.spec.measured_groups
        }

    @cached_property
    def studied(self) -> list[Studied]:
        """Every black box of the audit's studies of private explanations."""
        from mia_audit.report.data.private import studied  # and the privacy accounting with it

        return list(studied(self.root, self.spec.studies, self.spec.confidence))

    def maps(self, group: tuple[str, str]) -> pl.DataFrame:
        """Return the attribution maps of the records shown, for every setting of a dataset × architecture."""
        return read_frame(self.root.joinpath(*group, "explanations.parquet"), "explanations")

    def explanation_curves(self, group: tuple[str, str]) -> pl.DataFrame:
        """Return the curves measured on explanations in every setting of a dataset × architecture, a row per model and step."""
        return read_frame(self.root.joinpath(*group, "curves.parquet"), "curves")

    def scored(self, setting: Setting, attack: str, signal: str, likelihood: str, aggregate: str = NONE) -> Scored:
        """Return the scores of one attack on the true membership, of records or of persons."""
        path = self._file(setting, "scores.parquet")
        scored = next(read_scores(path, attack, signal, likelihood, aggregate=aggregate), None)
        if scored is None:
            raise UserError(
                f"{path}: no scores of {attack} on {signal} ({likelihood}), although metrics.parquet has metrics for it"
            )
        return scored

    def mask_coverage(self, setting: Setting) -> float | None:
        """Return the share of the trained parameters whose noise a mask scales, from the first model's masks; None without masks."""
        from safetensors import SafetensorError, safe_open

        path = next(iter(sorted(self._file(setting, "models").glob("shadow-*/masks.safetensors"))), None)
        if path is None:
            return None
        try:
            with safe_open(path, "numpy") as file:
                stated = parse_object((file.metadata() or {})["masks"]).get("coverage")
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise UserError(f"{path}: damaged ({type(error).__name__}); expected what a training wrote") from None
        return stated if isinstance(stated, float) else None

    def pool_metadata(self, dataset: str) -> dict[str, Any] | None:
        """Return the metadata of a pool and its membership design; None where the audit has no pool."""
        folder = self.root / "pools" / dataset
        if not (folder / "records.parquet").exists():
            return None
        metadata = table_metadata(folder / "records.parquet", "records")
        metadata["records"] = open_table(folder / "records.parquet", "records").metadata.num_rows
        if metadata.get("unit") == PERSON and (ids := read_persons(folder / "records.parquet")) is not None:
            metadata["persons"] = len(np.unique(ids))
        public = folder / "public.parquet"
        metadata["public"] = open_table(public, "records").metadata.num_rows if public.exists() else 0
        if (folder / "membership.parquet").exists():
            metadata["membership"] = table_metadata(folder / "membership.parquet", "membership")
        return metadata

    def origins(self, dataset: str) -> Callable[[int], str]:
        """Return a function that names a pool's record as its owner does: by its image file, or by its row and file.

        The text is empty if the pool states neither.
        """
        path = self.root / "pools" / dataset / "records.parquet"
        held = open_table(path, "records").schema_arrow.names if path.exists() else []
        if "file" in held:
            files = read_table(path, "records", ["file"])["file"].to_pylist()
            return lambda number: str(files[number])
        section = (self.spec.config.get("datasets") or {}).get(dataset) or {}
        file = PurePath(str(section.get("path") or "")).name
        if "source" not in held or section.get("source") != "table" or not file:
            return lambda number: ""
        rows = read_table(path, "records", ["source"])["source"].to_numpy()
        return lambda number: f"row {rows[number] + 1} of {file}"

    def records_of_persons(self, setting: Setting) -> np.ndarray | None:
        """Return the number of records of every audited person in a setting's pool; None if it names no persons."""
        path = self.root / "pools" / setting.pool / "records.parquet"
        ids = read_persons(path) if path.exists() else None
        return None if ids is None else np.unique(ids, return_counts=True)[1]

    def inputs(self) -> Iterator[Path]:
        """List the existing files that the report is made from, sorted."""
        paths = {
            self._file(setting, f"{name}.parquet")
            for setting in self.spec.settings
            for name in ("metrics", "scores", "training", *(["groups"] if setting.grouped else []))
        }
        paths |= set(self._shares())
        paths |= {
            self.root.joinpath(*group, f"{name}.parquet")
            for group in self.spec.measured_groups
            for name in ("explanation_metrics", "explanations", *(["curves"] if self.spec.curves else []))
        }
        paths |= {self.root.joinpath(*group, PUBLIC) for group in self.spec.groups}
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
