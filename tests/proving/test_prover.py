"""Sound mechanisms are held and broken ones refuted, by whatever they show."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from mia_audit.cli import main
from mia_audit.commands.prove import lines
from mia_audit.errors import UserError
from mia_audit.proving import probes, prover
from mia_audit.proving.catalogue import Options, resolve, targets
from mia_audit.proving.mechanism import Verdict
from mia_audit.proving.prover import Limits, prove

FILE = Path(__file__).parent / "mechanisms.py"
CLAIM = ["--epsilon", "1", "--delta", "1e-5", "--adjacency", "add-remove"]
QUICK = Limits(trials=600, seconds=60)


def judged(function, delta=1e-5, adjacency="add-remove", limits=QUICK, records=4, **options):
    target = f"{FILE}:{function}"
    given = Options(epsilon=1.0, delta=delta, adjacency=adjacency, records=records, **options)
    return prove(target, resolve(target, given), limits)


@pytest.mark.parametrize(
    ("function", "delta"),
    [("gaussian", 1e-5), pytest.param("laplace", 0.0, marks=pytest.mark.slow), ("randomized_response", 0.0)],
)
def test_sound_mechanisms_are_held(function, delta):
    # of one record the response may be about a record that is there or not: one is replaced
    adjacency = "replace" if function == "randomized_response" else "add-remove"
    verdict = judged(function, delta, adjacency)
    assert not verdict.refuted, verdict.counterexample
    assert verdict.best.lower_bound <= 1


@pytest.mark.slow
def test_what_is_tight_is_nearly_reached():
    verdict = judged("laplace", 0.0, limits=Limits(trials=4000, seconds=60), domain="bounded")
    assert 0.6 < verdict.best.share <= 1


def a_number(function, trials):
    """Judge a Gaussian number, which claims ε = 4, on records that say most."""
    options = Options(4.0, 1e-5, "add-remove", 4, features=1, domain="bounded", gaussian=True)
    mechanism = resolve(f"{FILE}:{function}", options)[0]
    return prove(function, [replace(mechanism, pairs=mechanism.pairs[:1])], Limits(trials=trials, seconds=600))


def test_three_quarters_of_a_gaussian_claim_are_reached_by_gaussian_dp():
    best = a_number("number_at_four", 4000).best
    assert 0.75 < best.gaussian_share <= 1
    assert 0.3 < best.share <= 1


def test_a_quarter_less_noise_is_refuted_by_gaussian_dp():
    found = a_number("number_at_four_with_three_quarters_of_the_noise", 3000).counterexample
    assert found.gaussian_bound > 4
    assert found.lower_bound < 4  # counted alone, it takes hundreds of thousands of trials
    told = lines(Verdict("number", found.claim, [found], 1.0))
    assert any("; by the claim of Gaussian DP, ε ≥ 4." in line for line in told)


@pytest.mark.parametrize(
    ("function", "event"),
    [
        ("gaussian_with_a_fifth_of_the_noise", "above"),
        ("gaussian_that_passes_nan_on", "NaN"),
        pytest.param("gaussian_that_raises", "raises ValueError: a record is too large", marks=pytest.mark.slow),
        pytest.param("gaussian_that_warns", "warns RuntimeWarning: divide by zero", marks=pytest.mark.slow),
        pytest.param("gaussian_that_writes_a_file", "file duplicates.txt of 4 bytes", marks=pytest.mark.slow),
        pytest.param("gaussian_that_says_how_many", "", marks=pytest.mark.slow),
        ("laplace_of_the_mean", "above"),
    ],
)
def test_broken_mechanisms_are_refuted(function, event):
    verdict = judged(function)
    found = verdict.counterexample
    assert found is not None
    assert event in found.detail
    assert found.lower_bound > 1
    assert found.confidence > 0.999


def of_type(kind):
    """Judge too little noise on one number of a type."""
    target = f"{FILE}:laplace_with_a_fifth_of_the_noise_of_type"
    mechanism = resolve(target, Options(1.0, 0.0, "add-remove", 4))[0]
    run = partial(mechanism.run, kind=kind)
    return prove(target, [replace(mechanism, run=run, pairs=mechanism.pairs[:1])], QUICK)


@pytest.mark.parametrize("kind", ["decimal", "fraction", "complex", "dataclass", "integer", "object array"])
def test_too_little_noise_is_refuted_in_numbers_of_any_type(kind):
    assert of_type(kind).counterexample.lower_bound > 1


@pytest.mark.parametrize("kind", ["text", "object"])
def test_what_no_event_shows_is_not_held(kind):
    with pytest.raises(
        UserError, match=r"not tested: most runs differ in text or objects .* “output is .*”; return numbers"
    ):
        of_type(kind)


def test_text_is_not_held_although_it_is_constant_on_some_inputs():
    with pytest.raises(UserError, match="not tested: most runs differ"):
        judged("laplace_as_text", 0.0, limits=Limits(trials=20, pilot=20, seconds=60))


def test_text_with_few_values_is_held():
    verdict = judged("rounded", 0.0)
    assert not verdict.refuted
    assert verdict.best.lower_bound <= 1


def test_without_empty_inputs_no_run_has_fewer_than_two_records():
    assert "too few records" in judged("noise_of_two_records", records=2).counterexample.detail
    verdict = judged("noise_of_two_records", records=3, empty=False, limits=Limits(trials=50, seconds=60))
    assert {finding.verdict for finding in verdict.findings} == {"held"}


@pytest.mark.parametrize("planted", [8, pytest.param(10, marks=pytest.mark.slow)])
def test_a_seed_of_32_bits_is_refuted_where_it_has_to_be_secret(monkeypatch, planted):
    monkeypatch.setattr(probes, "PLANTED", planted)
    monkeypatch.setattr(probes, "SEARCH_SECONDS", 600.0)  # on a slow machine too
    assert not judged("gaussian_of_32_bits").refuted
    found = judged("gaussian_of_32_bits", secret_seed=True).counterexample
    assert found.check == "seed bits"
    assert "32 of 128 bits" in found.detail
    assert f"of 2^{planted} planted seeds a search recovers 100.0%" in found.detail


@pytest.mark.slow
def test_noise_by_the_seed_alone_is_refuted_where_a_seed_is_used_again():
    found = judged("gaussian", secret_seed=True).counterexample
    assert found.check.startswith("two releases under one seed")
    terms = ({"delta": 1e-6},)
    target = f"{FILE}:gaussian"
    mechanism = resolve(target, Options(1.0, 1e-5, "add-remove", 4, terms=terms))[0]
    found = prove(target, [mechanism], QUICK).counterexample
    assert found.check.startswith("other terms under one seed")
    assert found.claim.epsilon == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", targets.names())
def test_every_check_of_our_own_mechanisms_runs_and_they_hold(monkeypatch, name):
    monkeypatch.setattr(prover, "CHUNK", 5)  # more trials are in docs/privacy.md
    verdict = prove(name, targets[name](Options(2.0, 1e-5)), Limits(trials=5, pilot=10, seconds=250))
    assert not verdict.refuted, verdict.counterexample
    skipped = {finding.mechanism for finding in verdict.findings if finding.verdict == "skipped"}
    assert skipped <= {"one step", "with a companion at 1e+08"}


COMMAND = """
import json, math, random, sys
for line in sys.stdin:
    firsts = [record[0] for record in json.loads(line)["records"]]
    if sys.argv[1] == "breaks" and any(map(math.isnan, firsts)):
        sys.exit(7)
    total = sum(max(-1, min(1, first)) for first in firsts if math.isfinite(first))
    print(json.dumps({"total": total + random.choice([-1, 1]) * random.expovariate(1)}), flush=True)
