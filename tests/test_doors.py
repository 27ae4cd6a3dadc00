"""The same checks at every door: what one way in refuses, no other takes for something else."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mia_audit as mia
from mia_audit.attacks.io.layouts import from_logits
from mia_audit.attacks.io.matrices import MatrixFiles, parse_signal_file
from mia_audit.attacks.io.parquet import SignalsFile
from mia_audit.errors import UserError
from mia_audit.learners.answers import logits_of
from mia_audit.learners.estimators import EstimatorModel
from mia_audit.learners.protocol import Compute
from mia_audit.learners.script_module import ScriptModule
from mia_audit.models.answers import in_full_precision
from mia_audit.training.task import Records

COUNT, MODELS, CLASSES = 40, 6, 3
RANDOM = np.random.default_rng(0)
MEMBER = np.stack([RANDOM.permutation(COUNT) < COUNT // 2 for _ in range(MODELS)], axis=1)
LOGITS = RANDOM.normal(size=(COUNT, CLASSES)).astype(np.float32)
LABELS = RANDOM.integers(0, CLASSES, COUNT)
ROWS = RANDOM.normal(size=(COUNT, 4)).astype(np.float32)
SOFTMAX = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)


def records() -> Records:
    return Records(ROWS, LABELS, {"classes": list("abc"), "kind": "table"}, np.arange(COUNT))


class Fixed(nn.Module):
    """A module that returns the logits of the records in order, changed."""

    def __init__(self, change: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, CLASSES)
        self.change = change

    def forward(self, x: torch.Tensor) -> Any:
        return self.change(self.layer(x.to(self.layer.weight.dtype)))


class Estimator:
    """An estimator that returns what it is given."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self.classes_ = np.arange(CLASSES)
        self.change = change

    def fit(self) -> None: ...

    def get_params(self) -> dict[str, Any]:
        return {}

    def predict(self) -> None: ...

    def decision_function(self, rows: np.ndarray) -> Any:
        places = [int(np.flatnonzero((row == ROWS).all(axis=1))[0]) for row in rows]
        return self.change(LOGITS[places])


@dataclass
class Script:
    """The path of a module's script, for messages."""

    where: str = "mine"
    path: Path = Path("mine.py")


Change = Callable[[Any], Any]


def to_tensor(values: Any) -> torch.Tensor:
    return values if isinstance(values, torch.Tensor) else torch.from_numpy(np.array(values))


def predict(change: Change, _: Path) -> None:
    logits_of(change(LOGITS), "logits", records(), 0, "mine")


def module(change: Change, _: Path) -> None:
    net = in_full_precision(Fixed(change))
    ScriptModule(net, 16, lambda part: torch.from_numpy(part.values), Script()).logits(records())  # type: ignore[arg-type]


def signals_of_module(change: Change, _: Path) -> None:
    mia.signals(Fixed(change), ROWS, LABELS, explainers=[])


def estimator(change: Change, _: Path) -> None:
    EstimatorModel(Estimator(change), "logits", 0, Compute(micro_batch=16), "mine").logits(records())


def matrix(change: Change, _: Path) -> None:
    loss = np.abs(np.tile(LOGITS[:, :1], (1, MODELS)) + RANDOM.normal(size=(COUNT, MODELS)))
    mia.audit(MEMBER, {"loss": change(loss)}, attacks=["threshold"])


def matrix_file(change: Change, folder: Path) -> None:
    loss = np.abs(RANDOM.normal(size=(COUNT, MODELS)))
    np.save(folder / "member.npy", MEMBER)
    np.save(folder / "loss.npy", change(loss), allow_pickle=True)
    files = MatrixFiles(str(folder / "member.npy"), [parse_signal_file(f"loss={folder / 'loss.npy'}")])
    files.read(files.signals[0])


def imported_logits(change: Change, folder: Path) -> None:
    logits = np.stack([LOGITS + 0.1 * model for model in range(MODELS)], axis=1)
    for name, values in (("logits", change(logits)), ("labels", LABELS), ("member", MEMBER)):
        np.save(folder / f"{name}.npy", values, allow_pickle=True)
    from_logits(folder / "logits.npy", folder / "labels.npy", folder / "member.npy")


def softmax(values: Any) -> Any:
    tensor = to_tensor(values)
    result = tensor.softmax(-1)
    return result if isinstance(values, torch.Tensor) else result.numpy()


def sigmoid(values: Any) -> Any:
    result = to_tensor(values).sigmoid()
    return result if isinstance(values, torch.Tensor) else result.numpy()


def as_text(values: Any) -> Any:
    return np.asarray(values).astype(str)


def frame_of(values: Any) -> Any:
    pd = pytest.importorskip("pandas")
    return pd.DataFrame(np.asarray(values), columns=list("abc"))


