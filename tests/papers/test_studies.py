"""Patel et al. 2020 from finished studies: their tables and figures, what is blank, and with which command."""

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from mia_audit.cli import main
from mia_audit.config import expand
from mia_audit.config.load import load_audit
from mia_audit.config.schema import Audit
from mia_audit.config.specs import resolved
from mia_audit.papers.patel2020 import NOT_MEASURED, QUANTITIES, STAND_INS, Studies, finished_study, printed_numbers
from mia_audit.pools.store import StoredRecords
from mia_audit.report.findings import estimate, mean_over_seeds
from mia_audit.seeds import folder_of_seed
from mia_audit.storage import write_json, write_table
from mia_audit.training.report import SCHEMA

ROOT = Path(__file__).parents[2]
QUERIES, REPETITIONS, FEATURES = 6, 3, 64


def _answers(section: Any, factor: float) -> pa.Table:
    """Return answers of every experiment whose losses grow with the repetition, in the shape that the command writes."""
    runs = [("epsilon", "non-adaptive", name, epsilon) for name in ("", "sigma") for epsilon in section.epsilons]
    runs += [
        ("protocols", name, "", section.epsilon) for name in ("non-adaptive", "adaptive", "enhanced", "non-interactive")
    ]
    runs += [(name, "adaptive", "", section.epsilon) for name in ("random", "dense", "sparse", "overfitted")]
    rows = [
        {"repetition": again, "experiment": experiment, "protocol": protocol, "as_published": published, "epsilon": epsilon,
         "number": number, "record": number, "class": number % 2, "source": "warm-start" if number else "scratch",
         "steps": section.steps if number < 2 else 30 + again, "mu_squared": 1e-4, "mu_squared_spent": 1e-4 * (number + 1),
         "excess_loss": (1 + again) * factor * (9 if published else 1) * 1e-3 / epsilon, "excess_loss_of_zero": 0.4,
         "distance": 0.1 * number + factor, "misclassified": number / QUERIES, "explanation": [0.1] * FEATURES,
         "path": [0.2, 0.4, 0.1] if (experiment, protocol, number) == ("protocols", "adaptive", 3) else None}
        for again in range(REPETITIONS)
        for experiment, protocol, published, epsilon in runs
        for number in range(QUERIES)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows)


def _finished(root: Path, config: str) -> Path:
    """Write results of a committed config with made-up answers, and accuracies of its models, for each of its seeds."""
    audit = load_audit(ROOT / config)
    for seed, own in expand.by_seed(audit).items():
        _write(root / folder_of_seed(int(seed)) if seed else root, own)
    sources = {"seeds": list(audit.seeds)} if audit.seeds else {"settings": []}
    write_json(root / "provenance.json", sources | {"config": resolved(audit)})
    return root


