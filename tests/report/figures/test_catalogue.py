"""The names of an audit's figures and tables, and the registration of new ones."""

import json
import subprocess
import sys

import pytest
from matplotlib.figure import Figure

from mia_audit.report.figures.catalogue import draw, figure, figure_files, figures, once
from mia_audit.report.opened import find
from mia_audit.report.tables.catalogue import table_files, tables, write


@pytest.mark.parametrize(
    "audit",
    [
        pytest.param("small", marks=(pytest.mark.slow, pytest.mark.xdist_group("drawn"))),
        pytest.param("interpreted", marks=pytest.mark.slow),
        "imported",
    ],
)
def test_the_names_are_those_of_the_files_that_are_written(audit, request, tmp_path):
    drawn = audit == "small"  # in all formats
    results = request.getfixturevalue(audit).results(**({} if drawn else {"figures": {"formats": ["svg"]}}))
    findings = find(results)
    if drawn:
        folder = request.getfixturevalue("drawn")
    else:
        folder = tmp_path / "figures"
        draw(results, findings, folder)
    write(results, findings, tmp_path / "tables")
    names, known = figure_files(results.spec), table_files(results.spec)
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == sorted(known)
    measured = {f"{name}.svg" for name in ("explanations_toy_net", "curves_toy_net", "explanation_metrics")}
    assert measured & set(names) == (measured if audit == "interpreted" else set())
    assert ("curves.tex" in known) == (audit == "interpreted") and ("tradeoff.svg" in names) == (audit != "imported")


@pytest.mark.slow
@pytest.mark.xdist_group("drawn")
def test_every_figure_has_a_caption_that_its_files_carry(drawn):
    assert all(figures[name].caption.endswith(".") for name in figures)
    assert figures["tradeoff"].caption[:40] in (drawn / "tradeoff.svg").read_text()


def test_a_new_figure_is_registered_in_one_place(small, findings, tmp_path, monkeypatch):
    assert "new" not in figures  # all others are registered
    monkeypatch.setattr(figures, "_members", {})  # drawing them takes seconds
    monkeypatch.setitem(vars(figures), "_known", figures._members)

    @figure("new", once("new_{}".format("figure"), lambda spec: spec.audit == "toy"), "A new figure.")
    def new(results, findings, subject):
        return Figure(figsize=(1, 1))

    results = small.results()
    assert "new_figure.pdf" in figure_files(results.spec)
    draw(results, findings, tmp_path)
    assert (tmp_path / "new_figure.png").exists()


def test_a_workflow_reads_the_names_without_importing_anything_heavy(small):
    code = (
        "import json, sys\nfrom mia_audit.report.spec import ReportedAudit\n"
        "from mia_audit.report.figures.catalogue import figure_files\nfrom mia_audit.report.tables.catalogue import table_files\n"
        "spec = ReportedAudit.model_validate_json(sys.stdin.read())\nassert figure_files(spec) and table_files(spec)\nprint(*sys.modules)"
    )
    run = [sys.executable, "-c", code]
    loaded = subprocess.run(
        run, input=json.dumps(small.spec), capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"torch", "matplotlib", "polars", "pyarrow", "scipy", "PIL", "jinja2"} & set(loaded)
    assert "settings" in tables and "roc" in figures
