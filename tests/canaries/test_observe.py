"""The observer of a training: canaries that are trained on move the parameters along their gradients, the others do not."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import mia_audit
from mia_audit.canaries.draw import DrawnCanaries, make, read_asked, read_coins, scored
from mia_audit.canaries.observe import Observer
from mia_audit.pools.store import read_records


def inputs(records: np.ndarray) -> torch.Tensor:
    return torch.as_tensor(np.asarray(records, dtype=np.float32)) / 255


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Canaries in a table with more columns than rows, whose gradients hardly share a direction."""
    random, out = np.random.default_rng(0), tmp_path_factory.mktemp("wide") / "table"
    metadata = {"kind": "table", "shape": [200], "classes": ["a", "b"], "features": [str(k) for k in range(200)]}
    records = random.normal(size=(120, 200)).astype(np.float32)
    make(records, random.integers(0, 2, 120), metadata, ["noise"], 60, out, seed=1)
    return out


def test_one_step_along_a_gradient_is_its_length() -> None:
    linear = nn.Linear(3, 2)
    records, labels = torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])
    observer = Observer(linear, cross_entropy, records, labels)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
    observer.attach(optimizer)
    cross_entropy(linear(records[2:3]), labels[2:3]).backward()
    length = torch.cat([p.grad.flatten() for p in linear.parameters()]).norm()  # type: ignore[union-attr]
    optimizer.step()
    assert observer.steps == 1
    assert observer.scores()[2] == pytest.approx(0.1 * float(length), rel=1e-4)
    assert observer.scores()[2] == max(abs(observer.scores()))


@pytest.mark.parametrize("every_step", [True, False])
def test_three_lines_around_a_training_tell_members(wide: Path, tmp_path: Path, every_step: bool) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(200, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 2))
    trained = read_records(wide / "train")
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)

    observer = mia_audit.observe_canaries(wide, network, cross_entropy, every_step=every_step)
    observer.attach(optimizer)
    records, labels = torch.as_tensor(np.array(trained.data)), torch.as_tensor(trained.labels.astype(np.int64))
    for start in range(0, 5 * len(labels), 20):
        rows = torch.arange(start, start + 20) % len(labels)
        optimizer.zero_grad()
        cross_entropy(network(records[rows]), labels[rows]).backward()
        optimizer.step()
    observer.write(tmp_path / "scores.csv")

    assert network.training
    assert observer.steps == len(range(0, 5 * len(labels), 20))
    table = scored(pl.read_csv(tmp_path / "scores.csv")["score"].to_numpy(), read_coins(wide))
    inside, outside = (table.filter(member=one)["score"].to_numpy() for one in (1, 0))
    assert (inside[:, None] > outside[None]).mean() > 0.8


def test_hooks_of_the_model_are_left_as_they_were(made: tuple[Path, DrawnCanaries]) -> None:
    network, asked = model(), read_asked(made[0])
    calls: list[int] = []
    network[1].register_forward_hook(lambda *_: calls.append(1))  # type: ignore[index, operator]
    observer = Observer(network, cross_entropy, inputs(asked.data), torch.as_tensor(asked.labels.astype(np.int64)))
    with torch.no_grad():
        next(network.parameters()).add_(0.1)
    observer.step()
    assert calls == []
    network(inputs(asked.data[:1]))
    assert calls == [1]
    assert np.isfinite(observer.scores()).all()
