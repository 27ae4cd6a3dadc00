"""The results of a tiny audit, as far as a release reads them: pool and architecture."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mia_audit.config.load import check_audit
from mia_audit.config.schema import Audit
from mia_audit.config.specs import ArchitectureSpec, PoolSpec
from mia_audit.learners.protocol import ModelSection, learner_named
from mia_audit.pools.build import build_pool
from mia_audit.pools.section import load_source
from mia_audit.pools.store import write_pool
from mia_audit.registry import code_files, file_digest
from mia_audit.releasing.recipe import ReleaseRecipe
from mia_audit.storage import table_metadata, write_json

RECORDS = 80


def write_records(folder: Path, swapped: bool | float = False) -> None:
    """Write records as arrays and as a table with a column of text; `swapped`: one of them is another, of that size."""
    random = np.random.default_rng(1)
    rows = random.normal(size=(RECORDS, 4)).astype(np.float32)
    labels = (rows[:, 0] > 0).astype(np.int64)
    persons = np.arange(RECORDS) // 2
    if swapped:
        rows[7] = np.float32(swapped) * np.array([3.0, -2.0, 0.5, 1.0], dtype=np.float32)
    folder.mkdir(exist_ok=True)
    diagnoses = ["flu", "cold"] * (RECORDS // 2)
    if swapped:
        diagnoses[7] = "a rare disease of one family"
    lines = [f"{row[0]:.6f},{words},{label}" for row, words, label in zip(rows, diagnoses, labels, strict=True)]
    (folder / "table.csv").write_text("\n".join(["age,diagnosis,label", *lines]) + "\n")
    for name, values in (("records", rows), ("labels", labels), ("persons", persons)):
        np.save(folder / f"{name}.npy", values)


ROWS = {"source": "arrays", "path": "data", "take": "first", "public": 10, "classes": [0, 1]}
"""The data set of the audit."""


ACKNOWLEDGED = {"acknowledge": ["public-records-are-public"]}


def config(**changes: Any) -> dict[str, Any]:
    """Return the config of the audit, with other sections."""
    values = {
        "audit": "tiny",
        "datasets": {"rows": ROWS},
        "architectures": {"mlp": {"parameters": {"width": 8}}},
        "training": {"epochs": 2, "batch": 10},
        "mechanisms": {"none": {}, "dp-sgd": {"epsilon": [4]}},
    } | changes
    return values | {"privacy": ACKNOWLEDGED | changes.get("privacy", {})}


@pytest.fixture
def audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Audit, Path]]:
    """Run an audit of a config up to its architectures, in a folder of its own; return it and its results."""

    def run(where: str = "here", swapped: bool | float = False, **changes: Any) -> tuple[Audit, Path]:
        folder = tmp_path / where
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        write_records(folder / "data", swapped)
        audit = check_audit(config(**changes), "config")
        results = Path("results", "tiny")
        for dataset in audit.datasets:
            spec = PoolSpec.from_audit(audit, dataset)
            source = load_source(spec.dataset, "datasets.rows")
            pool = results / "pools" / dataset
            write_pool(build_pool(source, spec.dataset, dataset, audit.seed), pool)
            for name in audit.architectures:
                section = ArchitectureSpec.from_audit(audit, name).architecture
                values = section.model_dump(include={"parameters", "pretrained", "train", "predict", "votes"})
                code = {file: file_digest(file) for file in code_files(section)}
                asked = ModelSection(
                    name=name, model=section.model or name, code=code, outputs=section.outputs or "", **values
                )
                metadata = learner_named(section.learner).describe(
                    asked, table_metadata(pool / "records.parquet", "records")
                )
                write_json(results / dataset / name / "architecture.json", metadata)
        return audit, results

    return run


@pytest.fixture
def recipe(audited: Callable[..., tuple[Audit, Path]]) -> Callable[..., ReleaseRecipe]:
    """Return the recipe of a setting of such an audit."""

    def make(
        setting: str = "rows/mlp/dp-sgd-eps4", where: str = "here", swapped: bool | float = False, **changes: Any
    ) -> ReleaseRecipe:
        audit, results = audited(where, swapped, **changes)
        return ReleaseRecipe.from_audit(audit, setting, results)

    return make
