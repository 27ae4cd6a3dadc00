"""Attacks and ROC curves over a swept key, over ε and over architectures."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mia_audit.report.figures.catalogue import figure_files, table_of
from mia_audit.report.figures.roc import attack_by_parameter, roc_by_architecture, roc_by_epsilon, roc_by_parameter
from mia_audit.report.findings import Finding, Findings
from mia_audit.report.series import strongest
from mia_audit.report.spec import ReportedAudit


def as_trained(finding: Finding, architecture: str, swept: Mapping[str, Any]) -> Finding:
    """Return a finding as if it was of a setting without privacy, with the scores that it has on disk."""
    setting = finding.setting
    own = {"architecture": architecture, "mechanism": "none", "epsilon": "inf", "private": False, "trained": True}
    return replace(
        finding, setting=replace(setting, **own, parameters=dict(swept), swept=dict(swept), folder=setting.path)
    )


@pytest.fixture
def swept(findings: Findings) -> Findings:
    epochs = zip(findings.settings, (30, 5, 10), strict=True)
    return Findings(findings.fpr, [as_trained(one, f"net-epochs{n}", {"epochs": n}) for one, n in epochs])


def titles(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes]


def labels(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_attacks_are_drawn_over_a_key_in_the_order_of_its_values_with_intervals(small, swept) -> None:
    figure = attack_by_parameter(small.results(), swept, "epochs")
    _, below = figure.axes
    assert [tick.get_text() for tick in below.get_xticklabels()] == ["5", "10", "30"]
    rows = table_of(figure).filter(pl.col("panel").str.ends_with("AUC"), series="outputs")
    expected = [strongest(swept.settings[place])["outputs"].auc_estimate for place in (1, 2, 0)]
    assert rows.select("y", "y_low", "y_high").rows() == [(one.mean, one.low, one.high) for one in expected]
    assert below.get_xlabel() == "epochs" and below.get_ylabel().startswith("TPR at")


def test_roc_curves_of_every_value_share_a_panel_per_kind_of_information(small, swept) -> None:
    figure = roc_by_parameter(small.results(), swept, "epochs")
    assert titles(figure) == [f"toy, no DP: {name}" for name in ("outputs", "integrated gradients", "input × gradient")]
    assert [label.rpartition(",")[0] for label in labels(figure.axes[0])] == ["epochs 5", "epochs 10", "epochs 30"]


def test_roc_curves_of_every_epsilon_share_a_panel(small, findings) -> None:
    figure = roc_by_epsilon(small.results(), findings, ("toy", "net"))
    assert titles(figure)[0] == "outputs" and len(labels(figure.axes[0])) == 3


def test_roc_curves_of_architectures_share_a_panel_and_sweeps_stay_out(small, findings, swept) -> None:
    plain = [as_trained(one, name, {}) for one, name in zip(findings.settings[:2], ("net", "other"), strict=True)]
    both = Findings(findings.fpr, [*plain, swept.settings[0]])
    figure = roc_by_architecture(small.results(), both, "toy")
    assert [label.rpartition(",")[0] for label in labels(figure.axes[0])] == ["net", "other"]
    alone = Findings(findings.fpr, plain[:1])
    assert roc_by_architecture(small.results(), alone, "toy") == "No two of these settings were attacked."


def test_an_audit_has_these_figures_where_there_is_something_to_lay_over(findings, swept) -> None:
    def names(known: list[Finding]) -> set[str]:
        files = figure_files(ReportedAudit(audit="toy", settings=tuple(one.setting for one in known)))
        overlaid = ("roc_by", "attack_by_epochs")
        return {name for name in files if name.startswith(overlaid) and name.endswith("pdf")}

    always = {"roc_by_models.pdf"}
    assert names(findings.settings) == always | {"roc_by_epsilon_toy_net.pdf"}
    assert names(findings.settings[:2]) == always
    assert names(swept.settings) == always | {"attack_by_epochs.pdf", "roc_by_epochs.pdf"}
    two = [as_trained(one, name, {}) for one, name in zip(findings.settings[:2], ("net", "other"), strict=True)]
    assert names(two) == always | {"roc_by_architecture_toy.pdf"}