def _write(root: Path, audit: Audit) -> None:
    for dataset, section in audit.private_explanations.items():
        for place, name in enumerate(expand.black_boxes_of(audit, dataset)):
            table = _answers(section, 1 + place)
            write_table(root / dataset / "private" / name / "answers.parquet", table, "private-answers", len(table))
    for setting in expand.settings(audit):
        if setting.trained:
            rows = [{"shadow": k, "epoch": 1, "test_accuracy": 0.8 + 0.1 * k, "records": 10} for k in range(2)]
            table = pa.Table.from_pylist(
                [{name: row.get(name) for name in SCHEMA.names} for row in rows], schema=SCHEMA
            )
            write_table(root / setting.path / "training.parquet", table, "training", 2, {})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Return the folder that the command wrote to, and what it said, of two of the three configs."""
    folder, said = tmp_path_factory.mktemp("patel"), io.StringIO()
    roots = [_finished(folder / name, f"config/patel2020/{name}.yaml") for name in ("table", "models")]
    records = StoredRecords(np.zeros((QUERIES, 1, 8, 8), dtype=np.uint8), np.zeros(QUERIES, dtype=np.int64), {})
    with redirect_stdout(said), pytest.MonkeyPatch.context() as patch:
        patch.setattr("mia_audit.pools.store.read_records", lambda folder: records)
        assert main(["paper", "patel2020", *map(str, roots), "--out", str(folder / "out")]) == 0
    return folder / "out", said.getvalue().splitlines()


@pytest.mark.slow
def test_what_has_no_results_has_its_command(written: tuple[Path, list[str]]) -> None:
    _, said = written
    missing = {line.removeprefix("missing: ") for line in said if line.startswith("missing: ")}
    runs = {f"snakemake --cores all --configfile config/patel2020/{name}.yaml" for name in ("digits", "wordnet")}
    assert missing == runs | {STAND_INS["Text models"].why, *NOT_MEASURED.values()}
    assert any(line.startswith("Table 3: 2 of 6 cells filled.") for line in said)


@pytest.mark.slow
def test_a_cell_has_the_published_noise_and_exact_noise_over_repetitions(written: tuple[Path, list[str]]) -> None:
    folder, _ = written
    table = pl.read_csv(folder / "table_3.csv")
    (row,) = table.filter(dataset="ACS13", epsilon=0.01).iter_rows(named=True)
    seeds = load_audit(ROOT / "config/patel2020/table.yaml").seeds
    exact = mean_over_seeds([estimate([0.1, 0.2, 0.3], 0.95)] * len(seeds), 0.95)
    assert row["printed_mean"] == 5.7e-3 and row["exact_mean"] == pytest.approx(exact.mean)
    assert (row["exact_low"], row["exact_high"]) == pytest.approx((exact.low, exact.high))
    assert (
        row["alike_mean"] == pytest.approx(9 * exact.mean) and row["repetitions"] == len(seeds) and not row["command"]
    )
    (blank,) = table.filter(dataset="Face", epsilon=0.1).iter_rows(named=True)
    assert blank["exact_mean"] is None and blank["command"].endswith("config/patel2020/digits.yaml")
    text = pl.read_csv(folder / "table_text.csv", schema_overrides={"epsilon": pl.String})
    by_place = {(r["dataset"], r["quantity"], r["epsilon"] or ""): r for r in text.iter_rows(named=True)}
    assert by_place["ACS13", "share_of_all_steps", ""]["exact_mean"] == pytest.approx(2 / QUERIES)
    assert by_place["ACS13", "least_steps", ""]["exact_mean"] == pytest.approx(31)
    accuracy = by_place["Face models", "test_accuracy", "2"]
    assert accuracy["exact_mean"] == pytest.approx(0.85) and accuracy["repetitions"] == 3, "seeds, of two models each"


def test_every_printed_number_has_a_name_and_a_stand_in_or_a_reason() -> None:
    numbers = printed_numbers("patel2020")
    assert len(numbers) == 26 and {number.dataset for number in numbers} <= STAND_INS.keys()
    assert {number.quantity for number in numbers} == QUANTITIES.keys() | {"test_accuracy"} | NOT_MEASURED.keys()
    for stand_in in STAND_INS.values():
        assert bool(stand_in.config) != bool(stand_in.why)
        if stand_in.config:
            audit = load_audit(ROOT / stand_in.config)
            section = audit.private_explanations[stand_in.dataset]
            assert section.repetitions > 1 and {stand_in.black_box} - {""} <= set(section.black_boxes)
    for number in numbers:
        if number.quantity == "loss" and STAND_INS[number.dataset].config:
            stand_in = STAND_INS[number.dataset]
            epsilons = load_audit(ROOT / stand_in.config).private_explanations[stand_in.dataset].epsilons
            assert float(number.epsilon) in epsilons


def test_an_audit_without_a_study_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_json(tmp_path / "provenance.json", {"settings": [], "config": {"audit": "other"}})
    assert main(["paper", "patel2020", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "expected results of config/patel2020" in capsys.readouterr().err
    assert not Studies([]).boxes("Face") and not (tmp_path / "out").exists()


def test_the_study_is_read_from_the_resolved_config(tmp_path: Path) -> None:
    results = finished_study(_finished(tmp_path, "config/patel2020/table.yaml"))
    assert [one.name for one in results.studied] == [
        "forest-labels",
        "forest-overfitted-labels",
        "forest",
        "forest-overfitted",
    ]
    seeds = len(load_audit(ROOT / "config/patel2020/table.yaml").seeds)
    assert all(len(one.repetitions) == REPETITIONS * seeds for one in results.studied)
