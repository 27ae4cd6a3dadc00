"""The page's section on private explanations of trained models: made-up answers of two trainings, and attacks on their explanations."""

import polars as pl
import pyarrow as pa
import pytest

from mia_audit.config.specs import ReportSpec
from mia_audit.report.figures.private import attacked, attacks
from mia_audit.report.opened import find
from mia_audit.report.page import Sheet, private_studies, render
from mia_audit.report.provenance import provenance
from mia_audit.report.results import Results
from mia_audit.storage import read_table, write_table

from .test_private import RUNS

RENAMED = {"ixg_variance": "private_local:0.5_variance", "ig_probability_l1": "local_linear_l1"}
STUDY = {
    "black_boxes": [], "queries": 6, "epsilons": [0.5, 5.0], "epsilon": 0.5, "delta": 1e-6, "steps": 20, "c": 1.0,
    "kernel": "stable", "adjacency": "replacement", "attacked": [], "scale": None, "pictures": 0,
}  # fmt: skip


def answers(distance):
    """Six answers of every run, whose losses fall with ε."""
    rows = [
        {"experiment": experiment, "protocol": protocol, "as_published": published, "epsilon": epsilon,
         "number": number, "record": number, "class": 0, "source": "history" if protocol == "non-interactive" else "scratch",
         "steps": 20, "mu_squared": 0.01 * epsilon, "mu_squared_spent": 0.01 * epsilon * (number + 1),
         "excess_loss": 0.1 / epsilon * (9 if published else 1), "excess_loss_of_zero": 0.4, "distance": distance,
         "explanation": [0.5, -0.5]}
        for experiment, protocol, published, epsilon in RUNS
        for number in range(6)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows)


@pytest.fixture
def results(written) -> Results:
    small = written({("none", "inf"): 1.0, ("dp-sgd", "8"): 0.0}, pool=True)
    names = []
    for setting, distance in zip(small.spec["settings"], (0.25, 0.75), strict=True):
        name = f"net_{setting['mechanism']}-eps{setting['epsilon']}"
        names.append(
            {key: setting[key] for key in ("dataset", "architecture", "mechanism", "epsilon")} | {"name": name}
        )
        table = answers(distance)
        write_table(small.root / "toy" / "private" / name / "answers.parquet", table, "private-answers", len(table))
        folder = small.root / "toy" / "net" / f"{setting['mechanism']}-eps{setting['epsilon']}"
        for kind in ("metrics", "scores"):
            table = read_table(folder / f"{kind}.parquet", kind)
            signals = [RENAMED.get(name, name) for name in table["signal"].to_pylist()]
            table = table.set_column(
                table.column_names.index("signal"), "signal", pa.array(signals).dictionary_encode()
            )
            chunks = iter(table.slice(first, 3600) for first in range(0, len(table), 3600))
            write_table(folder / f"{kind}.parquet", table if kind == "metrics" else chunks, kind, len(table))
    spec = ReportSpec(**small.spec, studies={"toy": STUDY | {"settings": names}})
    return Results(small.root, spec)


def test_trainings_are_told_apart_with_what_they_promise(results):
    (part,) = private_studies(results, find(results), Sheet())
    assert [(str(row[0]), list(row[0].notes)) for row in part["training"].rows] == [
        ("net, no DP", []),
        ("net, dp-sgd ε = 8", ["δ = 10⁻⁵, PRV"]),
    ]
    assert [str(row[1]) for row in part["training"].rows] == ["0.250", "0.750"]
    assert "one record of the explanation set" in part["terms"]
    assert [str(cell) for cell in part["losses"].rows[0][1:]] == ["0.200", "0.0200", "0.400"]
    assert [list(cell.notes) for cell in part["losses"].rows[0][1:3]] == [["1.80"], ["0.180"]]
    names = [f"private_{name}" for name in ("loss", "spending", "losses", "steps", "queries", "attacks")]
    assert [figure["name"] for figure in part["figures"]] == names


def test_attacks_on_private_explanations_stand_beside_the_plain_fit_and_outputs(results):
    found = attacked(results, "toy")
    assert [setting.epsilon for setting in found] == ["inf", "8"]
    for by_attack in found.values():
        assert set(by_attack["var-lrt"]) == {"private, ε = 0.5", "outputs"}
        assert set(by_attack["l1-lrt"]) == {"no noise", "outputs"}
    none, private = found.values()
    assert none["var-lrt"]["private, ε = 0.5"]["auc_mean"] > 0.55
    assert private["var-lrt"]["private, ε = 0.5"]["auc_mean"] == pytest.approx(0.5, abs=0.03)
    assert attacked(results, "another") == {}


@pytest.mark.parametrize("targets", [3, 1])
def test_the_figure_has_intervals_over_targets_or_over_the_records_of_one(results, targets):
    results.__dict__["metrics"] = [metrics.filter(pl.col("target") < targets) for metrics in results.metrics]
    figure = attacks(results, find(results))
    bars = [segment for bar in figure.axes[0].containers for segment in bar.lines[2][0].get_segments()]
    heights = [top - bottom for (_, bottom), (_, top) in bars]
    assert len(heights) == 4 and all(height > 0 for height in heights)


@pytest.mark.usefixtures("without_charts")
def test_the_page_holds_it(results):
    findings = find(results)
    page = render(results, findings, provenance(results, findings.settings))
    assert "Attacks on explanations from the" in page and "every AUC" in page
    assert "add the ε of its training" in page
    assert 'class="chart private_loss"' in page
