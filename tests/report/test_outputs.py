import subprocess
import sys

from mia_audit.report.figures import draw
from mia_audit.report.findings import find
from mia_audit.report.outputs import figure_names, table_names
from mia_audit.report.tables import build, write


def test_the_names_are_those_of_the_files_that_are_written(small, findings, tmp_path):
    results = small.results()
    draw(results, findings, tmp_path / "figures")
    write(build(results, findings), tmp_path / "tables", results.spec)
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == sorted(
        figure_names(small.spec["settings"])
    )
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == sorted(table_names())


def test_the_names_where_explanations_were_measured(interpreted, tmp_path):
    results = interpreted.results()
    draw(results, find(results), tmp_path / "figures")
    write(build(results, find(results)), tmp_path / "tables", results.spec)
    names = figure_names(interpreted.spec["settings"], interpreted=True, shown=True, curved=True)
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == sorted(names)
    assert {"explanations_toy_net.png", "curves_toy_net.svg", "interpretability.pdf"} < set(names)
    tables = table_names(interpreted=True, curved=True)
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == sorted(tables)


def test_the_names_without_training(imported, tmp_path):
    results = imported.results()
    draw(results, find(results), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(figure_names(imported.spec["settings"]))
    assert "tradeoff.pdf" not in figure_names(imported.spec["settings"])


def test_a_workflow_reads_the_names_without_importing_anything_heavy():
    code = "import sys, mia_audit.report.outputs; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "matplotlib", "numpy", "polars", "pyarrow"} & set(loaded)
