"""The table of attacks as they were published: the authors' read-out, the exact one, and ours."""

import numpy as np
import pytest

from mia_audit.cli import main
from mia_audit.evaluation.metrics import authors_read_out
from mia_audit.report.results import Results
from mia_audit.report.spec import AuditedSetting, ReportedAudit
from mia_audit.report.tables.attacks import as_published
from mia_audit.report.tables.catalogue import table_files, to_csv

ATTACKS = ("threshold", "authors-lrt", "paper-lrt", "loss-lira-raw", "loss-lira", "l1-lrt", "joint-lrt")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    rng = np.random.default_rng(0)
    member = rng.random((2600, 6)) < 0.5
    loss, l1 = (np.exp(rng.normal(size=(2600, 1)) + rng.normal(size=member.shape) - member) for _ in range(2))
    for name, matrix in {"member": member, "loss": loss, "l1": l1}.items():
        np.save(folder / f"{name}.npy", matrix)
    given = ["--membership", f"{folder}/member.npy"]
    given += ["--signal", f"loss={folder}/loss.npy", "--signal", f"ixg_l1={folder}/l1.npy"]
    chosen = ["--attacks", *ATTACKS, "--likelihoods", "pooled", "hierarchical"]
    assert main(["audit", *given, *chosen, "--no-report", "--name", "d", "--out", f"{folder}/out"]) == 0
    where = next(folder.glob("out/**/metrics.parquet")).parent
    setting = AuditedSetting(
        "d", "a", "none", "inf", trained=False, folder=where.relative_to(folder / "out").as_posix()
    )
    return Results(
        folder / "out", ReportedAudit(audit="d", settings=(setting,), likelihood="pooled", as_published=True)
    )


def test_every_signal_has_both_read_outs_of_the_authors_score_and_ours(results):
    table = as_published(results, None)
    rows = {
        signal: table.filter(of=signal).select("attack", "likelihood", "read_out").rows()
        for signal in ("loss", "ixg_l1")
    }
    theirs = [("authors-lrt", "none", "authors'"), ("authors-lrt", "none", "exact")]
    assert rows["loss"][:2] == rows["ixg_l1"][:2] == theirs
    exact = {(attack, likelihood) for attack, likelihood, _ in rows["loss"][2:]}
    assert exact == {("threshold", "none"), ("loss-lira-raw", "pooled"), ("loss-lira", "pooled")}
    exact = {(attack, likelihood) for attack, likelihood, _ in rows["ixg_l1"][2:]}
    ours = {("l1-lrt", "pooled"), ("joint-lrt", "pooled")}
    assert exact == {("threshold", "none"), ("paper-lrt", "per-record")} | ours


def test_the_read_outs_are_of_the_same_scores(results):
    table = as_published(results, None).filter(of="ixg_l1", attack="authors-lrt")
    theirs, exact = table.iter_rows(named=True)
    scored = results.scored(results.spec.settings[0], "authors-lrt", "ixg_l1", "none")
    read = [authors_read_out(*pair) for pair in zip(scored.score.T, scored.member.T, strict=True)]
    assert theirs["tpr_at_fpr_0.01_mean"] == pytest.approx(np.mean([tprs[1] for tprs, _ in read]))
    assert theirs["auc_mean"] == pytest.approx(exact["auc_mean"], abs=1e-3) and exact["auc_mean"] > 0.6
    assert exact["tpr_at_fpr_0.01_mean"] != pytest.approx(theirs["tpr_at_fpr_0.01_mean"], abs=1e-3)


def test_it_is_printed_where_the_authors_score_was_asked_for(results):
    assert "as_published.csv" in table_files(results.spec)
    assert "as_published.csv" not in table_files(ReportedAudit(audit="d", settings=results.spec.settings))
    theirs = as_published(results, None).filter(attack="authors-lrt")
    assert "not resolvable" not in to_csv(theirs)
    assert "no TPR" in as_published.printed(results, None).caption
