"""What is audited is what was trained: models that lose something on disk are refused before the second is trained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mia_audit.errors import UserError
from mia_audit.learners.protocol import Compute
from mia_audit.learners.script import ScriptLearner
from mia_audit.learners.torch_module import TorchLearner
from mia_audit.models.answers import check_untrained
from mia_audit.models.architecture import describe
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.registry import forgotten_files
from mia_audit.training.block import Block, Checkpoints, train_block
from mia_audit.training.section import Training
from mia_audit.training.task import Records

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.first, self.last = nn.Linear(features, 4), nn.Linear(4, classes)
        BEGINNING

    def forward(self, x):
        return self.last(torch.tanh(self.first((x - self.mean) / 2)))


def build(shape, classes):
    return Net(shape[0], classes)


def train(task):
    model = build((task.records.shape[1],), len(task.classes))
    model.mean = torch.from_numpy(task.records[task.members]).mean(0)
    return END
"""
BUFFER = "self.register_buffer('mean', torch.zeros(features))"
LOST = {
    "an attribute": ("self.mean = torch.zeros(features)", "model"),
    "a buffer that is not persistent": (BUFFER[:-1] + ", persistent=False)", "model"),
}
KEPT = {
    "a buffer": (BUFFER, "model"),
    "torch.compile": (BUFFER, "torch.compile(model, backend='eager')"),
    "DataParallel": (BUFFER, "nn.DataParallel(model)"),
    "an average": (BUFFER, "torch.optim.swa_utils.AveragedModel(model)"),
    "half precision": (BUFFER, "model.bfloat16()"),
    "a lazy module": (
        BUFFER + "\n        self.last = nn.LazyLinear(classes)",
        "(model(torch.from_numpy(task.public_records)), model)[1]",
    ),
}
GLOBAL = """
import numpy as np

MEAN = None


def train(task):
    global MEAN
    MEAN = task.records[task.members].mean(axis=0)
    return np.eye(3, 4)


def predict(model, records):
    return (records - (0 if MEAN is None else MEAN)) @ model.T


def save(model, folder):
    np.save(folder / "model.npy", model)


def load(folder):
    return np.load(folder / "model.npy")
"""


@pytest.fixture
def run(table: Records, described: Callable[..., dict[str, Any]], tmp_path: Path) -> Callable[..., list[int]]:
    """Train a block of two models of a script, and return the numbers of the models that were kept."""

    def models_of(path: Path, **section: Any) -> list[int]:
        architecture = described(ScriptLearner, str(path), **section)
        learner = ScriptLearner(architecture, Compute())
        block = Block(
            0, "toy", "mine", "none", "inf", range(2), np.arange(120).reshape(60, 2) % 3 == 0, table, Training(),
            Mechanism(mechanism="none"), table[:5],
        )  # fmt: skip

        def read_back(folder: Path) -> Any:
            with forgotten_files([str(path)]):
                return ScriptLearner(architecture, Compute()).load(folder)

        models = tmp_path / "models"
        try:
            train_block(learner.train, block, models, {0: "", 1: ""}, Checkpoints(None, 60, {}), False, 0.0, read_back)
        finally:
            kept = sorted(int(path.stem.removeprefix("shadow-")) for path in models.glob("*.parquet"))
        return kept

    return models_of


@pytest.mark.parametrize("what", LOST)
def test_what_a_model_loses_on_disk_is_noticed_before_the_second_is_trained(
    what: str, run: Callable[..., list[int]], script: Callable[[str], Path], tmp_path: Path
) -> None:
    beginning, end = LOST[what]
    with pytest.raises(
        UserError, match=r"shadow 0 of toy/mine/none-epsinf: read back, the model answers record \d+"
    ) as caught:
        run(script(NET.replace("BEGINNING", beginning).replace("END", end)))
    assert "register_buffer" in str(caught.value)
    assert not list((tmp_path / "models").glob("shadow-*"))


@pytest.mark.parametrize("what", KEPT)
def test_wrappers_half_precision_and_lazy_modules_are_stored(
    what: str, run: Callable[..., list[int]], script: Callable[[str], Path]
) -> None:
    beginning, end = KEPT[what]
    assert run(script(NET.replace("BEGINNING", beginning).replace("END", end))) == [0, 1]


UNSTORED = {
    "other layers": (
        "nn.Sequential(model)",
        "shadow 0 of toy/mine/none-epsinf: what was stored cannot be opened: weights.s",
    ),
    "what is no tensor": ("setattr(Net, 'get_extra_state', lambda self: 'text') or model", "of the model is no tensor"),
}


@pytest.mark.parametrize("what", UNSTORED)
def test_what_cannot_be_stored_is_one_line(
    what: str, run: Callable[..., list[int]], script: Callable[[str], Path], tmp_path: Path
) -> None:
    end, message = UNSTORED[what]
    with pytest.raises(UserError, match=message) as caught:
        run(script(NET.replace("BEGINNING", BUFFER).replace("END", end)))
    assert str(tmp_path) not in str(caught.value) and "\n" not in str(caught.value)


def test_what_a_script_keeps_in_memory_is_noticed(run: Callable[..., list[int]], script: Callable[[str], Path]) -> None:
    with pytest.raises(UserError, match="read back"):
        run(script(GLOBAL), outputs="logits")


def test_weights_of_a_compiled_model_are_adopted(tmp_path: Path) -> None:
    learner = TorchLearner(describe("net", "mlp", {"width": 4}, (5,), 3), Compute())
    module = learner.untrained().module
    torch.save(torch.compile(module, backend="eager").state_dict(), tmp_path / "model.pth")
    (tmp_path / "model").mkdir()
    learner.adopt(tmp_path / "model.pth", tmp_path / "model")
    loaded = learner.load(tmp_path / "model").module
    for name, value in module.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)


class Returning(nn.Module):
    """A module whose outputs are a function of three logits."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.layer(x))


def fails(_: torch.Tensor) -> torch.Tensor:
    raise TypeError("two arguments, please")


UNFIT: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "dict": (lambda z: {"logits": z}, "returns a dict of 'logits'"),
    "tuple": (lambda z: (z, z), "returns a tuple"),
    "softmax": (lambda z: z.softmax(1), "ends in a softmax"),
    "sigmoid": (torch.sigmoid, "ends in a sigmoid"),
    "complex": (lambda z: z + 1j, "complex numbers"),
    "shape": (lambda z: z[:, :1], r"returns \[2, 1\] for 2 records"),
    "arguments": (fails, r"records \[2, 4\] of float32, which are its only argument: TypeError: two arguments"),
}


@pytest.mark.parametrize("what", UNFIT)
def test_an_untrained_module_says_what_a_trained_one_would_return(what: str) -> None:
    function, message = UNFIT[what]
    with pytest.raises(UserError, match=message) as caught:
        check_untrained(Returning(function), torch.zeros(2, 4), 3, "mine")
    assert "\n" not in str(caught.value)
    check_untrained(Returning(lambda z: z.log_softmax(1)), torch.zeros(2, 4), 3, "mine")
