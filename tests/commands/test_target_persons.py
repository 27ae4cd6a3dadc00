"""A finished model whose training set is of persons: they are attacked, by group too, and nobody may be half inside."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.ensemble import RandomForestClassifier

from mia_audit.pools.persons import Persons
from mia_audit.pools.section import Membership
from mia_audit.pools.store import draw_membership, read_persons
from mia_audit.report.figures.catalogue import figures
from mia_audit.report.opened import find
from mia_audit.report.page import render
from mia_audit.report.provenance import provenance
from mia_audit.report.results import Results
from mia_audit.report.spec import AuditedSetting, ReportedAudit
from mia_audit.report.tables.catalogue import tables

from ..builders import one_line, run
from .test_target import EVALUATION, FOREST, MODELS, attack_it, take_over, train_references

PEOPLE = 80
DATASET = {"source": "table", "path": "table.csv", "columns": {"trained": "drop", "sex": "drop"}, "person": "patient"}


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A forest of 80 persons with one to five rows each, attacked with five references of its recipe."""
    skops = pytest.importorskip("skops.io")
    folder = tmp_path_factory.mktemp("release")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        random = np.random.default_rng(0)
        people = np.repeat(np.arange(PEOPLE) + 500, np.arange(PEOPLE) % 5 + 1)
        rows = random.normal(size=(len(people), 5)).round(3)
        labels = (rows[:, 0] + random.normal(size=len(people)) > 0).astype(int)
        inside = random.random(PEOPLE) < 0.5
        trained = inside[people - 500]
        table = pl.DataFrame(rows, schema=list("vwxyz")).with_columns(
            pl.Series("label", labels), pl.Series("trained", trained), pl.Series("patient", people),
            pl.Series("sex", np.where(people % 2, "f", "m")),
        )  # fmt: skip
        table.write_csv("table.csv")
        Path("members.txt").write_text("\n".join(map(str, np.unique(people[trained]))))
        pool = {"seed": 0, "name": "toy", "dataset": DATASET}
        assert run("pool", spec=pool, out="pools/toy") == 0
        Path("pool").symlink_to("pools/toy")
        grouped = pool | {"dataset": DATASET | {"groups": ["sex", "records"]}}
        assert run("groups", pool="pool", spec=grouped, out="pool/groups.parquet") == 0
        forest = RandomForestClassifier(10, random_state=9).fit(rows[trained].astype(np.float32), labels[trained])
        skops.dump(forest, "release.skops")
        spec = {"name": "forest", "architecture": FOREST}
        assert run("architecture", pool="pool", spec=spec, out="architecture.json") == 0
        ids = read_persons(folder / "pool" / "records.parquet")
        assert ids is not None
        persons = Persons.numbered(ids)
        of_persons = {"records": "pool/records.parquet"}
        train_references(
            persons.spread(draw_membership(Membership(models=MODELS), len(persons), "toy", 0)), **of_persons
        )
        assert take_over(members="members.txt", id="patient") == 0
        scores, _ = attack_it(**of_persons)
        files = {"scores": scores, "signals": "signals.parquet", "groups": "pool/groups.parquet"}
        assert run("evaluate-groups", **files, spec=EVALUATION, out=scores.with_name("groups.parquet")) == 0
        yield folder, persons, dict(zip((np.arange(PEOPLE) + 500).tolist(), inside.tolist(), strict=True))


def test_persons_of_the_finished_model_are_scored(audited: Any) -> None:
    folder, persons, inside = audited
    scores = pl.read_parquet(folder / "toy/release/none-epsinf/scores.parquet").filter(
        ~pl.col("null_control"), attack="loss-lira"
    )
    assert scores["target"].unique().to_list() == [MODELS]
    summed = scores.filter(aggregate="sum")
    assert summed["member"].to_list() == [inside[person] for person in summed["person"].to_list()]
    records = scores.filter(aggregate="none")["score"].to_numpy()
    by_hand = np.bincount(persons.of, weights=records)
    np.testing.assert_allclose(summed["score"].to_numpy(), by_hand, rtol=1e-5)


def test_the_page_speaks_of_persons_and_groups(audited: Any) -> None:
    folder, _, _ = audited
    finished = {"trained": False, "finished": "release.skops", "by_person": True, "grouped": True}
    setting = AuditedSetting("toy", "release", "none", "inf", **finished)
    results = Results(folder, ReportedAudit(audit="release", settings=(setting,), exposed=2))
    findings = find(results)
    page = render(results, findings, provenance(results, findings.settings)).split("<script")[0]
    assert "Who bears the risk" in page and "Persons and their records" in page
    assert "5 groups of records" in page and "fewer than 30 persons" in page
    assert not re.search(r"\bnan\b", page)
    table = tables["groups"](results, findings)
    assert table["group"].to_list() == ["f", "m"] and table["units"].to_list() == [40, 40]
    assert table["unit"].to_list() == ["person", "person"]
    for row in table.iter_rows(named=True):
        assert row["auc_low"] < row["auc_mean"] < row["auc_high"]
        assert row["difference_low"] < row["difference_mean"] < row["difference_high"]
        assert 0 < row["p_holm"] <= 1 and 0 < row["test_accuracy"] < 1
    first, second = table["difference_mean"].to_list()
    assert first == pytest.approx(-second)  # each is everybody else to the other
    assert not isinstance(figures["groups"](results, findings, setting.group), str)


def test_who_is_half_inside_is_named(audited: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _, _ = audited
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("rows.txt").write_text("2\n3\n")
        assert take_over(members="rows.txt") == 2
    line = one_line(capsys)
    assert "targets.release.members: rows.txt: only" in line and "person 501" in line
    assert "(1 of 2; 2 such persons in all)" in line
