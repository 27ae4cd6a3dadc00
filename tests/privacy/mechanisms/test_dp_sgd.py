"""What dp-sgd hands to the optimizer, against Opacus's own optimizer and against its definition."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.models.architecture import build
from mia_audit.privacy.accounting import epsilon_spent
from mia_audit.privacy.catalogue import Job, Mechanism, Protection, mechanisms
from mia_audit.privacy.noise import flat
from mia_audit.privacy.per_record import ClippedSum, per_record_gradients
from mia_audit.training.section import Training


def protect(
    model: nn.Module,
    records: int = 40,
    epsilon: float = 8.0,
    batch: int = 10,
    epochs: int = 3,
    micro_batch: int = 8,
    key: bytes = b"test",
    **section: object,
) -> Protection:
    job = Job(
        model=model,
        records=records,
        epsilon=epsilon,
        training=Training(batch=batch, epochs=epochs),
        micro_batch=micro_batch,
        key=key,
    )
    return mechanisms["dp-sgd"].protect(Mechanism(mechanism="dp-sgd", **section), job)  # type: ignore[arg-type]


def flat_gradient(model: nn.Module) -> Tensor:
    return torch.cat([value.grad.flatten() for value in model.parameters() if value.grad is not None])


def test_the_clipped_mean_is_that_of_opacus(mlp: nn.Module, table: tuple[Tensor, Tensor]) -> None:
    from opacus.optimizers import DPOptimizer

    inputs, labels = table
    clip_norm, expected_batch = 0.7, 10
    gradients, _ = per_record_gradients(mlp)(inputs, labels)
    parameters = dict(mlp.named_parameters())
    optimizer = DPOptimizer(
        torch.optim.SGD(mlp.parameters(), lr=1.0),
        noise_multiplier=0.0,
        max_grad_norm=clip_norm,
        expected_batch_size=expected_batch,
    )
    for name, value in gradients.items():
        parameters[name].grad_sample = value  # type: ignore[attr-defined]
    optimizer.pre_step()
    theirs = flat_gradient(mlp)

    ours, _ = ClippedSum(mlp, flat(clip_norm), micro_batch=16)(inputs, labels)
    assert torch.allclose(ours.float() / expected_batch, theirs, atol=1e-6)


def test_a_stated_noise_multiplier_is_used_and_its_epsilon_computed(mlp: nn.Module) -> None:
    protection = protect(mlp, epsilon=math.inf, noise_multiplier=1.7)
    assert protection.terms.noise_multiplier == 1.7
    assert protection.spent(12)[0] == epsilon_spent(1.7, 0.25, 12, 1e-5, "pld")


@pytest.mark.parametrize(("clipping", "sensitivity"), [("automatic", 1.0), ("flat", 0.5)])
def test_an_empty_batch_is_noise_of_the_stated_deviation(clipping: str, sensitivity: float) -> None:
    model = build("mlp", {"width": 64}, (5,), 3, 0)
    protection = protect(model, clipping=clipping, clip_norm=0.5)
    protection.backward(torch.zeros(0, 5), torch.zeros(0, dtype=torch.long))
    expected = stats.norm(scale=protection.terms.noise_multiplier * sensitivity / 10)
    assert stats.kstest(flat_gradient(model).numpy(), expected.cdf).pvalue > 0.01


def test_noise_is_fresh_in_every_step_and_keyed(mlp: nn.Module) -> None:
    empty = torch.zeros(0, 5), torch.zeros(0, dtype=torch.long)
    draws = []
    for key in (b"a", b"a", b"b"):
        protection = protect(mlp, key=key)
        for _ in range(2):
            protection.backward(*empty)
            draws.append(flat_gradient(mlp).clone())
    assert torch.equal(draws[0], draws[2]) and torch.equal(draws[1], draws[3])
    assert not torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[4])


def test_every_record_is_drawn_at_the_stated_rate(mlp: nn.Module) -> None:
    protection = protect(mlp, records=200, batch=3, epochs=1)
    batches = [batch for _ in range(60) for batch in protection.batches()]
    assert len(batches) == 60 * protection.steps_per_epoch == 60 * 67
    drawn = torch.stack([torch.bincount(batch, minlength=200) for batch in batches])
    assert drawn.max() == 1
    assert protection.terms.sampling_rate == 3 / 200
    sizes = drawn.sum(dim=1)
    assert sizes.min() == 0  # empty batches are steps too
    assert stats.binomtest(int(drawn.sum()), drawn.numel(), 3 / 200).pvalue > 0.01
    assert sizes.double().var().item() == pytest.approx(200 * 3 / 200 * (1 - 3 / 200), rel=0.1)
    assert stats.chisquare(drawn.sum(dim=0).numpy()).pvalue > 0.01


def test_the_rate_is_that_of_the_shadows_own_training_set(mlp: nn.Module) -> None:
    protection = protect(mlp, records=37, batch=10, epochs=5)
    assert protection.steps_per_epoch == 4
    own, rdp = protection.spent(20)
    assert own == epsilon_spent(protection.terms.noise_multiplier, 10 / 37, 20, 1e-5, "pld")
    assert rdp == epsilon_spent(protection.terms.noise_multiplier, 10 / 37, 20, 1e-5, "rdp")
    assert 7.98 <= own <= 8 < rdp
    assert protection.spent(0) == (0.0, 0.0) and protection.spent(10)[0] < own


def test_rdp_calibration(mlp: nn.Module) -> None:
    protection = protect(mlp, accountant="rdp")
    own, rdp = protection.spent(12)
    assert own == rdp <= 8 and protection.terms.accountant == "rdp"


@pytest.mark.parametrize(
    ("arguments", "mend"),
    [
        ({"epsilon": math.inf}, "finite budget"),
        ({"epsilon": 1e-12, "delta": 1e-12, "epochs": 3000}, "cannot be reached"),
    ],
)
def test_impossible_budgets_are_one_line(mlp: nn.Module, arguments: dict[str, float], mend: str) -> None:
    with pytest.raises(UserError, match=mend) as raised:
        protect(mlp, **arguments)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)


def test_batch_norm_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    with pytest.raises(UserError, match=r"layer '1' .* is a BatchNorm"):
        protect(model)
