"""Explanations that are the model itself against others: figure and words, against planted attacks."""

import re

import numpy as np
import pytest

from mia_audit.config.expand import intrinsic_datasets
from mia_audit.config.load import check_audit
from mia_audit.evaluation.intervals import OverTargets
from mia_audit.report.figures.catalogue import paper_style
from mia_audit.report.figures.roc import intrinsic
from mia_audit.report.findings import Finding, Findings, Leak, LowerBound, estimate_over
from mia_audit.report.formatting import fixed
from mia_audit.report.page import _intrinsic
from mia_audit.report.series import UNKNOWN, Group, Groups, _highest
from mia_audit.report.spec import AuditedSetting
from mia_audit.report.statements import compared, risk_sentences

NOISE = np.tile([-0.01, 0.01], 8)
"""Of the targets, shared by all attacks: differences over the same targets are far surer than the AUCs themselves."""
PLANTED = {
    "llm": {"confidence": 0.6, "llm-local_l1": 0.56, "llm-top_l1": 0.53, "ixg_l1": 0.5605},
    "cnn": {"confidence": 0.7, "ixg_l1": 0.55, "smoothgrad_l1": 0.65},
    "vit": {"confidence": 0.7, "ixg_l1": 0.52, "saliency_variance": 0.51},
}


def leak(signal, auc, wobble):
    values = auc + NOISE + 0.001 * np.random.default_rng(wobble).normal(size=16)
    return Leak("l1-lrt", signal, "hierarchical", np.arange(16), values, np.full(16, np.nan), 1, 0.95)


def finding(architecture, signals, epsilon="inf", swept=None, shrink=1.0):
    setting = AuditedSetting("toy", architecture, "none" if epsilon == "inf" else "dp-sgd", epsilon,
                      private=epsilon != "inf", swept=swept or {})  # fmt: skip
    found = [leak(signal, 0.5 + shrink * (auc - 0.5), k) for k, (signal, auc) in enumerate(signals.items())]
    found.sort(key=lambda one: -one.auc.mean())
    leaks = {"outputs": [one for one in found if one.signal == "confidence"]}
    leaks["explanations"] = [one for one in found if one.signal != "confidence"]
    return Finding(setting, leaks, None, None, None, None, LowerBound(0.0, 1e-5, "one-run", 1))


@pytest.fixture
def findings():
    settings = [
        finding(name, signals, epsilon, shrink=shrink)
        for name, signals in PLANTED.items()
        for epsilon, shrink in (("inf", 1.0), ("2", 0.0))
    ]
    return Findings(None, [*settings, finding("llm-m-maps1", PLANTED["llm"], swept={"maps": 1})])


def test_every_explainer_is_of_its_kind_and_sweeps_are_left_out(findings):
    (comparison,) = compared(findings).values()
    assert [(one.architecture, one.explainer, one.kind) for one in comparison.sources] == [
        ("llm", "", "outputs"), ("llm", "llm-local", "intrinsic"), ("llm", "llm-top", "intrinsic"), ("llm", "ixg", "post-hoc"),
        ("cnn", "", "outputs"), ("cnn", "smoothgrad", "post-hoc"), ("cnn", "ixg", "post-hoc"),
        ("vit", "", "outputs"), ("vit", "ixg", "post-hoc"), ("vit", "saliency", "post-hoc"),
    ]  # fmt: skip
    assert comparison.protections == ["No protection", "dp-sgd, ε = 2"]
    only = Findings(None, [one for one in findings.settings if one.setting.architecture != "llm"])
    assert compared(only) == {}


def test_the_words_say_which_leaks_more(findings):
    (part,) = _intrinsic(findings)
    told = {item["term"]: item["text"] for item in part["items"]}
    bare = told["No protection"]
    assert re.search(r"weighted map of llm: AUC 0\.56\d, 0\.55", bare)
    assert re.search(r"stronger on SmoothGrad of cnn \(0\.65\d;", bare)
    assert re.search(r"difference 0\.0(89|90), 0\.08\d to 0\.09\d\)", bare)
    assert re.search(r"weaker on .*gradient of vit \(0\.52\d; difference −0\.04", bare)
    assert re.search(r"No difference [^.]*gradient of llm \(", bare)
    assert "stronger" not in told["dp-sgd, ε = 2"].replace("strongest", "") and "weaker" not in told["dp-sgd, ε = 2"]
    cells = {row[0]: [str(cell) for cell in row[2:]] for row in part["table"].rows}
    expected = 0.65
    assert float(cells["cnn: SmoothGrad"][0]) == pytest.approx(expected, abs=0.002) and len(cells) == 10


def test_the_figure_has_a_panel_a_protection_and_a_row_a_source(findings):
    (comparison,) = compared(findings).values()
    with paper_style():
        bare, private = intrinsic(None, findings, "toy").axes
    assert (bare.get_title(loc="left"), private.get_title(loc="left")) == tuple(comparison.protections)
    assert [tick.get_text() for tick in bare.get_yticklabels()][:2] == ["llm: outputs", "llm: the weighted map"]
    inherent = next(one for one in bare.containers if one.get_label() == "intrinsic explanations")
    assert inherent.lines[0].get_xdata() == pytest.approx([0.56, 0.53], abs=0.002)
    afterwards = next(one for one in bare.containers if one.get_label() == "post-hoc explanations")
    assert list(afterwards.lines[0].get_ydata()) == [3, 6, 7, 10, 11], "a gap between architectures"


def test_the_config_says_which_data_sets_have_both_kinds():
    llm = {"model": "locally-linear-maps"}
    audit = {"audit": "x", "datasets": {"digits": {}}, "mechanisms": {"none": {}}}
    audit["explainers"] = {"methods": ["ixg", "llm-local"]}
    assert intrinsic_datasets(check_audit(audit | {"architectures": {"llm": llm}}, "x")) == ["digits"]
    both = {"llm-m": llm | {"sweep": {"maps": [1, 2]}}, "cnn": {}}
    assert intrinsic_datasets(check_audit(audit | {"architectures": both}, "x")) == []


def test_the_group_at_the_highest_risk_is_told_with_its_difference_after_selection(findings):
    random = np.random.default_rng(0)
    overs = [OverTargets(0.02 + 0.02 * random.normal(size=9)) for _ in range(12)]
    gaps = [estimate_over(over, 0.95, len(overs)) for over in overs]
    listed = [
        Group("ward", str(k), 40, UNKNOWN, gap, 0.01, UNKNOWN, UNKNOWN, UNKNOWN, 1.0, 1.0) for k, gap in enumerate(gaps)
    ]
    place = int(np.argmax([gap.mean for gap in gaps]))
    highest = _highest(overs, listed, 0.95)
    assert highest.mean < gaps[place].mean - 0.002 and highest.low < highest.mean < highest.high
    leak = findings.settings[0].chief
    sentences = risk_sentences(Groups(findings.settings[0], leak, None, listed, {}, highest), 0.95)
    assert f"the risk is highest for ward {place} (AUC +{fixed(highest.mean)} against all others, " in sentences
    assert "above all others' for 11 more groups" in sentences
