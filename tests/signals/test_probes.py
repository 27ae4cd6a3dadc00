"""Signals from querying the model again along its explanation: against loops in float64 and captum's metrics."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from captum.metrics import infidelity, sensitivity_max
from torch import nn

from mia_audit.attacks.catalogue import plan
from mia_audit.errors import UserError
from mia_audit.explain.catalogue import Explainers
from mia_audit.explanation_metrics.catalogue import DRAWS, ExplanationMetrics
from mia_audit.learners.torch_module import TorchModel
from mia_audit.seeds import generator
from mia_audit.signals.compute import SignalsTask, model_signals, signals
from mia_audit.signals.families import columns, families
from mia_audit.signals.name import PROBED, PROBES, SHARES, read_signal
from mia_audit.training.task import Records

WIDTH, SEED = 12, 4
ALL = ("deletion", "insertion", "infidelity", "sensitivity")
METRICS = ExplanationMetrics(curve_steps=4, perturbations=5, removed_share=0.3, radius=0.1)


@pytest.fixture
def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(WIDTH, 9), nn.Tanh(), nn.Linear(9, 3)).requires_grad_(False)


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((7, WIDTH)).astype(np.float32)


def options_of(metrics: ExplanationMetrics = METRICS, **changes: Any) -> dict[str, Any]:
    section = Explainers(**{"methods": ("ixg",), "probes": ALL, "vectors": 0} | changes)
    return families(section, "mlp", metrics=metrics)["gradient"]


def computed(net: nn.Module, rows: np.ndarray, options: dict[str, Any], batch: int = 3) -> dict[str, np.ndarray]:
    records = Records(rows, np.zeros(len(rows), np.int32), {}, np.arange(10, 10 + len(rows)))
    return model_signals(TorchModel(net, batch), records, SignalsTask("gradient", options, SEED, batch, 2))


def confidence(net: nn.Module, row: np.ndarray, label: int) -> float:
    """By a loop: log p − log(1 − p)."""
    logits = net.double()(torch.from_numpy(row.astype(np.float64))).numpy()
    return float(logits[label] - np.log(sum(np.exp(one) for k, one in enumerate(logits) if k != label)))


def test_curves_are_those_of_the_confidence_by_brute_force(net: nn.Module, rows: np.ndarray) -> None:
    found = computed(net, rows, options_of())
    exact = net.double()
    for i, row in enumerate(rows.astype(np.float64)):
        point = torch.from_numpy(row).requires_grad_()
        logits = exact(point)
        label = int(logits.argmax())
        (gradient,) = torch.autograd.grad(logits[label], point)
        order = np.argsort(-(row * gradient.numpy()), kind="stable")
        for measure in ("deletion", "insertion"):
            heights = []
            for step in range(5):
                chosen = np.isin(np.arange(WIDTH), order[: round(step / 4 * WIDTH)])
                heights.append(confidence(exact, np.where(chosen == (measure == "insertion"), row, 0), label))
            area = sum((a + b) / 2 for a, b in pairwise(heights)) / 4
            assert found[f"ixg_{measure}"][i] == pytest.approx(area, rel=1e-4, abs=1e-5)
            for share in SHARES:
                below, part = divmod(share / 100 * 4, 1)
                at = heights[int(below)] * (1 - part) + heights[int(below) + 1] * part
                assert found[f"ixg_{measure}-{share}"][i] == pytest.approx(at, rel=1e-4, abs=1e-5)


def test_infidelity_and_sensitivity_are_captums(net: nn.Module, rows: np.ndarray) -> None:
    found = computed(net, rows, options_of())

    def drawn(purpose: str, record: int) -> torch.Tensor:
        shape = (METRICS.perturbations, WIDTH)
        return torch.from_numpy(generator(SEED, DRAWS, purpose, 10 + record).random(shape, dtype=np.float32))

    def by_captum(i: int) -> tuple[float, float]:
        row, times = torch.from_numpy(rows[i : i + 1]), METRICS.perturbations
        label = int(net(row).argmax())

        def explain(points: torch.Tensor | tuple[torch.Tensor]) -> tuple[torch.Tensor]:
            points = (points[0] if isinstance(points, tuple) else points).detach().requires_grad_()
            with torch.enable_grad():
                (gradient,) = torch.autograd.grad(net(points)[:, label].sum(), points)
            return (points.detach() * gradient,)

        def removal(points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            removed = drawn("removal", i) < METRICS.removed_share
            return removed.to(points), points - removed * points

        def shifted(points: torch.Tensor) -> torch.Tensor:
            return points + (2 * drawn("shift", i) - 1) * METRICS.radius

        def logit(points: torch.Tensor) -> torch.Tensor:
            return net(points)[:, label]

        unfaithful = infidelity(logit, removal, row, explain(row)[0], n_perturb_samples=times)
        return float(unfaithful), float(sensitivity_max(explain, row, shifted, n_perturb_samples=times))

    expected = np.array([by_captum(i) for i in range(len(rows))])
    np.testing.assert_allclose(found["ixg_infidelity"], expected[:, 0], rtol=1e-3, atol=1e-7)
    np.testing.assert_allclose(found["ixg_sensitivity"], expected[:, 1], rtol=1e-3)


def test_they_are_columns_of_their_own_that_change_no_other(net: nn.Module, rows: np.ndarray) -> None:
    plain, options = options_of(probes=()), options_of(release=("full", "sign"))
    assert not {"probes", "probed", "measuring"} & set(plain)
    found, without = computed(net, rows, options), computed(net, rows, plain)
    assert list(found) == columns("gradient", options)
    added = {f"{name}_{probe}" for name in ("ixg", "ixg~sign") for probe in PROBES}
    assert added <= set(found) and not any(name.startswith("saliency_d") for name in found), "saliency is not named"
    assert all(found[name].dtype == np.float32 and np.isfinite(found[name]).all() for name in added)
    for name, values in without.items():
        np.testing.assert_array_equal(found[name], values)
    for batch in (1, 7):
        for name, values in computed(net, rows, options, batch).items():
            np.testing.assert_allclose(values, found[name], rtol=1e-4, atol=1e-5, err_msg=name)
    frame = signals(net.float(), rows, np.zeros(7, int), probes=("deletion",))
    assert [name for name in frame.columns if name in added] == [f"ixg_{name}" for name in PROBED["deletion"]]


def test_keys_of_a_measure_matter_to_its_signals_alone() -> None:
    coarser = METRICS.model_copy(update={"curve_steps": 3})
    assert options_of() != options_of(coarser)
    assert options_of(probes=("infidelity",)) == options_of(coarser, probes=("infidelity",))
    private = families(
        Explainers(methods=("local_linear",), explain=("probability",), probes=ALL), "mlp", metrics=METRICS
    )
    assert all("probes" not in options for options in private.values()), "fitted explanations are not queried again"
    assert "probes" not in families(Explainers(methods=("ixg",), probes=ALL), "mlp", "script")["gradient"]


def test_lrt_reads_every_one_on_its_scale() -> None:
    every = [read_signal(name) for name in columns("gradient", options_of())]
    runs = plan(("lrt",), every, ("pooled",))
    assert {run.signal for run in runs} >= {f"ixg_{name}" for name in PROBES}
    assert not {run.signal for run in runs} & {"ixg_l1", "loss", "confidence"}
    for name in PROBES:
        signal = read_signal(f"ixg_{name}")
        curve = name.startswith(("deletion", "insertion"))
        assert (signal.scale, signal.members) == (("real", "high") if curve else ("positive", "low"))
        assert signal.channel == "explanations" and signal.explainer == "ixg" and signal.summary == name
    said = read_signal("ixg_probability_deletion-25").label.split(" of ")
    assert said == ["confidence after deletion", "25 %", "input × gradient, probability"]
    assert read_signal("deletion").scale == "positive", "a signal of somebody else"


def test_probes_without_a_model_to_query_are_refused() -> None:
    from mia_audit.config.load import check_audit

    base = {"audit": "a", "datasets": {"breast_cancer": {}}, "architectures": {"mlp": {}}, "mechanisms": {"none": {}}}
    forest = {"architectures": {"forest": {"model": "sklearn.ensemble:RandomForestClassifier"}}}
    for change in (
        forest | {"explainers": {"probes": ["deletion"]}},
        {"explainers": {"methods": [], "probes": ["deletion"]}},
    ):
        with pytest.raises(UserError, match=r"explainers.probes: only built-in models"):
            check_audit(base | change, "a.yaml")
    with pytest.raises(UserError, match=r"probes.*'deletion', 'insertion', 'infidelity' or 'sensitivity'"):
        check_audit(base | {"explainers": {"probes": ["ssim"]}}, "a.yaml")
