"""Mechanisms of other projects: three that are sound and two that are broken on purpose, each judged rightly."""

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from mia_audit.privacy.accounting import epsilon_spent
from mia_audit.proving.catalogue import Options, resolve
from mia_audit.proving.prover import Limits, prove

HERE = Path(__file__).parent
DELTA = 1e-5
LIMITS = Limits(trials=1000, pilot=100, seconds=100)
PYTHON = os.environ.get("MIA_AUDIT_DIFFPRIVLIB", "")

pytestmark = pytest.mark.slow
with_diffprivlib = pytest.mark.skipif(not PYTHON, reason="MIA_AUDIT_DIFFPRIVLIB names no Python that has diffprivlib")


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


def command(model, epsilon):
    return f"command:{PYTHON} {HERE / 'diffprivlib_models.py'} {model} {epsilon}"


@with_diffprivlib
@pytest.mark.parametrize("model", ["logistic-regression", "gaussian-nb"])
def test_diffprivlib_is_sound(model):
    """Its ε is for one record added or removed; of one replaced by another, twice that."""
    verdict = judged(command(model, 1.0), 2.0, 0.0)
    assert not verdict.refuted, verdict.counterexample


@with_diffprivlib
def test_diffprivlib_at_thirty_times_the_claim_is_refuted():
    assert judged(command("gaussian-nb", 60.0), 2.0, 0.0).refuted
