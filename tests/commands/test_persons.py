"""Signals whose records belong to persons: scores, metrics, findings and page."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from mia_audit.attacks.design import AGGREGATES, of_persons
from mia_audit.attacks.io.parquet import SignalsFile
from mia_audit.cli import main
from mia_audit.errors import UserError
from mia_audit.evaluation.files import read_scores, summarise
from mia_audit.pools.groups import Grouping, read_groups, write_groups
from mia_audit.pools.persons import Persons
from mia_audit.report.opened import find
from mia_audit.report.page import render
from mia_audit.report.provenance import provenance
from mia_audit.report.results import Results
from mia_audit.report.spec import AuditedSetting, ReportedAudit
from mia_audit.report.tables.catalogue import tables
from mia_audit.storage import read_frame, table_metadata

from ..builders import run, write_signals

MODELS, PERSONS = 8, 60
ATTACKS = {
    "methods": ["threshold", "loss-lira", "rmia", "joint-lrt:confidence+loss"],
    "likelihoods": ["pooled", "shrunk"],
}
SETTING = AuditedSetting("d", "signals", "given", "inf", trained=False, folder=".", by_person=True)


def written(path: Path, ids: np.ndarray, split: bool = False) -> Path:
    """Write signals that leak a little of every record, whose persons are members together."""
    random = np.random.default_rng(0)
    persons, person = Persons.numbered(ids), np.char.add("p", ids.astype(np.str_))
    member = persons.spread(random.random((len(persons), MODELS)) < 0.5)
    confidence = random.normal(size=(len(ids), 1)) + random.normal(size=(len(ids), MODELS)) + 0.8 * member
    if split:
        member = member.copy()
        member[0] ^= True
    return write_signals(path, member, person=person, confidence=confidence, loss=np.exp(-confidence))


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scores and metrics of persons with 1 to 6 records each."""
    folder = tmp_path_factory.mktemp("persons") / "run"
    folder.mkdir()
    ids = np.random.default_rng(3).permutation(np.repeat(np.arange(PERSONS), np.arange(PERSONS) % 6 + 1))
    written(folder / "signals.parquet", ids)
    _judge(folder)
    return folder


def _judge(folder: Path, leave_out: Sequence[int] = ()) -> None:
    spec = {"seed": 3, "dataset": "d", "attacks": ATTACKS | {"leave_out": list(leave_out)}}
    files = {name: folder / f"{name}.parquet" for name in ("signals", "scores")}
    assert run("attack", signals=files["signals"], spec=spec, out=files["scores"]) == 0
    assert run("evaluate", **files, spec={"evaluation": {"fprs": [0.1]}}, out=folder / "metrics.parquet") == 0


def test_every_attack_has_scores_of_persons(judged: Path) -> None:
    scores = pl.read_parquet(judged / "scores.parquet")
    persons = scores.filter(unit="person")
    assert persons["record"].null_count() == len(persons) and scores.filter(unit="record")["record"].null_count() == 0
    keys = ("attack", "signal", "likelihood", "null_control")
    assert set(persons.select(keys).unique().rows()) == set(scores.select(keys).unique().rows())
    records = {found.key: found for found in read_scores(judged / "scores.parquet", aggregate="none")}
    for aggregate in AGGREGATES:
        for found in read_scores(judged / "scores.parquet", aggregate=aggregate):
            own = records[found.key]
            assert own.person is not None and found.person is not None
            theirs = Persons.numbered(own.person)
            assert theirs.ids.tolist() == found.person.tolist()
            assert np.array_equal(theirs.gathered(own.member, "m"), found.member)
            expected = of_persons(own.score.astype(np.float64), theirs, aggregate)
            np.testing.assert_allclose(found.score, expected, rtol=1e-4, atol=1e-5)


def test_persons_leak_more_than_their_records_and_nothing_on_permuted_persons(judged: Path) -> None:
    summary = summarise(read_frame(judged / "metrics.parquet", "metrics"))
    real = summary.filter(attack="loss-lira", likelihood="pooled", null_control=False)
    aucs = dict(zip(real["aggregate"], real["auc_mean"], strict=True))
    assert aucs["sum"] > aucs["none"] + 0.05
    null = summary.filter(attack="loss-lira", likelihood="pooled", null_control=True)
    assert ((null["auc_low"] < 0.5) & (null["auc_high"] > 0.5)).all()
    assert null["aggregate"].to_list() == ["none", *AGGREGATES]
    assert real.filter(unit="record")["p_above_guessing"].null_count() == 1
    assert (real.filter(aggregate="sum")["p_above_guessing"] < 0.01).all()


