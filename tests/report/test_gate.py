"""A small audit held to policies: verdicts, exit codes, what is printed and written, and mistakes in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
import yaml

from mia_audit.cli import main
from mia_audit.errors import UserError
from mia_audit.pools.groups import Grouping, write_groups
from mia_audit.report.formatting import significant
from mia_audit.report.gate import Judged, Verdict, judge, overall
from mia_audit.report.opened import find, finished
from mia_audit.report.page import render
from mia_audit.report.provenance import provenance
from mia_audit.report.results import Results
from mia_audit.report.spec import Policy
from mia_audit.report.statements import bound_sentences
from mia_audit.storage import read_frame, sha256, table_metadata, write_json, write_table
from mia_audit.storage.digests import write_manifest

LEAKS, HOLDS = "toy/net/none-epsinf", "toy/net/dp-sgd-eps1"
CANARY_COLUMNS = "method,epsilon,delta,confidence,canaries,epsilon_spent"


@pytest.fixture
def copy(ended: Path, tmp_path: Path) -> Path:
    """A copy of the finished results, to be changed."""
    return Path(shutil.copytree(ended, tmp_path / "copy"))


def verdicts(root: Path, **policy: Any) -> dict[tuple[str, str], Judged]:
    return {(one.criterion, one.setting): one for one in judge(finished(root), Policy(**policy))}


def test_finished_results_open_as_the_report_saw_them(ended: Path, small: Any) -> None:
    opened, known = finished(ended), small.results()
    for one, other in zip(opened.spec.settings, known.spec.settings, strict=True):
        names = ("path", "private", "delta", "accountant", "clipping", "trained", "epsilon", "design")
        assert [getattr(one, name) for name in names] == [getattr(other, name) for name in names]
    assert [finding.bound for finding in find(opened).settings] == [finding.bound for finding in find(known).settings]


def test_every_criterion_has_its_verdict(ended: Path) -> None:
    found = verdicts(
        ended,
        auc=0.6,
        tpr_at_fpr={0.001: 0.1, 0.1: 0.25, 0.05: 0.5},
        groups={"auc": 0.7, "columns": ["label"]},
        persons={"auc": 0.6},
        most_exposed={"fpr": 0.01, "at_most": 0.5},
        epsilon_below_claim=True,
        null_control=True,
        models=12,
        accuracy=0.8,
    )
    told = {key: one.verdict for key, one in found.items()}
    assert told["AUC", LEAKS] == told["AUC per label", LEAKS] == Verdict.FAIL
    assert told["AUC", HOLDS] == told["AUC per label", HOLDS] == Verdict.PASS
    assert told["TPR at an FPR of 0.1", LEAKS] == Verdict.FAIL
    assert told["TPR at an FPR of 0.1", HOLDS] == Verdict.PASS
    assert told["TPR at an FPR of 0.001", HOLDS] == Verdict.CANNOT_TELL
    assert "evaluation.fprs" in found["TPR at an FPR of 0.05", HOLDS].note
    assert told["leak per person", HOLDS] == Verdict.CANNOT_TELL
    assert told["most exposed at an FPR of 0.01", LEAKS] == Verdict.FAIL
    assert (
        told["lower bound on ε", HOLDS] == told["null control", LEAKS] == told["models attacked", LEAKS] == Verdict.PASS
    )
    assert told["test accuracy", LEAKS] == Verdict.PASS
    assert told["test accuracy", HOLDS] == Verdict.FAIL


def test_a_claim_below_the_lower_bound_fails(copy: Path) -> None:
    sources = json.loads((copy / "provenance.json").read_text())
    (leaking,) = [one for one in sources["settings"] if one["path"] == LEAKS]
    leaking |= {"private": True, "epsilon": "0.01", "delta": 1e-5}
    write_json(copy / "provenance.json", sources)
    assert verdicts(copy, epsilon_below_claim=True)["lower bound on ε", LEAKS].verdict == Verdict.FAIL


@pytest.mark.parametrize(
    ("records", "claimed", "verdict", "limit"),
    [
        ([1, 1], False, Verdict.FAIL, "at most 0.990"),
        ([1, 2], False, Verdict.PASS, "at most 3.71"),
        ([1, 2], True, Verdict.PASS, "at most 1.98"),
        ([1, 5], True, Verdict.PASS, "at most 4.95"),
    ],
)
def test_a_bound_about_persons_is_held_to_the_epsilon_of_the_person_with_most_records(
    written: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    records: list[int],
    claimed: bool,
    verdict: Verdict,
    limit: str,
) -> None:
    small = written({("dp-sgd", "1"): 3.0})
    path = small.root / HOLDS / "metrics.parquet"
    table = read_frame(path, "metrics").with_columns(unit=pl.lit("person"), aggregate=pl.lit("sum"))
    write_table(path, table.to_arrow(), "metrics", len(table), table_metadata(path, "metrics"))
    monkeypatch.setattr(Results, "records_of_persons", lambda *_: np.array(records))
    settings = [one | ({"accountant": "claimed"} if claimed else {}) for one in small.spec["settings"]]
    results = small.results(settings=settings)
    findings = find(results)
    (found,) = findings.settings
    assert found.bound.delta == found.promised.delta and (found.bound.delta > 1e-5) == claimed
    (judged,) = judge(results, Policy(epsilon_below_claim=True), findings)
    assert (judged.verdict, judged.limit) == (verdict, limit)
    assert len(bound_sentences(findings)) == (1 if verdict == Verdict.PASS else 2)
    whose = f"for a person with {max(records)} records" if max(records) > 1 else "ε = 1"
    broken = replace(found, bound=replace(found.bound, epsilon=found.promised.epsilon + 0.01))
    assert whose in bound_sentences(replace(findings, settings=[broken]))[1]


@pytest.mark.parametrize(
    ("shown", "spent", "verdict"), [(0.9, 1.0, Verdict.PASS), (1.1, 1.0, Verdict.FAIL), (1.1, 1.2, Verdict.PASS)]
)
def test_a_bound_from_canaries_is_held_to_the_epsilon_of_their_training(
    copy: Path, shown: float, spent: float, verdict: Verdict
) -> None:
    rows = [f"one-run-f-dp,{shown},0.00001,0.95,400,{spent}", f"one-run-gaussian,9.0,0.00001,0.95,400,{spent}"]
    sources = json.loads((copy / "provenance.json").read_text())
    for setting in (LEAKS, HOLDS):
        path = copy / setting / "canaries.csv"
        path.write_text("\n".join([CANARY_COLUMNS, *rows, ""]))
        sources["inputs_sha256"][f"{setting}/canaries.csv"] = sha256(path)
    write_json(copy / "provenance.json", sources)
    found = verdicts(copy, epsilon_below_claim=True)
    judged = found["lower bound on ε from canaries", HOLDS]
    assert (judged.verdict, judged.limit) == (
        verdict,
        f"at most {significant(spent)}",
    ) and "400 canaries" in judged.note
    assert ("lower bound on ε from canaries", LEAKS) not in found  # nothing is claimed of it
    assert ("lower bound on ε from canaries", HOLDS) not in verdicts(copy, auc=0.9)
    path.write_text("method\n")
    with pytest.raises(UserError, match=r"canaries\.csv: damaged"):
        verdicts(copy, epsilon_below_claim=True)
    path.unlink()
    with pytest.raises(UserError, match=r"canaries\.csv: missing"):
        verdicts(copy, epsilon_below_claim=True)


@pytest.mark.parametrize("policy", [{"epsilon_below_claim": True}, {"canaries": 400}])
def test_canaries_of_an_earlier_training_are_refused(copy: Path, policy: dict[str, Any]) -> None:
    (copy / HOLDS / "canaries.csv").write_text(f"{CANARY_COLUMNS}\none-run-f-dp,0.1,0.00001,0.95,400,1.0\n")
    with pytest.raises(UserError, match=r"canaries\.csv: of an earlier audit"):
        verdicts(copy, **policy)


def test_the_provenance_names_the_bounds_from_canaries(small: Any, tmp_path: Path) -> None:
    (path := tmp_path / HOLDS / "canaries.csv").parent.mkdir(parents=True)
    path.write_text("method\n")
    known = Results(tmp_path, small.results().spec.model_copy(update={"canaries": (HOLDS,)}))
    assert list(known.inputs()) == [path]


def test_too_few_models_fail_and_an_unknown_group_cannot_be_told(ended: Path) -> None:
    found = verdicts(ended, settings=[HOLDS], models=13, groups={"auc": 0.9, "columns": ["site"]})
    assert found["models attacked", HOLDS].verdict == Verdict.FAIL
    assert "by 'site'; it has record, label" in found["AUC per site", HOLDS].note
    assert {setting for _, setting in found} == {HOLDS}


def test_what_a_policy_requires_must_have_been_measured(ended: Path) -> None:
    met = {"attacks": ["loss-lira", "threshold"], "signals": ["loss"], "intervals": True, "unit": "record"}
    assert {one.verdict for one in verdicts(ended, settings=[HOLDS], **met).values()} == {Verdict.PASS}
    lacking = {"attacks": ["loss-lira", "rmia"], "signals": ["logit"], "unit": "person", "canaries": 100}
    found = verdicts(ended, settings=[HOLDS], auc=0.6, **lacking)
    assert found["AUC", HOLDS].verdict == Verdict.PASS
    undecided = {name: one for (name, _), one in found.items() if name != "AUC"}
    assert {one.verdict for one in undecided.values()} == {Verdict.CANNOT_TELL} and len(undecided) == 4
    assert undecided["attacks that were run"].note.endswith(": rmia")
    assert "canaries.settings: [toy/net/dp-sgd-eps1]" in undecided["canaries"].note


def test_an_uninformative_signal_alone_passes_no_policy(written: Callable[..., Any]) -> None:
    small = written({("none", "inf"): 1.0})
    results = small.results()
    write_json(small.root / "provenance.json", provenance(results, find(results).settings))
    metrics = small.root / LEAKS / "metrics.parquet"
    table = read_frame(metrics, "metrics").filter(pl.col("signal") == "ixg_variance")
    write_table(metrics, table.to_arrow(), "metrics", len(table), table_metadata(metrics, "metrics"))
    unnamed = verdicts(small.root, auc=0.95)
    assert unnamed["AUC", LEAKS].verdict == Verdict.PASS and overall(unnamed.values()) == Verdict.CANNOT_TELL
    found = verdicts(small.root, auc=0.95, signals=["loss"])["signals that were run", LEAKS]
    assert found.verdict == Verdict.CANNOT_TELL and found.note.endswith(": loss")


@pytest.mark.parametrize(
    "limits",
    [
        {"auc": 1},
        {"persons": {"auc": 1}},
        {"groups": {"columns": ["label"], "auc": 1}},
        {"most_exposed": {"at_most": 0.9}},
    ],
)
def test_limits_on_attacks_are_undecided_unless_the_policy_says_what_these_must_have_read(
    ended: Path, limits: dict[str, Any]
) -> None:
    name = ("attacks or signals that were run", HOLDS)
    assert verdicts(ended, **limits)[name].verdict == Verdict.CANNOT_TELL
    assert name not in verdicts(ended, **limits, attacks=["loss-lira"])
    assert name not in verdicts(ended, models=12)


def without_aucs(root: Path, models: int, **of: str) -> None:
    """Remove the AUCs of an attack on the first models."""
    path = root / HOLDS / "metrics.parquet"
    there = pl.all_horizontal([pl.col(name) == value for name, value in of.items()])
    gone = there & (pl.col("target") < models) & ~pl.col("null_control")
    table = read_frame(path, "metrics").with_columns(auc=pl.when(gone).then(None).otherwise(pl.col("auc")))
    write_table(path, table.to_arrow(), "metrics", len(table), table_metadata(path, "metrics"))
    sources = json.loads((root / "provenance.json").read_text())
    sources["inputs_sha256"][f"{HOLDS}/metrics.parquet"] = sha256(path)
    write_json(root / "provenance.json", sources)


@pytest.mark.parametrize("models", [1, 12])
def test_an_attack_without_an_auc_on_some_models_lets_no_policy_pass(copy: Path, models: int) -> None:
    met = {"auc": 0.6, "tpr_at_fpr": {0.1: 0.25}, "attacks": ["loss-lira"], "signals": ["loss"], "intervals": True}
    assert {one.verdict for one in verdicts(copy, settings=[HOLDS], **met).values()} == {Verdict.PASS}
    without_aucs(copy, models, attack="loss-lira", likelihood="pooled")  # its other likelihood has all
    found = {name: one for (name, _), one in verdicts(copy, settings=[HOLDS], **met).items()}
    passed = {name for name, one in found.items() if one.verdict == Verdict.PASS}
    assert passed == {"signals that were run"}
    assert all("loss-lira" in one.note for name, one in found.items() if name not in passed)


def test_groups_of_the_data_set_are_judged(copy: Path) -> None:
    site = Grouping("site", ("north", "south"), np.arange(300) % 2)
    write_groups(copy / "pools" / "toy" / "groups.parquet", [site], 300)
    found = verdicts(copy, settings=[LEAKS], groups={"auc": 0.6, "columns": ["site"]})["AUC per site", LEAKS]
    assert found.verdict == Verdict.FAIL
    assert found.note.endswith(("site north", "site south"))


def gate(folder: Path, root: Path, policy: Any, *words: str) -> int:
    path = folder / "policy.yaml"
    path.write_text(policy if isinstance(policy, str) else yaml.safe_dump(policy))
    return main(["gate", str(root), "--policy", str(path), *words])


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ({"settings": [HOLDS], "auc": 0.6, "signals": ["loss"], "models": 12}, 0),
        ({"auc": 0.6, "tpr_at_fpr": {0.001: 0.1}}, 3),  # one failure fails all
        ({"settings": [HOLDS], "auc": 0.6, "tpr_at_fpr": {0.001: 0.1}}, 4),
        ({"settings": [HOLDS], "digests": True}, 4),  # it has no SHA256SUMS
    ],
)
def test_the_exit_code_says_it_all(
    ended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: dict[str, Any], code: int
) -> None:
    files = {name: tmp_path / f"verdicts.{name}" for name in ("json", "junit")}
    assert (
        gate(tmp_path, ended, policy, *(word for name, path in files.items() for word in (f"--{name}", str(path))))
        == code
    )
    printed = capsys.readouterr().out
    verdict = {0: "pass", 3: "fail", 4: "cannot tell"}[code]
    said = json.loads(files["json"].read_text())
    assert said["verdict"] == verdict
    assert said["conclusion"] in printed
    unmet = [one for one in said["criteria"] if one["verdict"] == verdict != "pass"]
    assert all(f"is {one['value']}, expected {one['limit']}" in said["conclusion"] for one in unmet)
    assert len(printed.splitlines()) == len(said["criteria"]) + 2
    suite = ElementTree.parse(files["junit"]).getroot()
    assert len(suite) == int(suite.attrib["tests"]) == len(said["criteria"])
    assert len(suite.findall("testcase/failure")) == int(suite.attrib["failures"])
    assert len(suite.findall("testcase/error")) == int(suite.attrib["errors"])
    assert (int(suite.attrib["failures"]) > 0, int(suite.attrib["errors"]) > 0) == (
        code == 3,
        code == 4 or "tpr_at_fpr" in policy,
    )
    for text in (printed, files["json"].read_text(), files["junit"].read_text()):
        assert "anonym" not in text.lower()
        assert "safe" not in text.lower()


MISTAKES = {
    "auc: 0.6\nacu: 0.7": "unknown key 'acu': did you mean 'auc'?",
    "auc: 60": "auc: input should be less than or equal to 1, got 60",
    "auc: 0.4": "auc: input should be greater than or equal to 0.5, got 0.4",
    "tpr_at_fpr: {0.1: 0.05}": "guessing has a TPR of 0.1 there",
    "groups: {columns: [label]}": "groups: no limit; give auc or tpr_at_fpr",
    "settings: [toy/net/none-epsinf]": "no criterion; give at least one",
    "settings: [toy/net/none-eps]\nauc: 0.6": "did you mean 'toy/net/none-epsinf'?",
    "most_exposed: {fpr: 0.01}": "missing key 'most_exposed.at_most'",
    "[auc]": "expected keys and values",
    "auc: {": "not YAML",
    'auc: "0.6"': "auc: input should be a valid number, got '0.6'",
    'tpr_at_fpr: {0.01: "0.05"}': "input should be a valid number, got '0.05'",
    'models: "16"': "models: input should be a valid integer, got '16'",
    'digests: "true"': "digests: input should be a valid boolean, got 'true'",
}


@pytest.mark.parametrize("policy", MISTAKES)
def test_a_mistake_in_a_policy_is_one_line(
    ended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str
) -> None:
    assert gate(tmp_path, ended, policy) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert "policy" in printed.err
    assert MISTAKES[policy] in printed.err


def test_a_missing_policy_and_results_are_one_line(
    ended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gate", str(ended), "--policy", str(tmp_path / "none.yaml")]) == 2
    assert "no such file; a policy is one YAML file" in capsys.readouterr().err
    assert gate(tmp_path, tmp_path, "auc: 0.6") == 2
    assert "results of a finished audit" in capsys.readouterr().err


def test_a_gate_overwrites_neither_its_policy_nor_results_nor_a_link(
    ended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, link = tmp_path / "policy.yaml", tmp_path / "link.json"
    policy.write_text("auc: 0.6")
    link.symlink_to(tmp_path / "nowhere.json")
    result = ended / LEAKS / "metrics.parquet"
    before = result.read_bytes()
    for option in ("--json", "--junit"):
        for out, words in ((policy, "a file that is read"), (link, "a link"), (result, "inside the results")):
            assert main(["gate", str(ended), "--policy", str(policy), option, str(out)]) == 2
            assert words in capsys.readouterr().err
    assert (policy.read_text(), result.read_bytes()) == ("auc: 0.6", before)
    assert link.is_symlink() and not link.exists()


def test_digests_are_verified(written: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = written({("none", "inf"): 1.0})
    results = small.results()
    write_json(small.root / "provenance.json", provenance(results, find(results).settings) | {"page_sha256": {}})
    write_manifest(small.root)
    assert gate(tmp_path, small.root, "digests: true") == 0
    (small.root / LEAKS / "more.txt").write_text("added")
    assert gate(tmp_path, small.root, "digests: true") == 3
    assert "more.txt: not in SHA256SUMS" in capsys.readouterr().out


@pytest.mark.usefixtures("without_charts")
def test_the_report_has_the_verdicts(small: Any) -> None:
    results = small.results(policy={"auc": 0.6, "signals": ["loss"], "digests": True})
    findings = find(results)
    page = render(results, findings, provenance(results, findings.settings))
    section = page.partition('<section id="policy"')[2].partition("</section>")[0]
    assert "not met: 1 criterion failed" in section
    assert "mia-audit gate checks them" in section
    assert section.count("<tr>") == 1 + 2 * len(results.spec.settings)
    assert '<a href="#policy">' in page


def test_every_key_of_a_policy_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "release.md").read_text(encoding="utf-8")
    assert [name for name in Policy.model_fields if f"| `{name}` |" not in page] == []


def test_the_policy_of_the_digits_is_one() -> None:
    from mia_audit.config.load import load_policy

    assert load_policy(Path(__file__).parents[2] / "docs" / "examples" / "policy.yaml").models == 16


def test_the_report_depends_on_what_its_policy_says(tmp_path: Path) -> None:
    from mia_audit.config.load import check_audit
    from mia_audit.config.specs import ReportSpec

    path = tmp_path / "policy.yaml"
    values = {
        "audit": "a",
        "datasets": {"digits": {}},
        "architectures": {"cnn": {}},
        "mechanisms": {"none": {}},
        "report": {"policy": str(path)},
    }
    audit, named = check_audit(values, "a.yaml"), []
    for limit in (0.6, 0.7):
        path.write_text(f"auc: {limit}")
        spec = ReportSpec.from_audit(audit)
        named.append(spec.path(tmp_path))
        assert spec.policy is not None and spec.policy.auc == limit
    assert len(set(named)) == 2


@pytest.mark.parametrize("words", [(), ("--json",), ("--junit",)])
def test_results_of_which_a_file_changed_since_the_report_are_refused(
    written: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    small, out = written({("none", "inf"): 1.0, ("dp-sgd", "1"): 0.0}), tmp_path / "verdicts"
    for setting, bound in ((LEAKS, 0.9), (HOLDS, 0.1)):
        row = f"one-run-f-dp,{bound},0.00001,0.95,400,1.0"
        (small.root / setting / "canaries.csv").write_text(f"{CANARY_COLUMNS}\n{row}\n")
    results = small.results(canaries=(LEAKS, HOLDS))
    write_json(small.root / "provenance.json", provenance(results, find(results).settings) | {"page_sha256": {}})
    options = [part for word in words for part in (word, str(out))]
    assert gate(tmp_path, small.root, "models: 12", *options) == 0
    read = [path for path in results.inputs() if path.parent == small.root / LEAKS]
    assert {path.stem for path in read} == {"metrics", "scores", "training", "canaries"}
    for path in read:  # each is replaced by the same file of another training, which is whole
        out.unlink(missing_ok=True)
        before = path.read_bytes()
        path.write_bytes((small.root / HOLDS / path.name).read_bytes())
        capsys.readouterr()
        assert gate(tmp_path, small.root, "models: 12", *options) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and f"{path}: does not match" in printed.err and not out.exists()
        path.write_bytes(before)
    added = small.root / "pools" / "toy" / "groups.parquet"
    write_groups(added, [Grouping("site", ("all",), np.zeros(300, dtype=int))], 300)
    assert gate(tmp_path, small.root, "models: 12", *options) == 2
    assert "groups.parquet: not in provenance.json" in capsys.readouterr().err and not out.exists()


def test_verdicts_state_the_provenance_that_they_are_about(written: Callable[..., Any], tmp_path: Path) -> None:
    small, out = written({("none", "inf"): 1.0}), tmp_path / "gate.json"
    results = small.results()
    write_json(small.root / "provenance.json", provenance(results, find(results).settings) | {"page_sha256": {}})
    assert gate(tmp_path, small.root, "{auc: 1, signals: [loss]}", "--json", str(out)) == 0
    assert json.loads(out.read_text())["provenance_sha256"] == sha256(small.root / "provenance.json")
