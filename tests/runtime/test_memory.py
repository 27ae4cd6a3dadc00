"""Running out of memory, with models that refuse more records than a limit."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.learners.torch_module import TorchModel
from mia_audit.models.architecture import build
from mia_audit.privacy.catalogue import Job, Mechanism, mechanisms
from mia_audit.privacy.noise import automatic
from mia_audit.privacy.per_record import ClippedSum
from mia_audit.runtime.device import SHARE, AdaptiveBatchSize, fitting
from mia_audit.signals.compute import SignalsTask, model_signals
from mia_audit.training.loop import fit, hits_and_losses
from mia_audit.training.section import Training
from mia_audit.training.task import Records


class Small(nn.Module):
    """A model for which memory runs out beyond `room` records."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.inner = build("mlp", {"width": 8}, (5,), 3, 0)

    def forward(self, inputs: Tensor) -> Tensor:
        if len(inputs) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        logits: Tensor = self.inner(inputs)
        return logits


@pytest.fixture
def table() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(40, 5, generator=generator), torch.randint(3, (40,), generator=generator)


def test_training_continues_with_smaller_batches(
    table: tuple[Tensor, Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    trained = []
    for room in (1000, 5):
        model = Small(room)
        job = Job(
            model=model,
            records=40,
            epsilon=math.inf,
            training=Training(epochs=2, batch=16, optimizer="sgd", learning_rate=0.1),
            micro_batch=16,
            key=b"test",
        )
        fit(job, mechanisms["none"].protect(Mechanism(mechanism="none"), job), *table)
        trained.append(torch.cat([value.detach().flatten() for value in model.parameters()]))
        assert hits_and_losses(model, *table, 16)[0].shape == (40,)
    assert torch.allclose(*trained, atol=1e-6) and not torch.equal(trained[0], torch.zeros_like(trained[0]))
    assert capsys.readouterr().err.splitlines()[:2] == [
        "out of memory: continuing with 8 records at once",
        "out of memory: continuing with 4 records at once",
    ]


class SmallForGradients(Small):
    """A model for which memory runs out only where gradients are needed."""

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = super().forward(inputs) if inputs.requires_grad else self.inner(inputs)
        return logits


@pytest.mark.parametrize(
    ("family", "explainer"), [("gradient", "ixg"), ("captum-InputXGradient", "captum:InputXGradient")]
)
@pytest.mark.parametrize("kind", [Small, SmallForGradients])
def test_signals_continue_with_smaller_batches(
    table: tuple[Tensor, Tensor], kind: type[Small], family: str, explainer: str
) -> None:
    task = SignalsTask(family, {"explainers": [explainer], "explain": ["logit"], "explained_class": "predicted"}, 0)
    records = Records(table[0].numpy(), table[1].numpy().astype(np.int32), {}, np.arange(40))
    whole, parts = (model_signals(TorchModel(kind(room), batch=32), records, task) for room in (1000, 7))
    assert list(whole) == list(parts)
    for name in whole:
        assert len(parts[name]) == 40
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-5)


def test_a_private_step_restarts_its_sum_of_clipped_gradients(table: tuple[Tensor, Tensor]) -> None:
    torch.manual_seed(0)
    mlp = build("mlp", {"width": 8}, (5,), 3, 0)
    expected, _ = ClippedSum(mlp, automatic(1.0), micro_batch=40)(*table)
    clipped = ClippedSum(mlp, automatic(1.0), micro_batch=40)
    clipped.decide((5,))
    gradients, failed = clipped._gradients, False

    def second_piece_does_not_fit(inputs: Tensor, labels: Tensor) -> object:
        nonlocal failed
        second = torch.equal(inputs[0], table[0][20]) and not failed
        if second or len(labels) > 20:
            failed |= second
            raise torch.OutOfMemoryError("CUDA out of memory")
        return gradients(inputs, labels)

    clipped._gradients = second_piece_does_not_fit  # type: ignore[assignment]
    total, _ = clipped(*table)
    assert torch.allclose(total, expected, atol=1e-5) and failed and clipped.at_once.size == 10


def test_a_single_record_that_does_not_fit_is_a_user_error(table: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(UserError, match="one record does not fit in memory"):
        hits_and_losses(Small(0), *table, 4)


def test_other_errors_are_raised() -> None:
    def broken(size: int) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1"):
        AdaptiveBatchSize(8)(broken)


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
    ],
)
def test_every_message_of_exhausted_memory_is_recognised(message: str) -> None:
    sizes: list[int] = []

    def full(size: int) -> int:
        sizes.append(size)
        if size > 2:
            raise RuntimeError(message)
        return size

    assert AdaptiveBatchSize(8)(full) == 2 and sizes == [8, 4, 2]


@given(most=st.integers(1, 5000), record=st.integers(1, 10**9), free=st.integers(0, 10**12))
def test_the_batch_size_is_the_largest_that_fits(most: int, record: int, free: int) -> None:
    size = fitting(most, record, free)
    assert 1 <= size <= most
    assert size == 1 or size * record <= SHARE * free
    assert size == most or 2 * size > most or 2 * size * record > SHARE * free
