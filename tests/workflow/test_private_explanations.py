"""A study of private explanations without any shadow model or attack, from its config to its report."""

from typing import Any

import polars as pl
import pytest


@pytest.mark.slow
def test_a_study_alone_ends_in_a_report_over_its_seeds(workflow: Any) -> None:
    study = {"queries": 12, "epsilons": [1, 10], "steps": 10, "scale": 500}
    workflow.configure(
        {
            **{"audit": "tiny", "seeds": [0, 1], "datasets": {"digits": {"records": 60}}},
            "private_explanations": {"digits": study},
        }
    )
    result = workflow.run()
    assert result.returncode == 0, result.stdout
    assert "missing operand" not in result.stdout, "no shadow model is the black box"
    assert "Means over 2 seeds (0, 1)." in (workflow.results / "report.html").read_text()
    tables = [pl.read_csv(workflow.results / f"seed-{seed}" / "tables" / "private_explanations.csv") for seed in (0, 1)]
    assert not tables[0].equals(tables[1])
    over = pl.read_csv(workflow.results / "tables" / "private_explanations.csv").filter(seed="mean")
    losses = pl.concat(tables).group_by("experiment", "protocol", "as_published", "epsilon", maintain_order=True)
    assert over["excess_loss_mean"].to_list() == pytest.approx(
        losses.agg(pl.mean("excess_loss_mean"))["excess_loss_mean"].to_list(), 1e-5
    )
    assert "No membership was attacked here." in (workflow.results / "seed-0" / "report.html").read_text()
    for name in ("provenance.json", "figures/seeds.svg", "seed-1/figures/private_loss.svg"):
        assert (workflow.results / name).exists()


def test_its_tables_wait_for_the_accuracies_of_the_models(workflow: Any, tiny: dict[str, Any]) -> None:
    study = {"black_boxes": [], "architectures": ["vit"], "queries": 12, "epsilons": [1, 10], "steps": 10, "scale": 500}
    workflow.configure(tiny | {"private_explanations": {"digits": study}})
    workflow.options = ("--cores", "2", "results/tiny/tables/private_explanations.csv")
    planned = workflow.planned()
    assert planned["report"] == 1 and planned["merge"] == 2
