"""What to do now: a sentence each on release, protection and further models, by case."""

from dataclasses import replace

import pytest

from mia_audit.report.data.results import find
from mia_audit.report.text.steps import RELEASE, next_steps, not_examined


def only(findings, *places):
    return replace(findings, settings=[findings.settings[place] for place in places])


@pytest.mark.parametrize("verdict", ["pass", "fail", "cannot tell"])
def test_the_policy_decides_on_the_release(findings, verdict):
    assert next_steps(findings, verdict)[0] == RELEASE[verdict]
    assert ("not yet" in RELEASE[verdict]) == (verdict != "pass")


def test_what_leaks_is_not_released_and_what_holds_is_proposed(findings):
    release, protect, collect = next_steps(findings)
    assert "no model trained" in release and "or with dp-sgd at ε = 8 " in release
    assert "with dp-sgd at ε = 1 no attack did" in protect and "accuracy of 69.5" in protect
    assert "more than 12 models" in collect and "±" in collect


def test_protection_is_to_be_audited_where_none_was_or_to_be_stronger(findings):
    assert "train with dp-sgd" in next_steps(only(findings, 0))[1]
    assert "a smaller" in next_steps(only(findings, 0, 1))[1]


def test_advice_on_given_models_names_no_key_of_a_config(small, findings):
    given = [replace(one, setting=replace(one.setting, trained=False)) for one in findings.settings]
    spec = replace(small.results().spec, settings=tuple(one.setting for one in given))
    results = replace(findings, settings=given)
    said = " ".join([*next_steps(results), *not_examined(spec, results)])
    assert "membership.models" in next_steps(findings)[2] and "membership.models" not in said and "(groups)" not in said


def test_nothing_found_is_no_guarantee(written):
    nothing = find(written({("none", "inf"): 0.0}).results())
    release, protect, _ = next_steps(nothing)
    assert "no attack speaks against it" in release and "guarantee" in protect
    unlearned = [replace(one, learned=False) for one in nothing.settings]
    assert "no advice" in next_steps(replace(nothing, settings=unlearned))[0]
    assert next_steps(replace(nothing, settings=[])) == []


def test_what_was_not_examined_follows_from_the_config(small, findings):
    said = " ".join(not_examined(small.results().spec, findings))
    assert "groups" in said and "person" in said and "weights or gradients" in said
    assert "No attack read" not in said and "without protection would" not in said
    said = " ".join(not_examined(small.results().spec, only(findings, 1)))
    assert "without protection would" in said
    blind = [replace(one, leaks={"outputs": one.leaks["outputs"]}) for one in findings.settings]
    assert "No attack read the explanations." in not_examined(small.results().spec, replace(findings, settings=blind))