def shuffled_frame(values: Any) -> Any:
    return frame_of(values).sample(frac=1, random_state=0)


DOORS = {
    "predict": predict,
    "module": module,
    "signals": signals_of_module,
    "estimator": estimator,
    "audit": matrix,
    "file": matrix_file,
    "import": imported_logits,
}
MODULES, ARRAYS, FILES = ("module", "signals"), ("predict", "estimator"), ("file", "import")
CHECKS: dict[str, tuple[Change, dict[str, str]]] = {
    "complex": (lambda z: z + 1j, dict.fromkeys(DOORS, "complex")),
    "dict": (lambda z: {"logits": z}, dict.fromkeys((*MODULES, *ARRAYS, "audit"), "a dict of 'logits'")),
    "tuple": (lambda z: (z, z), dict.fromkeys(MODULES, "returns a tuple") | dict.fromkeys(ARRAYS, r"of shape \[2, ")),
    "text": (
        as_text,
        dict.fromkeys((*ARRAYS, "audit"), "text; expected numbers") | dict.fromkeys(FILES, "not numbers"),
    ),
    "softmax": (
        softmax,
        dict.fromkeys((*MODULES, *ARRAYS, "import"), "probabilities, (not logits|where logits)|softmax"),
    ),
    "percent": (
        lambda z: 100 * softmax(z),
        dict.fromkeys((*MODULES, *ARRAYS, "import"), r"shares \(they add up to 100 over the classes\)"),
    ),
    "sigmoid": (sigmoid, dict.fromkeys((*MODULES, *ARRAYS, "import"), "probabilities, (not logits|where logits)")),
    "frame of other rows": (
        shuffled_frame,
        dict.fromkeys(ARRAYS, "the rows in the order of the records"),
    ),
    "frame of other columns": (
        lambda z: frame_of(z)[list("bca")],
        dict.fromkeys(ARRAYS, "expected the classes in their order, a, b, c"),
    ),
    "half precision": (lambda z: z.half() if isinstance(z, torch.Tensor) else np.asarray(z, np.float16), {}),
    "bfloat16": (lambda z: to_tensor(z).bfloat16(), {"file": "-", "import": "-"}),
    "requires_grad": (lambda z: to_tensor(z).clone().detach().requires_grad_(), {"file": "-", "import": "-"}),
    "masked": (lambda z: np.ma.masked_less(np.asarray(z), 0.5), dict.fromkeys((*ARRAYS, "audit"), "masked cells")),
}
"""Changes of numbers by name, and the message at every door that refuses them; a door with '-' cannot hold them."""
ABSENT = {
    "tuple": ("audit", *FILES),
    "dict": FILES,
    "text": MODULES,
    "softmax": ("audit", "file"),
    "percent": ("audit", "file"),
    "sigmoid": ("audit", "file"),
    "frame of other rows": (*MODULES, "audit", *FILES),
    "frame of other columns": (*MODULES, "audit", *FILES),
    "masked": (*MODULES, *FILES),
}
"""The doors at which a change cannot occur, or is another one's."""


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("check", CHECKS)
def test_check_by_door(check: str, door: str, tmp_path: Path) -> None:
    change, refusals = CHECKS[check]
    if door in ABSENT.get(check, ()) or refusals.get(door) == "-":
        return
    if door not in refusals:
        DOORS[door](change, tmp_path)
        return
    with pytest.raises(UserError, match=refusals[door]) as caught:
        DOORS[door](change, tmp_path)
    assert "\n" not in str(caught.value)
    assert door in FILES or "/" not in str(caught.value), "a message names the argument, not a temporary file"


@pytest.mark.parametrize("door", ["audit", "file", "signals"])
def test_rows_in_another_order_are_refused(door: str, tmp_path: Path) -> None:
    """Frames and files that name their records are compared by name, not by place."""
    pd = pytest.importorskip("pandas")
    names = [f"r{row}" for row in range(COUNT)]
    shuffled = np.random.default_rng(0).permutation(COUNT)
    loss = pd.DataFrame(np.abs(RANDOM.normal(size=(COUNT, MODELS))), index=pd.Index(names, name="record")).iloc[
        shuffled
    ]
    member = pd.DataFrame(MEMBER.astype(int), index=pd.Index(names, name="record"))
    with pytest.raises(UserError, match="expected the same records in the same order"):
        if door == "audit":
            mia.audit(member, {"loss": loss})
        elif door == "signals":
            mia.signals(Fixed(lambda z: z), pd.DataFrame(ROWS, index=names), pd.Series(LABELS, names).iloc[shuffled])
        else:
            member.to_csv(tmp_path / "member.csv")
            loss.to_csv(tmp_path / "loss.csv")
            files = MatrixFiles(str(tmp_path / "member.csv"), [parse_signal_file(f"loss={tmp_path / 'loss.csv'}")])
            files.read(files.signals[0])


