"""What is said of a guarantee and of neighbouring data sets, and what to do now, by case."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from mia_audit.report.advice import RELEASE, next_steps, not_examined
from mia_audit.report.findings import Finding, Findings, LowerBound, Worth, guarantee
from mia_audit.report.opened import find
from mia_audit.report.results import Results
from mia_audit.report.spec import AuditedSetting
from mia_audit.report.statements import (
    adjacent,
    bound_sentences,
    design_of,
    explained_adjacency,
    exposed_sentences,
    guarantee_sentence,
    setting_notes,
    targets_of,
    worth_clause,
)


def test_a_guarantee_names_what_it_assumes(findings):
    found = findings.settings[-1]
    told = guarantee_sentence(found, guarantee(found))
    for word in (
        "ε = ",
        "δ = ",
        "accountant",
        "by RDP",
        "added or removed",
        "Poisson sampling at rate",
        "noise multiplier",
    ):
        assert word in told
    assert "giving one of the training records away" not in told


def test_a_delta_that_promises_nothing_is_called_so(findings):
    found = findings.settings[-1]
    records = guarantee(found)["records"]
    weak = replace(found, setting=replace(found.setting, delta=1.0 / records))
    assert f"δ is not below 1/{records}" in guarantee_sentence(weak, guarantee(weak))


def test_saliency_has_no_side_for_or_against_the_class(findings):
    found = findings.settings[0]
    outputs, explained = found.strongest["outputs"], found.strongest["explanations"]
    for signal, expected in (("saliency_l1", "in either direction"), ("ixg_l1", "blue against it")):
        leaks = found.leaks | {"explanations": [replace(explained, signal=signal)]}
        told = exposed_sentences(replace(found, leaks=leaks), outputs, 8, maps=True, bars=False)
        assert expected in told


def test_the_design_comes_with_its_share(small, tmp_path):
    spec = small.results(config={"membership": {"design": "split", "share": 0.8}}).spec
    assert design_of(Results(tmp_path, spec)) == ("split", "80%")
    assert design_of(small.results())[0] == "half"  # as the pool on disk says, whatever the config


def test_a_bound_says_what_it_rests_on_and_names_a_broken_promise(findings):
    (told,) = bound_sentences(findings)
    assert "5 attacks" in told and "95\u00a0%" in told and "estimate" in told
    private = findings.settings[1]
    proved = replace(private.bound, epsilon=8.1, method="one-run")
    told, broken = bound_sentences(replace(findings, settings=[replace(private, bound=proved)]))
    assert "proof (one-run bound)" in told and "estimate" not in told
    assert "with dp-sgd at ε = 8" in broken and "does not hold" in broken


def test_a_claim_is_called_one_and_a_refuted_claim_refuted(findings):
    private = findings.settings[1]
    claim = replace(private, setting=replace(private.setting, mechanism="own", accountant="claimed"))
    assert guarantee(claim) == {
        "epsilon_claimed": guarantee(private)["epsilon_spent"],
        "records": guarantee(private)["records"],
    }
    told = guarantee_sentence(claim, guarantee(claim))
    assert "with own at a claimed ε = 8" in told and "what the user's own code claims" in told and "PRV" not in told
    proved = replace(claim.bound, epsilon=8.1, method="one-run")
    _, refuted = bound_sentences(replace(findings, settings=[replace(claim, bound=proved)]))
    assert refuted.startswith("The claim of ε = 8 by own") and "is refuted: the audit proves" in refuted
    assert "at least 8.10 at δ = " in refuted and "95\u00a0% confidence" in refuted
    estimated = replace(claim.bound, epsilon=8.1, method="clopper-pearson")
    _, doubted = bound_sentences(replace(findings, settings=[replace(claim, bound=estimated)]))
    assert "is contradicted: the audit estimates" in doubted
    below = replace(claim.bound, epsilon=7.9, method="one-run")
    assert len(bound_sentences(replace(findings, settings=[replace(claim, bound=below)]))) == 1


def test_nothing_is_said_of_the_training_of_models_that_were_given(findings):
    told = " ".join(setting_notes(findings))
    assert "These models are for audit only" in told
    given = {"trained": False, "accountant": "claimed", "given_name": "dp8"}
    brought = [replace(one, setting=replace(one.setting, **given)) for one in findings.settings[1:]]
    told = " ".join(setting_notes(replace(findings, settings=brought)))
    assert "is what their owner claims" in told and "audit only" not in told


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


def test_what_leaks_in_one_architecture_only_is_told_apart(findings):
    """A protection of several architectures is neither refused nor proposed for all of them."""
    leaking, held = findings.settings[1], findings.settings[-1]
    other = replace(held, setting=replace(leaking.setting, architecture="small"))
    release, protect, _ = next_steps(replace(findings, settings=[leaking, other]))
    assert "with dp-sgd at ε = 8 (1 of 2 settings) if" in release
    assert f"with dp-sgd at ε = 8 ({other.setting.place}) no attack did" in protect


def test_advice_on_given_models_names_no_key_of_a_config(small, findings):
    given = [replace(one, setting=replace(one.setting, trained=False)) for one in findings.settings]
    spec = small.results(settings=tuple(one.setting for one in given)).spec
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


TRAINED = {
    "epsilon": [8.0], "epsilon_rdp": [9.0], "noise_multiplier": [1.0], "sampling": ["poisson"], "sampling_rate": [0.1],
    "steps": [100], "records": [500], "noise_mask": ["none"], "persons": [100], "records_per_person": [5],
}  # fmt: skip


def finding(unit: str, private: bool = True) -> Finding:
    setting = AuditedSetting("d", "mlp", "dp-sgd" if private else "none", "8", private=private, delta=1e-5)
    return Finding(
        setting, {}, None, None, pl.DataFrame(TRAINED | {"unit": [unit]}), None, LowerBound(0.0, 1e-5, "one-run", 1)
    )


@pytest.mark.parametrize(
    ("units", "words"),
    [
        (["record"], "one record"),
        (["person"], "one person with all of their records"),
        (["record", "person", "record"], "one record or one person with all of their records"),
        ([], ""),
    ],
)
def test_trainings_name_their_units(units: list[str], words: str) -> None:
    settings = [finding("record", private=False), *map(finding, units)]
    assert adjacent(Findings(None, settings)) == words


def test_explanation_sets_name_theirs() -> None:
    records, persons = (explained_adjacency("zero-out", by_person) for by_person in (False, True))
    assert records.startswith("one record's term") and persons.startswith("one person's term")
    assert "the number of persons being public" in persons


def test_no_delta_of_a_person_is_printed_below_the_computed_one() -> None:
    worth = [Worth(2, 2.0, 1e-5), Worth(3, 3.0, 3.41e-5), Worth(4, 4.0, 1.01e-7)]
    text = worth_clause(replace(finding("record"), worth=worth))
    assert "(δ = 10⁻⁵)" in text and "(δ = 3.5 · 10⁻⁵)" in text and "(δ = 1.1 · 10⁻⁷)" in text


@pytest.mark.parametrize(("sizes", "said"), [((33, 33), "33 models"), ((33, 9), "9 to 33 models"), ((1,), "1 model")])
def test_settings_of_different_numbers_of_models_are_told_apart(sizes: tuple[int, ...], said: str) -> None:
    settings = [SimpleNamespace(strongest={"outputs": SimpleNamespace(targets=range(size))}) for size in sizes]
    given: Any = SimpleNamespace(settings=settings)
    assert targets_of(given, "model") == said
