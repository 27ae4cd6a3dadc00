"""A small study from its pool to its figures, by the commands that the workflow's rules call."""

import json
import math
import re
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from mia_audit.attacks.io.parquet import SignalsFile
from mia_audit.cli import main
from mia_audit.config import expand, specs
from mia_audit.config.load import check_audit
from mia_audit.config.specs import ReportSpec
from mia_audit.errors import UserError
from mia_audit.report.figures.catalogue import figure_files
from mia_audit.report.opened import find
from mia_audit.report.page import write_report
from mia_audit.report.results import Results
from mia_audit.report.tables.catalogue import table_files
from mia_audit.storage import read_table, table_metadata, write_table

AUDIT = {
    "audit": "study",
    "datasets": {"digits": {"records": 90}},
    "membership": {"models": 5},
    "report": {"figures": {"formats": ["svg"]}},
    "private_explanations": {
        "digits": {
            "black_boxes": ["forest"],
            "queries": 12,
            "epsilons": [1, 10],
            "steps": 10,
            "pictures": 2,
            "attacked": ["inf", 1],
            "scale": 500,
            "repetitions": 2,
            "parts": 2,
            "traced": 2,
            "nearest": 5,
        }
    },
}


DIGEST = "private-explanations-72b1e8c12d65dba1.json"
"""The specification of this study before there were repetitions."""

ATTACKS = ("threshold", "lrt", "var-lrt", "l1-lrt", "l2-lrt", "linf-lrt")


@pytest.fixture(scope="module")
def audit():
    return check_audit(AUDIT, "study")


@pytest.fixture(scope="module")
def finished(audit, tmp_path_factory) -> Path:
    results = tmp_path_factory.mktemp("study")
    pool = results / "pools" / "digits"

    def spec(stage: specs.Spec) -> list[str]:
        return ["--spec", str(stage.write(results / "specs"))]

    steps = [
        ["pool", *spec(specs.PoolSpec.from_audit(audit, "digits")), "--out", str(pool)],
        [
            "membership",
            "--records",
            str(pool / "records.parquet"),
            *spec(specs.MembershipSpec.from_audit(audit, "digits")),
        ],
    ]
    steps[-1] += ["--out", str(pool / "membership.parquet")]
    for name in expand.black_boxes_of(audit, "digits"):
        folder = results / "digits" / "private" / name
        values = str(folder / "values.parquet")
        given = ["--pool", str(pool), "--values", values]
        box = spec(specs.BlackBoxSpec.from_audit(audit, "digits", name))
        study = spec(specs.PrivateExplanationsSpec.from_audit(audit, "digits"))
        steps.append(["black-box", "--pool", str(pool), *box, "--out", values])
        steps.append(["explain-privately", *given, *study, "--out", str(folder / "answers.parquet")])
    for setting in expand.settings(audit):
        values = results / "digits" / "private" / setting.architecture / "values.parquet"
        signals = specs.ExplanationSignalsSpec.from_audit(audit, "digits", setting.architecture, setting.epsilon)
        out = results / setting.path
        steps.append(["explanation-signals", "--pool", str(pool), "--values", str(values), *spec(signals)])
        steps[-1] += ["--out", str(out / "signals.parquet")]
        section = audit.attacks.model_copy(update={"methods": tuple(ATTACKS)})
        attacks = specs.AttackSpec(seed=audit.seed, dataset=setting.dataset, attacks=section)
        steps.append(["attack", "--signals", str(out / "signals.parquet"), *spec(attacks)])
        steps[-1] += ["--out", str(out / "scores.parquet")]
        steps.append(
            ["evaluate", "--scores", str(out / "scores.parquet"), *spec(specs.EvaluationSpec.from_audit(audit))]
        )
        steps[-1] += ["--out", str(out / "metrics.parquet")]
    steps.append(["report", "--results", str(results), *spec(ReportSpec.from_audit(audit))])
    for step in steps:
        assert main(step) == 0, step
    return results


@pytest.mark.slow
def test_every_declared_file_is_written(audit, finished):
    written = {path.name for path in (finished / "figures").iterdir()}
    spec = ReportSpec.from_audit(audit)
    assert written == set(figure_files(spec))
    assert {path.name for path in (finished / "tables").iterdir()} == set(table_files(spec))


def test_the_tables_say_what_was_spent_and_what_published_choices_cost(finished):
    table = pl.read_csv(finished / "tables" / "private_explanations.csv")
    assert set(table["black_box"]) == {"forest"}
    scratch = table.filter(pl.col("protocol") == "non-adaptive", pl.col("experiment") == "protocols")
    assert (scratch["share_scratch"] == 1).all()
    published = pl.read_csv(finished / "tables" / "private_published.csv").rows_by_key(
        "choice", named=True, unique=True
    )
    assert published[None if None in published else ""]["epsilon_zero_out"] == pytest.approx(1.0, rel=1e-4)
    assert published["sigma"]["epsilon_zero_out"] < 0.1
    assert published["weight"]["epsilon_zero_out"] > 1
    assert published["uncentred"]["epsilon_zero_out"] == pytest.approx(1.0, rel=1e-4)
    assert math.isinf(float(published["beta"]["epsilon_zero_out"]))


