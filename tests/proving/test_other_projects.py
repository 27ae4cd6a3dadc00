"""Mechanisms of other projects: three that are sound and two that are broken on purpose, each judged rightly."""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mia_audit.privacy.accounting import epsilon_spent
from mia_audit.proving.catalogue import Options, resolve
from mia_audit.proving.prover import Limits, prove

HERE = Path(__file__).parent
DELTA = 1e-5
LIMITS = Limits(trials=200, pilot=50, seconds=60)
DIFFPRIVLIB = ("diffprivlib==0.6.6", "scikit-learn<1.8")
"""diffprivlib, and the newest scikit-learn that it can be imported with; what both need besides is installed."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def python_with_diffprivlib(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Install diffprivlib into a folder of its own and return the command line of a Python that sees it."""
    folder = tmp_path_factory.mktemp("diffprivlib")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *DIFFPRIVLIB]
    done = subprocess.run(install, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"diffprivlib cannot be installed here: {done.stderr.strip().splitlines()[-1:]}")
    return f"env PYTHONPATH={folder} {sys.executable}"


def judged(target, epsilon, delta):
    """One record replaced: the number of records is public, and each class always has some."""
    options = Options(epsilon, delta, "replace", 8, 3, classes=2, domain="bounded", empty=False)
    mechanisms = [
        replace(mechanism, pairs=[pair for pair in mechanism.pairs if pair.name.startswith(("aligned", "orthogonal"))])
        for mechanism in resolve(target, options)
    ]
    return prove(target, mechanisms, LIMITS)


def opacus_claim():
    """Two steps at rate ½ for one record added or removed; of one replaced by another, by group privacy."""
    from opacus_loop import NOISE

    epsilon = epsilon_spent(NOISE, 0.5, 2, DELTA, "pld")
    return 2 * epsilon, (1 + math.exp(epsilon)) * DELTA


@pytest.fixture(autouse=True)
def beside(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))


def test_opacus_with_its_own_sampler_is_sound():
    verdict = judged(f"{HERE / 'opacus_loop.py'}:train", *opacus_claim())
    assert not verdict.refuted, verdict.counterexample


def test_opacus_without_noise_is_refuted():
    assert judged(f"{HERE / 'opacus_loop.py'}:train_without_noise", *opacus_claim()).refuted


def command(python, model, epsilon):
    return f"command:{python} {HERE / 'diffprivlib_models.py'} {model} {epsilon}"


@pytest.mark.xdist_group("diffprivlib")
@pytest.mark.parametrize("model", ["logistic-regression", "gaussian-nb"])
def test_diffprivlib_is_sound(python_with_diffprivlib, model):
    """Its ε is for one record added or removed; of one replaced by another, twice that."""
    verdict = judged(command(python_with_diffprivlib, model, 1.0), 2.0, 0.0)
    assert not verdict.refuted, verdict.counterexample


@pytest.mark.xdist_group("diffprivlib")
def test_diffprivlib_at_thirty_times_the_claim_is_refuted(python_with_diffprivlib):
    assert judged(command(python_with_diffprivlib, "gaussian-nb", 60.0), 2.0, 0.0).refuted