"""


@pytest.mark.parametrize(("word", "code"), [pytest.param("holds", 0, marks=pytest.mark.slow), ("breaks", 3)])
def test_a_command_is_judged_and_its_verdict_written(tmp_path, capsys, word, code):
    (tmp_path / "mechanism.py").write_text(COMMAND)
    line = f"command:python {tmp_path / 'mechanism.py'} {word}"
    terms = ["--epsilon", "1", "--delta", "0", "--adjacency", "add-remove", "--records", "3", "--trials", "200"]
    assert main(["prove", line, *terms, "--out", str(tmp_path / "verdict.json")]) == code
    written = json.loads((tmp_path / "verdict.json").read_text())
    assert written["verdict"] == ("refuted" if code else "held")
    told = capsys.readouterr().out
    if code:
        assert "event: raises RuntimeError: the command ended with exit code 7" in told
        refuting = next(finding for finding in written["findings"] if finding["verdict"] == "refuted")
        assert refuting["inputs"][0][-1] == ["nan", "nan"]
        assert refuting["lower_bound"] > 1
    else:
        assert "not refuted in" in told and "of its claim" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dp-sdg"], "unknown target 'dp-sdg': did you mean 'dp-sgd'?"),
        ([f"{FILE}:gaussian"], "the claim is missing: give --epsilon, --delta and --adjacency"),
        ([f"{FILE}:gausian", "--epsilon", "1"], "has no function 'gausian': did you mean 'gaussian'?"),
        (["dp-sgd", "--adjacency", "replace"], "--adjacency: the adjacency of this target is add-remove"),
        (["dp-sgd", "--delta", "0"], "delta 0: expected a number between 0 and 1"),
        (["dp-sgd", "--epsilon", "0"], "epsilon 0: expected a positive number"),
        ([f"{FILE}:gaussian", *CLAIM, "--epsilon", "800"], "--epsilon 800: expected at most 200"),
        ([f"{FILE}:gaussian", *CLAIM, "--epsilon", "150", "--terms", "{}"], "in all releases with the same seed"),
        ([f"{FILE}:gaussian", *CLAIM, "--classes", "-1"], "--classes -1: expected a number of classes"),
        (
            [f"{FILE}:gaussian", *CLAIM, "--records", "2", "--no-empty"],
            "--records 2: with --no-empty both inputs have at least 2",
        ),
        (["dp-sgd", "--trials", "0"], "--trials, --seconds, --confidence: expected positive numbers"),
        (["dp-sgd", "--terms", "{"], "--terms {: not JSON"),
    ],
)
def test_mistakes_are_one_line(arguments, words, capsys):
    assert main(["prove", *arguments]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1
