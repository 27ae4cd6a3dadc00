"""The attacks of Huang et al. 2024 against their definitions, and the set that names them in a config."""

import numpy as np
import pytest
from scipy import stats

from mia_audit.attacks import attacks
from mia_audit.attacks.catalogue import Attacks, plan
from mia_audit.attacks.design import Pairs
from mia_audit.signals.name import Reading, read_signal

SIGNALS = [read_signal(name) for name in ("loss", "confidence", "ixg_variance", "ixg_l1", "ixg_l2", "ixg_linf")]


def draw(records=400, models=6):
    rng = np.random.default_rng(0)
    member = rng.random((10 * records, models)) < 0.5
    member = member[np.abs(member.sum(axis=1) - models / 2) < models / 2 - 1][:records]  # two models on each side
    return rng.normal(size=(records, 1)) * 5 + 100 + rng.normal(size=member.shape) - member, member


def score(name, signal, member, **more):
    likelihood = (attacks[name].likelihoods or ("none",))[0]
    return attacks[name].score([Reading(read_signal("ixg_l1"), [signal])], member, likelihood, **more)


def sides(signal, member, target):
    others = np.arange(signal.shape[1]) != target
    return [[row[others & (here == side)] for row, here in zip(signal, member, strict=True)] for side in (True, False)]


def test_the_authors_score_has_one_standard_deviation_for_all_means():
    signal, member = draw()
    scores = score("authors-lrt", signal, member)
    for target in range(signal.shape[1]):
        inside, outside = (np.array([x.mean() for x in side]) for side in sides(signal, member, target))
        sd = np.concatenate([inside, outside]).std()
        x = signal[:, target]
        np.testing.assert_allclose(scores[:, target], ((x - outside) ** 2 - (x - inside) ** 2) / (2 * sd**2), rtol=1e-9)


def test_algorithm_1_has_the_records_own_gaussians_of_the_signal_as_it_is():
    signal, member = draw(15, 8)
    scores = score("paper-lrt", signal, member)
    for target in range(signal.shape[1]):
        for row, (inside, outside) in enumerate(zip(*sides(signal, member, target), strict=True)):
            if min(len(inside), len(outside)) < 2:
                assert np.isnan(scores[row, target])
                continue
            densities = [stats.norm(x.mean(), x.std()).logpdf(signal[row, target]) for x in (inside, outside)]
            assert scores[row, target] == pytest.approx(densities[0] - densities[1], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", ["authors-lrt", "paper-lrt"])
def test_pairs_are_scored_as_without_the_second_model(name):
    signal, member = draw(80, 7)
    pairs = Pairs.among([0, 2, 5])
    found = score(name, signal, member, pairs=pairs)
    for column, (target, left) in enumerate(zip(pairs.target, pairs.left, strict=True)):
        kept = np.delete(np.arange(7), left)
        alone = score(name, signal[:, kept].copy(), member[:, kept].copy())
        np.testing.assert_allclose(found[:, column], alone[:, np.searchsorted(kept, target)], rtol=1e-6, atol=1e-9)


def test_the_authors_score_is_unknown_without_a_model_on_either_side():
    signal, member = draw()
    member[3] = False
    scores = score("authors-lrt", signal, member)
    assert np.isnan(scores[3]).all() and not np.isnan(scores[:3]).any()


def test_the_set_adds_what_the_paper_compares_to_the_methods():
    section = Attacks(set="as-published")
    assert set(section.methods) == {*Attacks().methods, "authors-lrt", "paper-lrt", "loss-lira-raw", "joint-lrt"}
    assert Attacks(**section.model_dump()) == section
    assert Attacks(set="as-published", methods=("rmia", "authors-lrt")).methods[:2] == ("rmia", "authors-lrt")
    runs = [run for run in plan(section.methods, SIGNALS, ["blend"]) if not run.null_control]
    read = {name: [run.signal for run in runs if run.attack == name] for name in ("authors-lrt", "paper-lrt")}
    summaries = ["ixg_variance", "ixg_l1", "ixg_l2"]
    assert read == {"authors-lrt": ["loss", *summaries], "paper-lrt": summaries}
    assert {run.likelihood for run in runs if run.attack == "paper-lrt"} == {"per-record"}