def test_further_scorings_are_those_of_persons(judged: Path) -> None:
    metrics = read_frame(judged / "metrics.parquet", "metrics")
    ours = metrics.filter(attack="loss-lira", likelihood="pooled", null_control=False)
    lists = {name: ours.filter(aggregate=name)["auc_without"].to_list() for name in ("none", *AGGREGATES)}
    assert all(len(values) == MODELS and values[0][0] is None for values in lists.values())
    assert len({str(values) for values in lists.values()}) == 4


def test_the_page_shows_both_and_names_persons(judged: Path) -> None:
    spec = ReportedAudit(audit="d", settings=(SETTING,), exposed=8, likelihood="pooled", config={"seed": 0})
    results = Results(judged, spec)
    findings = find(results)
    (finding,) = findings.settings
    assert finding.aggregate == "sum" and set(finding.others) == {"none", "mean", "max"}
    page = render(results, findings, provenance(results, findings.settings))
    assert "The most exposed persons" not in page and "Persons and their records" in page
    found = results.estimated(SETTING, findings.fpr)
    assert found is not None and len(found.advantage) == PERSONS and not found.differ  # too few persons to tell
    results.estimates[SETTING, findings.fpr] = replace(
        found, advantage=np.arange(PERSONS, 0.0, -1.0), low=np.arange(PERSONS, 0.0, -1.0), differ=True
    )
    page = render(results, findings, provenance(results, findings.settings))
    assert "The most exposed persons" in page and 'class="who">Person p' in page
    assert "The 8 persons that an attack" in page and "Person p" in page and "Records " in page
    assert "ranks a person who was trained on" in page
    table = tables["persons"](results, findings)
    assert table["aggregate"].to_list()[:2] == ["none", "sum"]
    exposure = tables["exposure"](results, findings)
    persons, records = (exposure.filter(unit=unit) for unit in ("person", "record"))
    assert persons["record"].null_count() == len(persons) == PERSONS
    assert set(records["person"]) == set(persons["person"]) and records["record"].n_unique() == len(records)
    assert [frame["rank"].to_list()[:2] for frame in (persons, records)] == [[1, 2], [1, 2]]


