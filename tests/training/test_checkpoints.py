"""A training that is killed goes on from its last epoch and ends in the same bits."""

import math
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from mia_audit.models.architecture import build
from mia_audit.privacy.catalogue import Job, Mechanism, mechanisms
from mia_audit.training import task
from mia_audit.training.checkpoints import Checkpoint
from mia_audit.training.loop import fit
from mia_audit.training.report import Epoch
from mia_audit.training.section import Training
from mia_audit.training.task import identity

from ..killing import Killed

Table = tuple[Tensor, Tensor]


def trained(
    table: Table,
    mechanism: str,
    optimizer: str,
    checkpoint: Checkpoint | None = None,
    killed_at: int | None = None,
    epochs: int = 5,
) -> tuple[nn.Module, list[Epoch]]:
    """Train an MLP with dropout for epochs of 3 steps, or until a step at which it is killed."""
    model = build("mlp", {"width": 8, "dropout": 0.3}, (5,), 3, 0)
    training = Training(epochs=epochs, batch=16, optimizer=optimizer, learning_rate=0.05)  # type: ignore[arg-type]
    job = Job(
        model=model,
        records=40,
        epsilon=math.inf if mechanism == "none" else 8,
        training=training,
        micro_batch=64,
        key=b"test",
    )
    protection = mechanisms[mechanism].protect(
        Mechanism(mechanism=mechanism, **({} if mechanism == "none" else {"accountant": "rdp"}), delta=1e-3), job
    )
    steps = 0

    def progress(records: int, epoch: int) -> None:
        nonlocal steps
        steps += 1
        if steps == killed_at:
            raise Killed

    return model, fit(job, protection, *table, progress=progress, checkpoint=checkpoint)


def weights(model: nn.Module) -> Tensor:
    return torch.cat([value.flatten() for value in model.state_dict().values()])


@pytest.mark.parametrize("mechanism", ["none", "dp-sgd"])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_whatever_step_it_is_killed_at_the_bits_are_the_same(
    table: Table, tmp_path: Path, mechanism: str, optimizer: str
) -> None:
    model, epochs = trained(table, mechanism, optimizer, epochs=3)
    total = epochs[-1].steps
    for killed_at in range(1, total + 1):
        folder = tmp_path / str(killed_at)
        with pytest.raises(Killed):
            trained(table, mechanism, optimizer, Checkpoint(folder, "same"), killed_at, epochs=3)
        again, resumed = trained(table, mechanism, optimizer, Checkpoint(folder, "same"), epochs=3)
        assert torch.equal(weights(again), weights(model))
        assert resumed == epochs


def test_it_goes_on_where_it_was_and_can_be_killed_again(table: Table, tmp_path: Path) -> None:
    model, _ = trained(table, "dp-sgd", "adamw")
    with pytest.raises(Killed):
        trained(table, "dp-sgd", "adamw", Checkpoint(tmp_path, "same"), killed_at=6)
    with pytest.raises(Killed):  # the sixth step was lost with its epoch: this run takes steps 5 … 9, then dies
        trained(table, "dp-sgd", "adamw", Checkpoint(tmp_path, "same"), killed_at=5)
    state = Checkpoint(tmp_path, "same").resume()
    per_epoch = int(state["rest.epochs.steps"][0])
    done = len(state["rest.epochs.steps"])
    assert (6 - 1) // per_epoch < done
    epochs: list[int] = []
    again = build("mlp", {"width": 8, "dropout": 0.3}, (5,), 3, 0)
    training = Training(epochs=5, batch=16, optimizer="adamw", learning_rate=0.05)
    job = Job(model=again, records=40, epsilon=8, training=training, micro_batch=64, key=b"test")
    protection = mechanisms["dp-sgd"].protect(Mechanism(mechanism="dp-sgd", delta=1e-3, accountant="rdp"), job)
    fit(job, protection, *table, lambda records, epoch: epochs.append(epoch), Checkpoint(tmp_path, "same"))
    assert set(epochs) == set(range(done + 1, 6))
    assert torch.equal(weights(again), weights(model))


def test_another_identity_never_resumes(table: Table, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        trained(table, "none", "sgd", Checkpoint(tmp_path, "this"), killed_at=9)
    assert Checkpoint(tmp_path, "this").resume()
    assert Checkpoint(tmp_path, "that").resume() == {}
    assert identity(seed=0, shadow=1) != identity(seed=0, shadow=2)


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_checkpoint_is_not_gone_on_from(
    table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    with pytest.raises(Killed):
        trained(table, "none", "adamw", Checkpoint(tmp_path, "same"), killed_at=9)
    path = tmp_path / "epoch.safetensors"
    kept = bytearray(path.read_bytes())
    kept[-5] ^= 1
    path.write_bytes(kept[:-20] if damage == "truncated" else kept)
    model, _ = trained(table, "none", "adamw", Checkpoint(tmp_path, "same"))
    assert f"{path}: damaged checkpoint ignored" in capsys.readouterr().err
    assert torch.equal(weights(model), weights(trained(table, "none", "adamw")[0]))


def test_epochs_that_follow_at_once_are_not_kept(table: Table, tmp_path: Path) -> None:
    trained(table, "none", "sgd", Checkpoint(tmp_path, "same", seconds=1e6))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["mkdtemp", "save_file"])
def test_another_worker_that_removes_the_folder_at_any_moment_does_no_harm(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It has trained the same model meanwhile, and has ended."""
    checkpoint = Checkpoint(tmp_path / "kept", "same")
    calls = []
    for module in (tempfile, shutil, task, safetensors.torch):
        if original := getattr(module, name, None):

            def call(*arguments: Any, original: Callable[..., Any] = original) -> Any:
                calls.append(True)
                shutil.rmtree(tmp_path / "kept", ignore_errors=True)
                return original(*arguments)

            monkeypatch.setattr(module, name, call)
    model, _ = trained(table, "none", "sgd", checkpoint)
    checkpoint.remove()
    monkeypatch.undo()
    assert calls
    assert torch.equal(weights(model), weights(trained(table, "none", "sgd")[0]))