@pytest.mark.parametrize("door", ["audit", "csv", "parquet"])
def test_models_in_another_order_are_refused(door: str, tmp_path: Path) -> None:
    """Frames and tables that name their models are compared by name, not by place."""
    pd = pytest.importorskip("pandas")
    names = [f"model{model}" for model in range(MODELS)]
    member = pd.DataFrame(MEMBER.astype(int), columns=names)
    loss = pd.DataFrame(np.abs(RANDOM.normal(size=(COUNT, MODELS))), columns=names)
    with pytest.raises(UserError, match="expected the same models in the same order"):
        if door == "audit":
            mia.audit(member, {"loss": loss[names[::-1]]})
        else:
            for name, frame in (("member", member), ("loss", loss[names[::-1]])):
                path = tmp_path / f"{name}.{door}"
                frame.to_csv(path, index=False) if door == "csv" else frame.to_parquet(path)
            files = MatrixFiles(str(tmp_path / f"member.{door}"), [parse_signal_file(f"loss={tmp_path}/loss.{door}")])
            files.read(files.signals[0])


PERSONS: dict[str, tuple[Any, str]] = {
    "too few": (np.arange(COUNT - 1), "39"),
    "one in half of a training set": (np.repeat(np.arange(COUNT // 2), 2), "person"),
    "missing": (np.array(["nan", *map(str, range(1, COUNT))], dtype=object), "has no id for"),
}


@pytest.mark.parametrize("what", PERSONS)
@pytest.mark.parametrize("door", ["audit", "file", "table"])
def test_persons_are_whole(what: str, door: str, tmp_path: Path) -> None:
    """Every record has a person, and a training set has all of a person's records or none."""
    import polars as pl

    if (what, door) == ("too few", "table"):
        return  # a table has a person in every row
    persons, message = PERSONS[what]
    loss = np.abs(RANDOM.normal(size=(COUNT, MODELS)))
    with pytest.raises(UserError, match=message) as caught:
        if door == "audit":
            mia.audit(MEMBER, {"loss": loss}, person=persons)
        elif door == "file":
            np.save(tmp_path / "member.npy", MEMBER)
            (tmp_path / "person.txt").write_text("".join(f"{person}\n" for person in persons))
            MatrixFiles(str(tmp_path / "member.npy"), [], str(tmp_path / "person.txt"))
        else:
            ids = [*map(str, persons)]
            columns = {"shadow": np.repeat(np.arange(MODELS), COUNT), "record": np.tile(np.arange(COUNT), MODELS)}
            columns |= {"member": MEMBER.T.ravel(), "loss": loss.T.ravel(), "person": np.tile(ids, MODELS)}
            pl.DataFrame(columns).write_parquet(tmp_path / "signals.parquet")
            SignalsFile(tmp_path / "signals.parquet")
    assert "\n" not in str(caught.value)


LABELLED = {
    "text": (np.array(list("abc"))[LABELS], "labels hold text|not numbers"),
    "from 1": (LABELS + 1, "3 classes, but a label is 3; .* numbered from 1 must be reduced by 1"),
    "negative": (LABELS - 1, "a label is -1; expected labels from 0"),
    "fractions": (LABELS + 0.5, "labels hold float64; expected whole numbers"),
}


@pytest.mark.parametrize("what", LABELLED)
@pytest.mark.parametrize("door", ["signals", "import", "predict"])
def test_labels_are_numbers_from_0(what: str, door: str, tmp_path: Path) -> None:
    labels, message = LABELLED[what]
    with pytest.raises(UserError, match=message if door != "predict" else "label|text"):
        if door == "signals":
            mia.signals(Fixed(lambda z: z), ROWS, labels, explainers=[])
        elif door == "predict":
            logits_of(labels, "labels", records(), 1, "mine")
        else:
            np.save(tmp_path / "labels.npy", labels)
            np.save(tmp_path / "member.npy", MEMBER)
            np.save(tmp_path / "logits.npy", np.stack([LOGITS] * MODELS, axis=1))
            from_logits(tmp_path / "logits.npy", tmp_path / "labels.npy", tmp_path / "member.npy")


def test_an_estimator_of_text_classes_is_refused() -> None:
    from sklearn.tree import DecisionTreeClassifier

    fitted = DecisionTreeClassifier().fit(ROWS, np.array(list("abc"))[LABELS])
    with pytest.raises(UserError, match="DecisionTreeClassifier: classes_: labels hold text"):
        mia.signals(fitted, ROWS, LABELS, explainers=[])


def test_arguments_are_named() -> None:
    with pytest.raises(UserError, match=r"^signals\['loss'\]: nan at model 0, record 3"):
        mia.audit(MEMBER, {"loss": np.where(np.arange(COUNT)[:, None] == 3, np.nan, np.ones(MEMBER.shape))})
