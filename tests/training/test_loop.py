"""The loop against hand-written training."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mia_audit.errors import Diverged, UserError
from mia_audit.models.architecture import build
from mia_audit.privacy.catalogue import Job, Mechanism, mechanisms
from mia_audit.training.loop import fit, hits_and_losses
from mia_audit.training.section import Training


def job_for(model: nn.Module, training: Training, micro_batch: int = 64) -> Job:
    return Job(model=model, records=40, epsilon=math.inf, training=training, micro_batch=micro_batch, key=b"test")


FACTORS = {
    "constant": lambda step: 1.0,
    "cosine": lambda step: 0.5 * (1 + math.cos(math.pi * step / 9)),
    "step": lambda step: [1.0, 1.0, 0.8][step // 3],
    "step-reset": lambda step: [1.0, 1.0, 0.8][step // 3],
}


@pytest.mark.parametrize(
    ("schedule", "own"),
    [
        ("constant", {"momentum": 0.5}),
        ("cosine", {"momentum": 0.0}),
        ("step", {"decay_epochs": 2, "decay": 0.8}),
        ("step-reset", {"decay_epochs": 2, "decay": 0.8}),
    ],
)
def test_plain_training_is_plain_training(
    mlp: nn.Module, table: tuple[Tensor, Tensor], schedule: str, own: dict[str, float]
) -> None:
    inputs, labels = table
    given = {"epochs": 3, "batch": 16, "optimizer": "sgd", "learning_rate": 0.1, "weight_decay": 0.01}
    training = Training.model_validate({**given, "schedule": schedule, **own})
    job = job_for(mlp, training)
    protection = mechanisms["none"].protect(Mechanism(mechanism="none"), job)
    reference = build("mlp", {"width": 8}, (5,), 3, 0)
    momentum = own.get("momentum", 0.9)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=momentum, weight_decay=0.01)
    same = mechanisms["none"].protect(Mechanism(mechanism="none"), job)  # the same key draws the same batches
    losses = []
    for step, batch in enumerate(batch for _ in range(3) for batch in same.batches()):
        optimizer.param_groups[0]["lr"] = 0.1 * FACTORS[schedule](step)
        if schedule == "step-reset" and step == 6:  # the first of the third epoch
            optimizer.state.clear()
        optimizer.zero_grad()
        loss = F.cross_entropy(reference(inputs[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.item() * len(batch))
    epochs = fit(job, protection, inputs, labels)
    assert [epoch.steps for epoch in epochs] == [3, 6, 9]
    assert epochs[2].loss == pytest.approx(sum(losses[6:]) / 40, rel=1e-5)
    for ours, theirs in zip(mlp.parameters(), reference.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("normalised", [False, True])
def test_micro_batches_of_plain_training_change_nothing(table: tuple[Tensor, Tensor], normalised: bool) -> None:
    models = []
    for micro_batch in (64, 5):
        model: nn.Module = build("mlp", {"width": 8}, (5,), 3, 0)
        models.append(model := nn.Sequential(nn.BatchNorm1d(5), model) if normalised else model)
        job = job_for(model, Training(epochs=2, batch=16, optimizer="sgd", learning_rate=0.1), micro_batch)
        fit(job, mechanisms["none"].protect(Mechanism(mechanism="none"), job), *table)
    for one, other in zip(*(model.state_dict().values() for model in models), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_a_batch_that_batch_norm_needs_whole_is_not_divided(table: tuple[Tensor, Tensor]) -> None:
    model = nn.Sequential(nn.BatchNorm1d(5), Full())
    job = job_for(model, Training(batch=16))
    protection = mechanisms["none"].protect(Mechanism(mechanism="none"), job)
    with pytest.raises(UserError, match="16 records do not fit in memory, and BatchNorm needs the whole batch"):
        protection.backward(table[0][:16], table[1][:16])


class Full(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_plain_batches_cut_the_training_set_once_an_epoch(mlp: nn.Module) -> None:
    protection = mechanisms["none"].protect(Mechanism(mechanism="none"), job_for(mlp, Training(batch=16)))
    first, second = (torch.cat(list(protection.batches())) for _ in range(2))
    assert first.sort().values.tolist() == second.sort().values.tolist() == list(range(40))
    assert not torch.equal(first, second)
    assert protection.spent(9) == (math.inf, math.inf)


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
def test_every_optimizer_learns(mlp: nn.Module, table: tuple[Tensor, Tensor], optimizer: str) -> None:
    inputs, labels = table
    job = job_for(mlp, Training(epochs=90, batch=16, optimizer=optimizer, learning_rate=0.02))  # type: ignore[arg-type]
    epochs = fit(job, mechanisms["none"].protect(Mechanism(mechanism="none"), job), inputs, labels)
    assert epochs[-1].loss < 0.5 * epochs[0].loss
    assert hits_and_losses(mlp, inputs, labels, 7)[0].float().mean() > 0.8


def test_global_random_state_is_left_alone(table: tuple[Tensor, Tensor]) -> None:
    model = build("mlp", {"width": 8, "dropout": 0.5}, (5,), 3, 0)
    before = torch.random.get_rng_state()
    job = job_for(model, Training(epochs=1))
    fit(job, mechanisms["none"].protect(Mechanism(mechanism="none"), job), *table)
    assert torch.equal(before, torch.random.get_rng_state())


def test_progress_is_told_of_every_record(mlp: nn.Module, table: tuple[Tensor, Tensor]) -> None:
    told: list[tuple[int, int]] = []
    job = job_for(mlp, Training(epochs=2, batch=16))
    fit(
        job,
        mechanisms["none"].protect(Mechanism(mechanism="none"), job),
        *table,
        progress=lambda records, epoch: told.append((records, epoch)),
    )
    assert told == [(16, 1), (16, 1), (8, 1), (16, 2), (16, 2), (8, 2)]


@pytest.mark.parametrize("value", [1e30, math.inf, math.nan])
def test_no_value_of_a_record_ends_a_private_training(
    mlp: nn.Module, table: tuple[Tensor, Tensor], value: float
) -> None:
    """A loss that is not finite stopped it, though the record's gradient was left out."""
    inputs, labels = table[0].clone(), table[1]
    inputs[7] = value
    job = Job(model=mlp, records=40, epsilon=8.0, training=Training(epochs=2, batch=40), micro_batch=64, key=b"test")
    epochs = fit(
        job, mechanisms["dp-sgd"].protect(Mechanism(mechanism="dp-sgd", accountant="rdp"), job), inputs, labels
    )
    assert len(epochs) == 2 and all(math.isfinite(epoch.loss) for epoch in epochs)
    assert all(bool(parameter.isfinite().all()) for parameter in mlp.parameters())


@pytest.mark.parametrize(
    ("rate", "epochs", "message"), [(1e30, 3, "its mean loss is"), (1e40, 1, "its last step gave weights that")]
)
def test_a_training_that_diverges_is_stopped_in_the_epoch_that_shows_it(
    mlp: nn.Module, table: tuple[Tensor, Tensor], rate: float, epochs: int, message: str
) -> None:
    training = Training(epochs=epochs, batch=40, optimizer="sgd", learning_rate=rate, schedule="constant")
    job = job_for(mlp, training)
    with pytest.raises(Diverged, match=f"training diverged in epoch [12]: {message}"):
        fit(job, mechanisms["none"].protect(Mechanism(mechanism="none"), job), *table)
