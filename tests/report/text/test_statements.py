"""What is said of a guarantee."""

from dataclasses import replace

from mia_audit.report.data.provenance import guarantee
from mia_audit.report.data.results import Results
from mia_audit.report.text.statements import (
    bound_sentences,
    design_of,
    exposed_sentences,
    guarantee_sentence,
    setting_notes,
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
    spec = replace(small.results().spec, config={"membership": {"design": "split", "share": 0.8}})
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
    assert bound_sentences(replace(findings, settings=[replace(private, bound=None)])) == []


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
