"""Figures of a study: what stands on their axes, and when they are drawn."""

from dataclasses import replace

import pytest

from mia_audit.report.figures.catalogue import figure_files, table_of
from mia_audit.report.figures.roc import (
    accuracy_by_epsilon,
    accuracy_by_parameter,
    curves_over_epsilon,
    swept_parameters,
)
from mia_audit.report.findings import Estimate, Finding, Findings, LowerBound
from mia_audit.report.spec import AuditedSetting, ReportedAudit


def finding(architecture: str, epsilon: str, mean: float, **metadata: object) -> Finding:
    mechanism = "none" if epsilon == "inf" else "dp-sgd"
    setting = AuditedSetting(
        "toy", architecture, mechanism, epsilon, private=epsilon != "inf", model="maps", **metadata
    )  # type: ignore[arg-type]
    return Finding(
        setting,
        {},
        None,
        Estimate(mean, 0.01, mean - 0.02, mean + 0.02, 10),
        None,
        None,
        LowerBound(0.0, 1e-5, "one-run", 1),
    )


@pytest.fixture
def study() -> list[Finding]:
    base = {"maps": 10, "beta": 1}
    over = [finding("llm", e, mean, parameters=base) for e, mean in (("inf", 0.97), ("8", 0.93), ("0.5", 0.8))]
    swept = [
        finding(f"llm-maps{m}", e, mean, parameters={"maps": m, "beta": 1}, swept={"maps": m})
        for m, accuracies in ((100, (0.98, 0.7)), (1, (0.95, 0.9)))
        for e, mean in zip(("inf", "8"), accuracies, strict=True)
    ]
    other = [finding("llm-beta2", "inf", 0.5, parameters={"maps": 10, "beta": 2})]
    return [*over, *swept, *other]


def lines(figure: object) -> dict[str, tuple[list[str], list[float], list[float]]]:
    """By name: the places of a line's points, their means, and half the length of their error bars."""
    named = table_of(figure).group_by("series", maintain_order=True)  # type: ignore[arg-type]
    return {
        str(name): (rows["label"].to_list(), rows["y"].to_list(), ((rows["y_high"] - rows["y_low"]) / 2).to_list())
        for (name,), rows in named
    }


def test_accuracy_over_epsilon_begins_at_the_strictest_and_ends_without_privacy(study: list[Finding]) -> None:
    figure = accuracy_by_epsilon(None, Findings(None, study))
    ((name, (places, means, halves)),) = lines(figure).items()
    assert (name, places, means) == ("llm", ["0.5", "8", "no DP"], [0.8, 0.93, 0.97])
    assert halves == pytest.approx([0.02] * 3)  # two standard deviations
    private = [replace(one, setting=replace(one.setting, delta=1e-5)) for one in study]
    (axes,) = accuracy_by_epsilon(None, Findings(None, private)).axes
    assert axes.get_xlabel() == "ε at δ = 10⁻⁵"


def test_a_swept_parameter_takes_in_whoever_agrees_in_everything_else(study: list[Finding]) -> None:
    drawn = lines(accuracy_by_parameter(None, Findings(None, study), "maps"))
    assert drawn["no DP"][:2] == (["1", "10", "100"], [0.95, 0.97, 0.98])
    assert drawn["dp-sgd, ε = 8"][:2] == (["1", "10", "100"], [0.9, 0.93, 0.7])
    assert set(drawn) == {"no DP", "dp-sgd, ε = 8"}


def test_words_stand_behind_numbers_on_the_axis() -> None:
    values = ("none", 16, 8)
    swept = [finding(f"l{v}", "inf", 0.9, parameters={"p": v}, swept={"p": v}) for v in values]
    assert swept_parameters([one.setting for one in swept]) == ["p"]
    assert lines(accuracy_by_parameter(None, Findings(None, swept), "p"))["no DP"][0] == ["8", "16", "none"]


def test_an_audit_has_these_figures_where_several_values_are_on_the_axis(study: list[Finding]) -> None:
    def names(known: list[Finding]) -> list[str]:
        spec = ReportedAudit(audit="toy", settings=tuple(one.setting for one in known))
        return [name for name in figure_files(spec) if name.startswith("accuracy") and name.endswith("pdf")]

    assert names(study) == ["accuracy_by_epsilon.pdf", "accuracy_by_maps.pdf"]
    assert names(study[:2]) == [] and names(study[:3]) == ["accuracy_by_epsilon.pdf"]
    assert names(study[3:5]) == []  # one value is no sweep
    imported = replace(study[0].setting, trained=False)
    assert not curves_over_epsilon([replace(imported, epsilon=str(e)) for e in range(4)])


def test_without_trained_models_a_sentence_says_so() -> None:
    assert accuracy_by_epsilon(None, Findings(None, [])).startswith("No model")
