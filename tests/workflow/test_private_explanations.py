"""A study of private explanations without any shadow model or attack, from its config to its report."""

from typing import Any

import pytest


@pytest.mark.slow
def test_a_study_alone_ends_in_a_report(workflow: Any) -> None:
    study = {"queries": 12, "epsilons": [1, 10], "steps": 10, "scale": 500}
    workflow.configure(
        {"audit": "tiny", "datasets": {"digits": {"records": 60}}, "private_explanations": {"digits": study}}
    )
    result = workflow.run()
    assert result.returncode == 0, result.stdout
    assert "missing operand" not in result.stdout, "no shadow model is the black box"
    assert "No membership was attacked here." in (workflow.results / "report.html").read_text()
    for name in ("provenance.json", "tables/private_explanations.csv", "figures/private_loss.svg"):
        assert (workflow.results / name).exists()


def test_its_tables_wait_for_the_accuracies_of_the_models(workflow: Any, tiny: dict[str, Any]) -> None:
    study = {"black_boxes": [], "architectures": ["vit"], "queries": 12, "epsilons": [1, 10], "steps": 10, "scale": 500}
    workflow.configure(tiny | {"private_explanations": {"digits": study}})
    workflow.options = ("--cores", "2", "results/tiny/tables/private_explanations.csv")
    planned = workflow.planned()
    assert planned["private_report"] == 1 and planned["merge"] == 2