@pytest.mark.usefixtures("without_figures")
def test_an_audit_of_a_table_or_of_matrices_is_about_persons(
    judged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--attacks", "loss-lira", "--likelihoods", "pooled", "--fprs", "0.1", "--no-report", "--threads", "1"]
    source = SignalsFile(judged / "signals.parquet")
    (confidence,) = source.read(next(one for one in source.signals if one.name == "confidence"))
    assert source.persons is not None
    np.save(tmp_path / "member.npy", source.member)
    np.save(tmp_path / "confidence.npy", confidence)
    np.save(tmp_path / "ids.npy", source.persons.spread(source.persons.ids))
    matrices = ["--membership", str(tmp_path / "member.npy"), "--signal", f"confidence={tmp_path / 'confidence.npy'}"]
    named = [*matrices, "--person", str(tmp_path / "ids.npy")]
    expected = read_frame(judged / "metrics.parquet", "metrics").filter(
        attack="loss-lira", likelihood="pooled", null_control=False
    )
    for name, given in (("table", ["--table", str(judged / "signals.parquet")]), ("matrices", named)):
        out = tmp_path / name
        assert main(["audit", *given, *words, "--out", str(out)]) == 0
        assert "have the same memberships" not in capsys.readouterr().err
        found = read_frame(out / "metrics.parquet", "metrics").filter(null_control=False)
        assert found.select("aggregate", "target", "members").equals(expected.select("aggregate", "target", "members"))
        for column in ("auc", "tpr_at_fpr_0.1"):
            np.testing.assert_allclose(found[column], expected[column], atol=1e-6)
        first = pl.read_csv(out / "exposure.csv")
        assert first["unit"].to_list()[:PERSONS] == ["person"] * PERSONS and len(first) > PERSONS
        assert set(pl.read_csv(out / "epsilon.csv")["unit"]) == {"person"}
    assert main(["audit", *matrices, *words, "--out", str(tmp_path / "records")]) == 0
    assert "the same memberships as another" in capsys.readouterr().err
    assert set(read_frame(tmp_path / "records" / "metrics.parquet", "metrics")["unit"]) == {"record"}
    assert main(["audit", *named, *words[:-3], "--threads", "1", "--out", str(tmp_path / "whole")]) == 0
    assert "persons" in (tmp_path / "whole" / "report.html").read_text(encoding="utf-8")


def test_metrics_by_the_number_of_models_are_those_of_persons(judged: Path) -> None:
    counted = table_metadata(judged / "metrics.parquet", "metrics")["model_counts"]
    attack, signal, likelihood = (counted[-1][name] for name in ("attack", "signal", "likelihood"))
    summary = summarise(read_frame(judged / "metrics.parquet", "metrics"))
    found = summary.filter(attack=attack, signal=signal, likelihood=likelihood, null_control=False, aggregate="sum")
    assert counted[-1]["others"] == MODELS - 1
    assert counted[-1]["auc_mean"] == pytest.approx(found["auc_mean"][0], abs=1e-6)


def test_bounds_go_by_persons(judged: Path, tmp_path: Path) -> None:
    out = tmp_path / "bounds.csv"
    assert main(["epsilon-bound", "--scores", str(judged / "scores.parquet"), "--out", str(out)]) == 0
    assert set(pl.read_csv(out)["unit"]) == {"person"}


def test_a_table_rewritten_by_another_tool_reads_the_same(judged: Path, tmp_path: Path) -> None:
    ours = pl.read_parquet(judged / "scores.parquet")
    ours.sample(fraction=1, shuffle=True, seed=0).write_parquet(tmp_path / "scores.parquet")
    ours_by_key = {(one.key, one.aggregate): one for one in read_scores(judged / "scores.parquet")}
    for found in read_scores(tmp_path / "scores.parquet"):
        own = ours_by_key[found.key, found.aggregate]
        assert own.person is not None and found.person is not None
        here, there = (np.argsort(one.person, kind="stable") for one in (own, found))
        assert np.array_equal(own.person[here], found.person[there])
        assert np.array_equal(own.score[here], found.score[there], equal_nan=True) or found.aggregate == "none"


def test_with_one_record_a_person_all_scores_agree(tmp_path: Path) -> None:
    written(tmp_path / "signals.parquet", np.arange(40))
    _judge(tmp_path)
    metrics = read_frame(tmp_path / "metrics.parquet", "metrics")
    own = metrics.filter(unit="record").drop("unit", "aggregate")
    for aggregate in AGGREGATES:
        assert metrics.filter(aggregate=aggregate).drop("unit", "aggregate").equals(own)


@pytest.mark.parametrize("change", ["split", "models", "kind"])
def test_bad_persons_are_one_line(change: str, tmp_path: Path) -> None:
    path = written(tmp_path / "signals.parquet", np.arange(40) // 4, split=change == "split")
    words: dict[str, Any] = {
        "split": "some records of person p0 are members",
        "models": "expected the same person for a record in every model",
        "kind": "expected whole numbers or text",
    }
    if change != "split":
        frame = pl.read_parquet(path)
        new = pl.when(frame["shadow"] == 1).then(pl.lit("p0")).otherwise("person")
        frame.with_columns((new if change == "models" else pl.lit(0.5)).alias("person")).write_parquet(path)
    with pytest.raises(UserError, match=words[change]):
        SignalsFile(path)


@pytest.mark.parametrize("leave_out", [[], [3]], ids=["all", "without-one"])
def test_a_group_of_everybody_has_the_metrics_of_all(judged: Path, tmp_path: Path, leave_out: list[int]) -> None:
    """Further scorings included; of records and, by the sum, of persons, whose group is that of most of their records."""
    if leave_out:
        signals, judged = judged / "signals.parquet", tmp_path / "again"
        judged.mkdir()
        shutil.copy(signals, judged)
        _judge(judged, leave_out)
    records = len(pl.read_parquet(judged / "signals.parquet").filter(shadow=0))
    everybody = Grouping("all", ("in", "nobody"), np.zeros(records, dtype=int))
    odd = Grouping("odd", ("even", "odd"), np.arange(records) % 2)
    write_groups(tmp_path / "groups.parquet", [odd, everybody], records)
    assert [one.name for one in read_groups(tmp_path / "groups.parquet")] == ["odd", "all"]
    files = {name: judged / f"{name}.parquet" for name in ("signals", "scores")}
    out, spec = tmp_path / "of_groups.parquet", {"evaluation": {"fprs": [0.1]}}
    assert run("evaluate-groups", **files, spec=spec, groups=tmp_path / "groups.parquet", out=out) == 0
    keys = ["attack", "signal", "likelihood", "unit", "aggregate", "target"]
    whole = pl.read_parquet(judged / "metrics.parquet").filter(
        ~pl.col("null_control"), pl.col("aggregate").is_in(["none", "sum"])
    )
    found = pl.read_parquet(out)
    assert set(found["target"]) == set(range(MODELS)) - set(leave_out)
    both = whole.join(found.filter(group="in"), on=keys, suffix="_of_group")
    assert len(both) == len(whole) > 0
    for name in ("auc", "tpr_at_fpr_0.1", "auc_without", "tpr_at_fpr_0.1_without"):
        assert both[name].to_list() == both[f"{name}_of_group"].to_list(), name
    assert both["tpr_at_fpr_0.1"].to_list() == both["common_tpr_at_fpr_0.1"].to_list()
    assert both["tpr_at_fpr_0.1_without"].to_list() == both["common_tpr_at_fpr_0.1_without"].to_list()
    assert both["rest_auc"].null_count() == len(both)
    assert set(found.filter(column="odd", aggregate="none")["group"]) == {"even", "odd"}