def test_parts_and_misclassification_have_tables_with_intervals(finished):
    parts = pl.read_csv(finished / "tables" / "private_parts.csv")
    assert parts["protocol"].to_list() == ["non-adaptive", "adaptive", "enhanced"] and (parts["parts"] == 2).all()
    (row,) = parts.filter(protocol="non-adaptive").iter_rows(named=True)
    assert row["epsilon_spent_in_parts"] < row["epsilon_spent"]  # each part answers half of the queries
    assert row["loss_low"] < row["loss"] < row["loss_high"]
    near = pl.read_csv(finished / "tables" / "private_misclassified.csv").row(0, named=True)
    assert near["nearest"] == 5 and 0 <= near["misclassified"] < 0.2  # a forest on its own training records


def test_queries_from_scratch_at_equal_loss(audit, finished):
    """At the losses that were measured, the ε is the one that was spent there."""
    results = Results(finished, ReportSpec.from_audit(audit))
    ((one, _),) = [one.repetitions for one in results.studied]
    rows = one.experiment("epsilon").filter(pl.col("as_published") == "", pl.col("epsilon") == 10)
    scratch = one.protocol("non-adaptive")
    for mine in (rows, scratch):
        assert one.scratch_at_equal_loss(mine) == pytest.approx(one.epsilon_of(mine), rel=1e-6)
    middle = pl.DataFrame({"excess_loss": (rows["excess_loss"] * scratch["excess_loss"].mean()).sqrt()})
    assert one.epsilon_of(scratch) < one.scratch_at_equal_loss(middle) < one.epsilon_of(rows)
    assert one.scratch_at_equal_loss(pl.DataFrame({"excess_loss": [10.0]})) is None


def test_the_page_says_what_explanations_miss_and_cost(finished):
    page = (finished / "report.html").read_text().replace("\u00a0", " ")
    for told in (
        "Explanations of forest at ε = 1 each (δ = 10⁻⁶) miss the best fit by",
        "one record&#39;s term taken out of the explanation set, the number of records being public",
        "answered from past explanations alone cost nothing",
        "the published β, without noise",
        "means over 2 repetitions with other queries and other noise",
        "disjoint parts side by side spend ε =",
        "ε spent by protocols on the same queries",
        "distinguishes records of the explanation set from others",
    ):
        assert told in page, told
    drawn = re.findall(r'<figure class="chart ([\w-]+)">', page)
    assert {f"private_{name}" for name in ("loss", "spending", "losses", "steps", "queries")} <= set(drawn)
    assert page.count('alt="Images and their private') == 1


def test_a_study_without_attacks_has_a_page_of_its_own(audit, finished, tmp_path):
    results = Results(finished, ReportSpec.from_audit(audit).model_copy(update={"settings": ()}))
    write_report(results, find(results), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text().replace("\u00a0", " ")
    assert 'class="conclusion">Explanations of forest' in page and "forest at ε = 1 each" in page
    assert "No membership was attacked here." in page
    assert 'id="settings"' not in page and 'id="attacks"' not in page and "AUC" not in page
    anchors = set(re.findall(r'<a href="#([a-z]+)"', page))
    assert anchors == {"answer", "words", "private", "limits", "provenance", "unexamined"}
    assert all(f'id="{anchor}"' in page for anchor in anchors)
    sources = json.loads((tmp_path / "provenance.json").read_text())
    assert "digits/private/forest/answers.parquet" in sources["inputs_sha256"] and sources["pools"]["digits"]


def test_explanation_sets_take_the_place_of_models(audit, finished):
    for setting in expand.settings(audit):
        file = SignalsFile(finished / setting.path / "signals.parquet")
        assert file.models == 5
        assert {signal.name for signal in file.signals} > {"fit_error", "local_linear_l1"}
    private = [setting for setting in ReportSpec.from_audit(audit).settings if setting.private]
    assert {(setting.dataset, setting.epsilon, setting.delta) for setting in private} == {
        ("digits-explained", "1", 1e-6)
    }


def test_values_of_another_pool_are_refused(audit, finished, tmp_path, capsys):
    values = finished / "digits" / "private" / "forest" / "values.parquet"
    dataset = audit.datasets["digits"].model_copy(update={"source": "digits", "records": 80})
    spec = specs.PoolSpec(seed=audit.seed, name="digits", dataset=dataset)
    assert main(["pool", "--spec", str(spec.write(tmp_path)), "--out", str(tmp_path / "pool")]) == 0
    study = [
        "--spec",
        str(specs.PrivateExplanationsSpec.from_audit(audit, "digits").write(tmp_path)),
        "--out",
        str(tmp_path / "answers.parquet"),
    ]
    assert main(["explain-privately", "--pool", str(tmp_path / "pool"), "--values", str(values), *study]) == 2
    assert "of 90 records, but the pool has 80" in capsys.readouterr().err
    assert not (tmp_path / "answers.parquet").exists()


def test_a_value_outside_the_range_is_named(audit, finished, tmp_path, capsys):
    table = read_table(finished / "digits" / "private" / "forest" / "values.parquet", "values")
    worse = table.set_column(1, "value_0", pa.array([2.0] * len(table)))
    write_table(tmp_path / "values.parquet", worse, "values", len(worse))
    study = [
        "--spec",
        str(specs.PrivateExplanationsSpec.from_audit(audit, "digits").write(tmp_path)),
        "--out",
        str(tmp_path / "answers.parquet"),
    ]
    pool = str(finished / "pools" / "digits")
    assert main(["explain-privately", "--pool", pool, "--values", str(tmp_path / "values.parquet"), *study]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "at record 0 is outside [−1, 1]; scale" in line
    assert not (tmp_path / "answers.parquet").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"black_boxes": ["forrest"]}, "unknown black box 'forrest': did you mean 'forest'"),
        ({"black_boxes": []}, "private_explanations.digits: nothing to explain"),
        ({"architectures": ["mlp"]}, "unknown architecture 'mlp'"),
        ({"epsilons": [-1]}, "an ε is a positive number, got -1"),
        ({"delta": 2}, "private_explanations.digits.delta"),
        ({"kernel": "gausian"}, "unknown kernel 'gausian': did you mean 'gaussian'"),
    ],
)
def test_a_mistake_in_the_section_is_named(changes, words):
    section = AUDIT["private_explanations"]["digits"] | changes
    with pytest.raises(UserError, match=words):
        check_audit(AUDIT | {"private_explanations": {"digits": section}}, "study.yaml")


