"""`mia-audit epsilon` against published values, and what it says to nonsense."""

import pytest

from mia_audit.cli import main

MNIST = {"--batch": "500", "--records": "60000", "--epochs": "20", "--delta": "1e-5"}


def ask(**changes: str) -> int:
    words = MNIST | {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    return main(["epsilon", *(f"{name}={value}" for name, value in words.items())])


def test_both_accountants_and_their_terms(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(noise_multiplier="1.3") == 0
    lines = capsys.readouterr().out.splitlines()
    answers = [line.split() for line in lines if line.startswith(("pld", "rdp"))]
    assert [(words[0], float(words[1])) for words in answers] == [("pld", 1.3), ("rdp", 1.3)]
    assert [float(words[2]) for words in answers] == pytest.approx([1.473, 1.62], rel=2e-3)
    assert "Poisson" in lines[0] and "2,400 steps" in lines[0]
    assert "δ = 1e-05, unit: one record, adj" in lines[1] and "added or removed" in lines[1]


def test_a_budgets_noise_multiplier(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(target_epsilon="8", batch="1000", records="10000", epochs="30") == 0
    answers = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()[3:]}
    assert float(answers["rdp"][0]) == pytest.approx(1.36, abs=0.005)
    assert float(answers["pld"][0]) < float(answers["rdp"][0])
    assert all(7.99 <= float(epsilon) <= 8 for _, epsilon in answers.values())


def test_a_budget_below_what_rdp_can_say_has_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    terms = {"target_epsilon": "1e-3", "batch": "1000", "records": "1000", "epochs": "10"}
    assert ask(**terms) == 0
    pld, rdp = capsys.readouterr().out.splitlines()[3:]
    assert float(pld.split()[1]) == pytest.approx(5454.7, rel=1e-3)  # the exact Gaussian curve
    assert rdp.split()[:4] == ["rdp", "none", "cannot", "certify"]


@pytest.mark.parametrize("noise_multiplier", ["1e-320", "1e-9"])
def test_hardly_any_noise_has_no_finite_epsilon(noise_multiplier: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(noise_multiplier=noise_multiplier) == 0
    assert all(line.split()[2] == "∞" for line in capsys.readouterr().out.splitlines()[3:])


def test_a_delta_that_promises_nothing_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(noise_multiplier="1.3", delta="0.001") == 0
    assert "warning: δ is not below 1/records" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "mend"),
    [
        ({"target_epsilon": "-1"}, "--target-epsilon: a positive number"),
        ({"target_epsilon": "inf"}, "--target-epsilon"),
        ({"target_epsilon": "1e-9", "accountant": "rdp"}, "by the rdp accountant: choose accountant pld"),
        ({"noise_multiplier": "0"}, "--noise-multiplier: a positive number"),
        ({"noise_multiplier": "1", "delta": "1"}, "--delta: a number between 0 and 1"),
        ({"noise_multiplier": "1", "batch": "60001"}, "--batch: 60001 records per step, but there are only 60000"),
        ({"noise_multiplier": "1", "epochs": "0"}, "--epochs"),
        ({"noise_multiplier": "1", "delta": "1e-320"}, "expected at least 1e-290"),
        ({"noise_multiplier": "1", "delta": "1e-20", "accountant": "prv"}, "choose accountant pld"),
    ],
)
def test_nonsense_is_one_line(changes: dict[str, str], mend: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(**changes) == 2
    written = capsys.readouterr()
    assert mend in written.err and written.err.count("\n") == 1
    assert not [line for line in written.out.splitlines() if line.startswith(("prv", "rdp"))]
