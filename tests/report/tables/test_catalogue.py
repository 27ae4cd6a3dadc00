import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from mia_audit.report.formatting import fixed, interval
from mia_audit.report.opened import audited, find
from mia_audit.report.tables.attacks import persons_layout, settings_layout
from mia_audit.report.tables.catalogue import tables as kinds
from mia_audit.report.tables.catalogue import tables_of, to_csv, write
from mia_audit.sanitise import tex
from mia_audit.storage import read_table, table_metadata, write_table

from ..built import build


@pytest.fixture(scope="module")
def tables(small, findings):
    return build(small.results(), findings)


@pytest.fixture(scope="module")
def folder(small, findings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    write(small.results(), findings, folder)
    return folder


def test_the_settings_table_says_what_was_spent_reached_and_leaked(tables, small, findings):
    row = tables["settings"].row(1, named=True)
    assert (row["mechanism"], row["epsilon"], row["delta"], row["accountant"]) == ("dp-sgd", "8", 1e-5, "prv")
    assert (row["sampling"], row["models"]) == ("poisson", 12)
    assert row["epsilon_spent"] == pytest.approx(7.99), "the shadow that spent most"
    shadows = small.results().training[1]
    assert row["test_accuracy_mean"] == pytest.approx(shadows["test_accuracy"].mean())
    assert row["test_accuracy_sd"] == pytest.approx(shadows["test_accuracy"].std())
    strongest = findings.settings[1].strongest["explanations"]
    assert (row["explanation_attack"], row["explanation_signal"], row["explanation_likelihood"]) == strongest.key
    assert row["explanation_auc_mean"] == pytest.approx(strongest.auc_estimate.mean)
    assert row["explanation_auc_low"] < row["explanation_auc_mean"] < row["explanation_auc_high"]
    assert row["fpr"] == 0.01 and row["output_tpr_at_fpr_mean"] == pytest.approx(
        findings.settings[1].strongest["outputs"].tpr_estimate.mean
    )
    reference = tables["settings"].row(0, named=True)
    assert reference["epsilon_spent"] is None and reference["delta"] is None
    shown = (
        reference["epsilon_lower_bound"],
        reference["epsilon_lower_bound_delta"],
        reference["epsilon_lower_bound_method"],
    )
    assert shown == (findings.settings[0].bound.epsilon, 1e-5, "clopper-pearson")


def test_the_summary_has_every_attack_and_no_null_control(tables, small):
    summary = tables["summary"]
    assert len(summary) == 3 * 5 and "null_control" not in summary.columns
    metrics = small.results().metrics[0].filter(pl.col("attack") == "l1-lrt", ~pl.col("null_control"))
    row = summary.row(4, named=True)
    assert row["attack"] == "l1-lrt" and row["auc_mean"] == pytest.approx(metrics["auc"].mean())
    assert row["tpr_at_fpr_0.001_mean"] is None and row["tpr_at_fpr_0.01_mean"] == pytest.approx(
        metrics["tpr_at_fpr_0.01"].mean()
    )


def test_differences_are_over_the_same_targets(tables, small):
    metrics = [
        table.filter(~pl.col("null_control"), pl.col("likelihood") == "pooled") for table in small.results().metrics
    ]
    none, weak = (table.filter(pl.col("attack") == "loss-lira")["auc"].to_numpy() for table in metrics[:2])
    row = tables["differences"].filter(
        pl.col("epsilon") == "8",
        pl.col("metric") == "auc",
        pl.col("minuend") == "outputs",
        pl.col("subtrahend") == "outputs of none-epsinf",
    )
    printed = {row["epsilon"]: row["output_auc_mean"] for row in tables["settings"].iter_rows(named=True)}
    assert row["mean"].item() == pytest.approx(printed["8"] - printed["inf"])  # both are corrected for their choice
    assert row["mean"].item() == pytest.approx(np.mean(weak - none), abs=1e-3)
    assert row["sd"].item() == pytest.approx(np.std(weak - none, ddof=1))
    accuracy = tables["differences"].filter(pl.col("metric") == "test_accuracy")
    assert accuracy["epsilon"].to_list() == ["8", "1"] and (accuracy["high"] < 0).all()


def compared(small, findings, *names):
    results = small.results()
    results = replace(results, spec=results.spec.model_copy(update={"compare": names}))
    return tables_of(results.spec)["comparisons"](results, findings)


def test_comparisons_are_the_differences_with_intervals_that_hold_together(tables, small, findings):
    keys = ["epsilon", "metric", "minuend", "subtrahend"]
    differences = tables["differences"].filter(pl.col("subtrahend").str.ends_with(" of none-epsinf"))
    frame = compared(small, findings, "none", "dp-sgd").with_columns(pl.col("minuend").str.replace(" of .*", ""))
    both = frame.join(differences, on=keys, suffix="_alone")
    assert len(both) == len(frame) == len(differences) == 2 * 5
    assert both["mean"].equals(both["mean_alone"])
    assert (both["low"] < both["low_alone"]).all() and (both["high"] > both["high_alone"]).all()


def test_data_sets_are_compared_without_pairing(small, findings):
    """Their targets are unrelated, so the interval is wider than that of a difference over the same targets."""
    none, weak = findings.settings[:2]
    elsewhere = replace(none.setting, dataset="elsewhere")
    unrelated = replace(findings, settings=[none, replace(weak, setting=elsewhere)])
    frame = compared(small, unrelated, none.setting.dataset, "elsewhere")
    assert set(frame["metric"]) == {"auc", "tpr_at_fpr_0.01", "test_accuracy"} and set(frame["dataset"]) == {
        "elsewhere"
    }
    row = frame.filter(metric="auc", minuend="outputs of elsewhere")
    printed = [one.strongest["outputs"].auc_estimate.mean for one in (weak, none)]
    assert row["mean"].item() == pytest.approx(printed[0] - printed[1])
    first, second = (one.strongest["outputs"].over("auc") for one in (weak, none))
    assert row["subtrahend"].item() == f"outputs of {none.setting.dataset}"
    widest = sum(side.interval(0.95, len(frame))[1] - side.mean for side in (first, second))
    assert max(first.error, second.error) < (row["high"] - row["low"]).item() / 2 < widest
    accuracy = frame.filter(metric="test_accuracy")
    assert accuracy["mean"].item() == pytest.approx(weak.test_accuracy.mean - none.test_accuracy.mean)


def test_explainers_are_compared_by_the_strongest_attacks_on_them(small, findings):
    frame = compared(small, findings, "ixg", "ig").filter(epsilon="inf", metric="auc")
    metrics = small.results().metrics[0].filter(~pl.col("null_control"))
    first, second = (metrics.filter(signal=name)["auc"].to_numpy() for name in ("ig_probability_l1", "ixg_variance"))
    assert frame["minuend"].item() == "ig" and frame["mean"].item() == pytest.approx(np.mean(first - second))


def test_the_null_control_says_whether_its_interval_holds_half(tables):
    null = tables["null_control"]
    assert len(null) == 15
    assert null["holds_half"].to_list() == [
        low <= 0.5 <= high for low, high in zip(null["auc_low"], null["auc_high"], strict=True)
    ]


def test_csv_names_what_is_not_resolvable_and_parquet_has_null(folder, tables):
    lines = (folder / "summary.csv").read_text().splitlines()
    header, first = lines[0].split(","), lines[1].split(",")
    assert first[header.index("tpr_at_fpr_0.001_mean")] == "not resolvable"
    assert re.fullmatch(r"0\.\d{1,8}", first[header.index("auc_mean")])
    stored = pl.from_arrow(read_table(folder / "summary.parquet", "summary"))
    assert stored.equals(tables["summary"])
    assert table_metadata(folder / "summary.parquet", "summary")["config_hash"] == "c0ffee" * 10


def test_a_channel_that_was_not_attacked_is_unknown_rather_than_unresolvable(tables):
    frame = tables["settings"].with_columns(
        pl.lit(None, pl.String).alias("explanation_attack"),
        pl.lit(None, pl.Float64).alias("explanation_tpr_at_fpr_mean"),
    )
    frame = frame.with_columns(pl.lit(None, pl.Float64).alias("output_tpr_at_fpr_mean"))
    line = dict(zip(*(line.split(",") for line in to_csv(frame).splitlines()[:2]), strict=True))
    assert line["output_tpr_at_fpr_mean"] == "not resolvable" and line["explanation_tpr_at_fpr_mean"] == ""


def test_latex_rows_have_as_many_cells_as_columns(folder):
    for path in sorted(folder.glob("*.tex")):
        text = path.read_text()
        parts = re.findall(r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end\{tabular\}", text, re.DOTALL)
        assert parts
        for columns, part in parts:
            for row in (line for line in part.splitlines() if line.endswith(r"\\")):
                spans = sum(int(span) - 1 for span in re.findall(r"\\multicolumn\{(\d+)\}", row))
                assert len(re.split(r"(?<!\\)&", row)) + spans == len(columns), row
        assert text.index(r"\toprule") < text.index(r"\midrule") < text.index(r"\bottomrule")
    settings = (folder / "settings.tex").read_text()
    assert "10$^{-5}$" in settings and r"TPR at 1~\%" in settings and r"$\varepsilon$" in settings
    assert "not resolvable" in (folder / "summary.tex").read_text()


def test_latex_prints_names_as_they_are():
    assert tex("a_b&5%{x}ε\\") == r"a\_b\&5\%\{x\}$\varepsilon$\textbackslash{}"
    assert [tex(text) for text in ("–", "−0.123", "∞", "≥ 0.5")] == ["--", "$-$0.123", r"$\infty$", r"$\geq$ 0.5"]
    assert [tex(text) for text in ("10⁻⁵", "2.5 · 10⁻⁷")] == ["10$^{-5}$", r"2.5 $\cdot$ 10$^{-7}$"]


def test_a_reason_from_a_foreign_table_is_text_in_every_format(written, tmp_path):
    """Why a model diverged is read from the metadata of tables, which others may have written."""
    reason = "gave up\n\\input{/etc/passwd}\\immediate\\write18{id}\n=HYPERLINK(1)\x1b]0;x\x07\u202e"
    foreign = written({("none", "inf"): 1.0})
    path = next(foreign.root.rglob("metrics.parquet"))
    table, metadata = read_table(path, "metrics"), table_metadata(path, "metrics")
    write_table(path, table, "metrics", len(table), {**metadata, "diverged": {"3": reason}})
    results = audited(foreign.root, foreign.results().spec)
    write(results, find(results), tmp_path)
    for suffix in ("tex", "csv"):
        text = (tmp_path / f"settings.{suffix}").read_text()
        assert "gave up" in text
        assert not re.search(r"^\s*[=@\\]?(\\input|\\immediate|=HYPERLINK)", text, re.MULTILINE)
        assert not any(one in text for one in "\x1b\x07\u202e")
    tex_text = (tmp_path / "settings.tex").read_text()
    assert "\\input" not in tex_text and "\\immediate" not in tex_text and "\\write" not in tex_text


def test_the_same_inputs_give_the_same_bytes(small, folder, tmp_path):
    results = small.results()
    write(results, find(results), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }


def test_tables_of_imported_signals(imported, tmp_path):
    results = imported.results()
    tables = build(results, find(results))
    write(results, find(results), tmp_path)
    row = tables["settings"].row(0, named=True)
    assert row["models"] == 12 and row["test_accuracy_mean"] is None and row["output_auc_mean"] > 0.6
    assert tables["differences"]["minuend"].unique().to_list() == ["explanations"]


def test_losses_stand_beside_accuracies(small, findings):
    row = build(small.results(), findings)["settings"].row(1, named=True)
    assert row["train_loss_mean"] == pytest.approx(0.1) and row["test_loss_mean"] == pytest.approx(0.455)
    assert row["test_loss_low"] < row["test_loss_mean"] < row["test_loss_high"]
    assert settings_layout(small.results(), findings, page=True).rows[1][4].notes[1] == "loss 0.455"


def test_every_record_is_ranked_by_its_exposure_in_every_setting(tables, small):
    exposure = tables["exposure"]
    assert len(exposure) == 3 * 300 and exposure["epsilon"].unique(maintain_order=True).to_list() == ["inf", "8", "1"]
    first = exposure.row(0, named=True)
    assert (first["record"], first["rank"], first["unit"], first["person"]) == (17, 1, "record", None)
    assert (first["attack"], first["signal"], first["likelihood"]) == ("loss-lira", "confidence", "pooled")
    scored = small.results().scored(small.results().spec.settings[0], "loss-lira", "confidence", "pooled")
    inside, outside = (scored.score[17][scored.member[17] == member].mean() for member in (True, False))
    assert first["gap"] == pytest.approx(inside - outside, abs=1e-6)


def test_pages_without_records_come_with_no_list_of_them(small, findings, tmp_path):
    (tmp_path / "exposure.csv").write_text("of an earlier run")
    (tmp_path / "notes.csv").write_text("somebody's own")
    write(small.results(exposed=0), findings, tmp_path)
    assert not (tmp_path / "exposure.csv").exists() and (tmp_path / "epsilon.csv").exists()
    assert (tmp_path / "notes.csv").exists()


def test_matrices_have_their_exposures_in_a_file_of_their_own(imported):
    assert not {"exposure", "epsilon"} & set(tables_of(imported.results().spec))


def test_bounds_are_those_of_every_attack_at_the_settings_own_delta(tables, small):
    bounds = tables["epsilon"]
    assert len(bounds) == 5 * 2 * (1 + 2 + 2)  # attacks, null controls, methods without fair coins by setting
    strongest = bounds.filter(attack="loss-lira", likelihood="pooled", null_control=False, method="clopper-pearson")
    assert strongest["epsilon_lower_bound"][0] > strongest["epsilon_lower_bound"][2]
    assert bounds["delta"].unique().to_list() == [1e-5] and bounds["confidence"].unique().to_list() == [0.95]


LABELS = {
    "dataset_label": "Toys & Co",
    "architecture_label": "A net",
    "label": "our method",
    "mechanism_label": "DP-SGD",
}


def test_labels_are_printed_and_csv_keeps_the_names(small, tmp_path):
    settings = [setting | (LABELS if setting["epsilon"] == "8" else {}) for setting in small.spec["settings"]]
    results = small.results(settings=settings)
    write(results, find(results), tmp_path)
    for name in ("settings", "summary", "differences"):
        assert re.search(r"Toys .*& A net *& our .*& 8 &", (tmp_path / f"{name}.tex").read_text())
        assert "toy,net,dp-sgd,8" in (tmp_path / f"{name}.csv").read_text()
        assert "Toys" not in (tmp_path / f"{name}.csv").read_text()


def test_the_page_of_given_models_has_no_column_or_note_of_their_training(small, findings):
    given = [
        replace(one, setting=replace(one.setting, trained=False), train_accuracy=None) for one in findings.settings
    ]
    results = replace(small.results(), spec=small.results(settings=tuple(one.setting for one in given)).spec)
    layout = settings_layout(results, replace(findings, settings=given), page=True)
    assert [column.title for column in layout.columns if column.group == "Accuracy"] == ["test"]
    assert all(len(row) == len(layout.columns) for row in layout.rows)


def test_persons_by_the_sum_have_the_number_of_the_answer(findings):
    found = findings.settings[0]
    by_person = replace(found, aggregate="sum", others={"none": found.leaks})
    cells = persons_layout([by_person], 0.01).rows[0]
    auc = found.strongest["outputs"].auc_estimate
    assert str(cells[4]) == fixed(auc.mean) and cells[4].notes == (interval(auc),)


def test_rates_that_no_pool_resolves_have_no_printed_column(small, findings):
    results = small.results()
    frame = kinds["summary"](results, findings)
    unresolved = frame.with_columns(pl.lit(None, pl.Float64).alias("tpr_at_fpr_0.01_mean"))
    for known, present in ((frame, True), (unresolved, False)):
        titles = [column.title for column in kinds["summary"].layout(results, findings, known).columns]
        assert ("TPR at 1\u00a0%" in titles) == present


def test_an_attack_that_is_strongest_on_two_channels_is_one_row_of_persons(findings):
    found = findings.settings[0]
    both = replace(found, leaks=found.leaks | {"both": found.leaks["outputs"]})
    assert len(persons_layout([both], 0.01).rows) == len(persons_layout([found], 0.01).rows) == len(found.strongest)