def test_a_study_of_no_data_set_is_named():
    with pytest.raises(UserError, match="unknown data set 'digit': did you mean 'digits'"):
        check_audit(AUDIT | {"private_explanations": {"digit": {}}}, "study.yaml")


def test_pictures_and_attacks_recompute_nothing(audit):
    changed = check_audit(
        AUDIT | {"private_explanations": {"digits": AUDIT["private_explanations"]["digits"] | {"pictures": 5}}}, "study"
    )
    for stage, names in ((specs.PrivateExplanationsSpec, ("digits",)), (specs.BlackBoxSpec, ("digits", "forest"))):
        assert stage.from_audit(changed, *names) == stage.from_audit(audit, *names)


def test_a_study_without_repetitions_keeps_its_digest(audit):
    """Its answers are what they were, and need not be computed again."""
    new = ("repetitions", "parts", "traced", "nearest")
    section = {key: value for key, value in AUDIT["private_explanations"]["digits"].items() if key not in new}
    plain = check_audit(AUDIT | {"private_explanations": {"digits": section}}, "study")
    assert specs.PrivateExplanationsSpec.from_audit(plain, "digits").path(Path()).name == DIGEST
    assert specs.PrivateExplanationsSpec.from_audit(audit, "digits").study.repetitions == 2


def test_explanation_sets_of_persons_keep_persons_private(tmp_path):
    """The study counts persons, and the attacked sets say whose the records are."""
    rows = pl.DataFrame({"x": [0.1 * number for number in range(40)], "y": [number % 7 for number in range(40)]})
    people = pl.Series("who", [number // 2 for number in range(40)]), pl.Series("label", [0, 1] * 20)
    rows.with_columns(*people).write_csv(tmp_path / "visits.csv")
    visits = {"source": "table", "path": str(tmp_path / "visits.csv"), "person": "who"}
    study = {"black_boxes": ["forest"], "queries": 4, "epsilons": [1], "steps": 3, "attacked": [1]}
    config = AUDIT | {"datasets": {"visits": visits}, "private_explanations": {"visits": study}}
    audit = check_audit(config, "study")
    pool, values = tmp_path / "pool", str(tmp_path / "values.parquet")
    given = ["--pool", str(pool), "--values", values]

    def spec(stage):
        return ["--spec", str(stage.write(tmp_path))]

    records, answers, signals = pool / "records.parquet", tmp_path / "answers.parquet", tmp_path / "signals.parquet"
    for step in (
        ["pool", *spec(specs.PoolSpec.from_audit(audit, "visits")), "--out", str(pool)],
        ["membership", "--records", str(records), *spec(specs.MembershipSpec.from_audit(audit, "visits")), "--out",
         str(pool / "membership.parquet")],
        ["black-box", "--pool", str(pool), *spec(specs.BlackBoxSpec.from_audit(audit, "visits", "forest")), "--out", values],
        ["explain-privately", *given, *spec(specs.PrivateExplanationsSpec.from_audit(audit, "visits")), "--out", str(answers)],
        ["explanation-signals", *given, *spec(specs.ExplanationSignalsSpec.from_audit(audit, "visits", "forest", "1")),
         "--out", str(signals)],
    ):  # fmt: skip
        assert main(step) == 0, step
    told = table_metadata(answers, "private-answers")
    assert (told["records"], told["persons"], told["unit"]) == (40, 20, "person")
    persons = SignalsFile(signals).persons
    assert persons is not None and len(persons) == 20
