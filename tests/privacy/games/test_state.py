"""A model keeps no state: what a pass changes beside the trained weights would be released without noise."""

import copy
import math
import random
import weakref
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.models import architecture
from mia_audit.models.architecture import changing_state, check_state
from mia_audit.privacy import per_record
from mia_audit.privacy.catalogue import PerRecord
from mia_audit.training.section import Training
from mia_audit.training.trainable import Features, choose_part

from .play import Claim, Pair, observed, play
from .training import FEATURES, LONG, Scene, one_decision, perceptron, rows

RECORDS, EPSILON, DELTA = 8, 0.5, 1e-5
SECTION = {"mechanism": "dp-sgd", "delta": DELTA}


class Stateful(nn.Module):
    """A linear layer that remembers something of the records, and does not use it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(FEATURES, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        self.remember(inputs.detach())
        return self.head(inputs)  # type: ignore[no-any-return]

    def remember(self, inputs: Tensor) -> None:
        """Change the state."""


class Average(Stateful):
    """A moving average, changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(FEATURES))

    def remember(self, inputs: Tensor) -> None:
        self.average.mul_(0.9).add_(0.1 * inputs.mean(dim=0))  # type: ignore[union-attr, operator]


class Largest(Stateful):
    """A buffer that is assigned, and not stored with the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("largest", torch.zeros(()), persistent=False)

    def remember(self, inputs: Tensor) -> None:
        self.largest = torch.maximum(self.largest, inputs.abs().max())


class Rare(Largest):
    """A buffer that is replaced by an equal one, unless a record is larger than any random one."""

    def remember(self, inputs: Tensor) -> None:
        self.largest = torch.where(inputs.abs().max() > LONG / 2, inputs.abs().max(), self.largest)


class Codebook(Stateful):
    """A frozen parameter that moves to the records, past autograd's sight."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.zeros(3, FEATURES), requires_grad=False)

    def remember(self, inputs: Tensor) -> None:
        nearest = torch.cdist(inputs, self.codes).argmin(dim=1)
        self.codes.data[nearest] = 0.9 * self.codes.data[nearest] + 0.1 * inputs


class Counter(Stateful):
    """A number that counts passes, on which a later pass could depend."""

    passes = 0

    def remember(self, inputs: Tensor) -> None:
        self.passes += 1


class Kept(Stateful):
    """An attribute that holds the last records."""

    last: Tensor | None = None

    def remember(self, inputs: Tensor) -> None:
        self.last = inputs


class Store:
    """An object that no library knows."""

    last: Tensor | None = None


class Held(Stateful):
    """An object that holds the last records, to which the next ones are added."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()

    def forward(self, inputs: Tensor) -> Tensor:
        kept, self.store.last = self.store.last, inputs
        return self.head(inputs if kept is None else inputs + kept.mean())  # type: ignore[no-any-return]


class Counted(Stateful):
    """An array that counts records."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = np.zeros(3)

    def remember(self, inputs: Tensor) -> None:
        self.counts[0] += len(inputs)


class Known(Stateful):
    """A set of lengths of passes, and of what they were."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[str] = set()

    def remember(self, inputs: Tensor) -> None:
        self.known.add(f"pass {len(self.known)}")


class Shared(Stateful):
    """A list of the class."""

    passes: ClassVar[list[int]] = [0]

    def remember(self, inputs: Tensor) -> None:
        self.passes[0] += 1


class Listed(Stateful):
    """A list that grows."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def remember(self, inputs: Tensor) -> None:
        self.sizes.append(0)


GLOBAL = {"scale": 1.0}


class Outside(Stateful):
    """A number outside of the model, which a pass changes and the next one reads."""

    def forward(self, inputs: Tensor) -> Tensor:
        GLOBAL["scale"] *= 1.5
        return self.head(inputs) * GLOBAL["scale"]  # type: ignore[no-any-return]


class Normalised(nn.Sequential):
    """Running statistics that mix no records."""

    def __init__(self) -> None:
        norm = nn.InstanceNorm1d(1, track_running_stats=True)
        super().__init__(nn.Unflatten(1, (1, FEATURES)), norm, nn.Flatten(), nn.Linear(FEATURES, 2))


class Lazy(Stateful):
    """A table that the first pass sets up; it depends on no record."""

    table: Tensor | None = None

    def remember(self, inputs: Tensor) -> None:
        if self.table is None:
            self.table = torch.arange(inputs.shape[1])


class LazyLearning(Lazy):
    """A table that the first pass with gradients sets up."""

    def remember(self, inputs: Tensor) -> None:
        if torch.is_grad_enabled():
            super().remember(inputs)


class Looked(Stateful):
    """A table of codes, which ends a pass for a code that it does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Embedding(50, FEATURES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.codes(inputs[:, 0].abs().long()))  # type: ignore[no-any-return]


class Bounded(Looked):
    """A table of codes in which every other code is the last one."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs.nan_to_num().clamp(0, 49))


class Coded(Looked):
    """A table of codes from 0 to 49 that are computed from a record's first value."""

    def __init__(self, code: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.code = code

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.codes(self.code(inputs[:, 0]).long()))  # type: ignore[no-any-return]


class Skipping(Stateful):
    """Skips itself at random, as one for all records of a pass."""

    def remember(self, inputs: Tensor) -> None:
        random.random()


class SkippingByNumpy(Stateful):
    """The same, from NumPy's generator."""

    def remember(self, inputs: Tensor) -> None:
        np.random.rand()  # noqa: NPY002


class Hooked(Stateful):
    """A counter of passes in a hook, which a copy of the model may share with the model."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("passes", torch.zeros(()))
        self.head.register_forward_hook(self.hook())

    def count(self, *_: object) -> None:
        self.passes = self.passes + 1

    def hook(self) -> Callable[..., None]:
        """Return the hook: here a method, of which a copy of the model has its own."""
        return self.count


class HookedByPartial(Hooked):
    """The method with arguments."""

    def hook(self) -> Callable[..., None]:
        return partial(self.count, "head")


class HookedByClosure(Hooked):
    """A function of the model itself, also in copies."""

    def hook(self) -> Callable[..., None]:
        return lambda *_: self.count()


class HookedByIdentity(Hooked):
    """A function that does nothing in a copy of the model."""

    def hook(self) -> Callable[..., None]:
        return lambda module, *_: self.count() if module is self.head else None


class HookedInPlace(Hooked):
    """A function that writes to the buffer's data, past autograd's sight."""

    def hook(self) -> Callable[..., None]:
        return lambda *_: self.passes.data.add_(1)  # type: ignore[union-attr, operator]


class HookedByReference(Hooked):
    """A weak reference, which copies share."""

    def hook(self) -> Callable[..., None]:
        own: Callable[[], Any] = weakref.ref(self)
        return lambda *_: own().count()


class Attribute(Hooked):
    """No hook, but an attribute: a function of the model itself, called in every pass."""

    def hook(self) -> Callable[..., None]:
        self.call = lambda: self.count()
        return lambda *_: None

    def remember(self, inputs: Tensor) -> None:
        self.call()


class Learning(Hooked):
    """A counter of passes that compute gradients."""

    def hook(self) -> Callable[..., None]:
        return lambda *_: self.count() if torch.is_grad_enabled() else None


class HookedBackward(Hooked):
    """A counter of backward passes, in a module's hook."""

    def hook(self) -> Callable[..., None]:
        self.head.register_full_backward_hook(self.count)
        return lambda *_: None


class HookedGradient(Hooked):
    """The same, in the hook of a tensor."""

    def hook(self) -> Callable[..., None]:
        def watch(module: nn.Module, inputs: Any, answers: Tensor) -> None:
            if answers.requires_grad:
                answers.register_hook(self.count)

        return watch


class OwnBackward(Hooked):
    """The same, in an operation's own rule."""

    def hook(self) -> Callable[..., None]:
        class Same(torch.autograd.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(answers: Tensor) -> Tensor:
                return answers.clone()

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                pass

            @staticmethod
            def backward(ctx: Any, gradient: Tensor) -> Tensor:
                self.count()
                return gradient

        return lambda module, inputs, answers: Same.apply(answers)  # type: ignore[no-untyped-call, no-any-return]


LEARNING = (Learning, HookedBackward, HookedGradient, OwnBackward)

SHARED = "the generator of random or NumPy, from which all records of a pass draw"

STATEFUL = {
    Average: "average",
    Largest: "largest",
    Rare: "largest",
    Codebook: "codes",
    Counter: "passes",
    Kept: "last",
    Held: "store.last",
    Counted: "counts",
    Known: "known",
    Shared: "passes.0",
    Listed: "sizes.2",
    Outside: "its later answers",
    Normalised: "1.running_mean",
    Skipping: SHARED,
    SkippingByNumpy: SHARED,
    Hooked: "passes",
    HookedByPartial: "passes",
    HookedByClosure: "passes",
    HookedByIdentity: "passes",
    HookedInPlace: "passes",
    HookedByReference: "passes",
    Attribute: "passes",
}


@pytest.mark.parametrize("model", STATEFUL)
def test_what_a_pass_changes_is_named(model: type[nn.Module]) -> None:
    assert changing_state(model(), (FEATURES,)) == STATEFUL[model]


@pytest.mark.parametrize(
    ("first", "more"),
    [
        *((kind(0), 1) for kind in (np.int64, np.float32, complex, Fraction, Decimal)),
        *((kind(b"0"), b"1") for kind in (bytes, bytearray)),
        (np.array([0, 1.5], dtype=object), 1),
    ],
)
def test_values_of_any_type_are_a_state(first: Any, more: Any) -> None:
    class Typed(Stateful):
        def __init__(self) -> None:
            super().__init__()
            self.kept = first

        def remember(self, inputs: Tensor) -> None:
            self.kept = self.kept + more

    assert changing_state(Typed(), (FEATURES,)) == "kept"


@pytest.mark.parametrize("model", LEARNING)
def test_what_a_backward_pass_changes_is_named(model: type[nn.Module]) -> None:
    assert changing_state(model(), (FEATURES,)) == "passes"


@pytest.mark.parametrize("model", [perceptron, Lazy, LazyLearning, Bounded])
def test_models_without_a_state_are_not_refused(model: Any) -> None:
    built = model()
    before = torch.get_rng_state(), [value.clone() for value in built.parameters()]
    assert changing_state(built, (FEATURES,)) is None
    assert torch.equal(torch.get_rng_state(), before[0]) and built.training
    assert all(map(torch.equal, before[1], built.parameters()))


class Filter(Stateful):
    """Multiplies the frequencies of a record by complex weights, the model's first parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(FEATURES // 2 + 1, dtype=torch.cfloat))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.fft.irfft(torch.fft.rfft(inputs) * self.weights, n=FEATURES))  # type: ignore[no-any-return]


def test_complex_weights_are_refused_as_such_unless_they_are_frozen() -> None:
    built = Filter()
    with pytest.raises(UserError, match="the parameter 'weights' of 'Filter' is complex"):
        check_state(built, (FEATURES,))
    built.weights.requires_grad_(False)
    check_state(built, (FEATURES,))


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("way", ["vmap", "auto"])
def test_a_model_that_cannot_be_copied_is_trained(way: PerRecord) -> None:
    def normalised() -> nn.Module:
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(FEATURES, 2)))  # its weight is no leaf of the graph

    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(normalised())
    scene = Scene(normalised, SECTION, EPSILON, RECORDS, way=way)
    assert len(observed(partial(scene.train, pair(1.0).first, 0)).numbers)


def test_few_copies_of_a_state_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    class Copy(dict[str, Any]):
        """A dictionary that can be watched."""

    copies, held, state = [], [], architecture._state

    def watched(model: nn.Module) -> Copy:
        made = Copy(state(model))
        copies.append(weakref.ref(made))
        held.append(sum(one() is not None for one in copies))
        return made

    monkeypatch.setattr(architecture, "_state", watched)
    assert changing_state(perceptron(), (FEATURES,)) is None
    assert len(held) > max(held) == 2


@pytest.mark.parametrize(
    "code",
    [
        lambda values: values.nan_to_num() % 50,  # 50 for a tiny negative number
        lambda values: -values.nan_to_num() % 50,
        lambda values: 50 * values.isposinf(),
        lambda values: 50 * values.isneginf(),
        lambda values: 50 * values.isnan(),
        lambda values: 50 * (values == 0),
        lambda values: 50 * (values.abs() < 1e-38) * (values > 0),
        lambda values: 50 * (values.abs() < 1e-38) * (values < 0),
    ],
)
def test_a_model_that_fails_for_a_rare_value_is_refused(code: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(UserError, match="fails for some values of a record"):
        check_state(Coded(code), (FEATURES,))


class Branching(Stateful):
    """A buffer that changes if a value says so, which random records do not show."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("largest", torch.zeros(()))

    def remember(self, inputs: Tensor) -> None:
        if inputs.abs().max() > LONG / 2:
            self.largest.fill_(inputs.abs().max().item())  # type: ignore[union-attr, operator]


def pair(canary: float) -> Pair:
    others = rows(RECORDS - 1)
    return Pair("state", np.vstack([others, [canary, canary, 1.0]]), others)


@pytest.mark.parametrize("way", ["vmap", "book-keeping", "auto"])
@pytest.mark.parametrize("model", [*STATEFUL, *LEARNING, Branching, Looked])
def test_a_model_with_a_state_is_refused_whatever_the_records(model: Any, way: PerRecord) -> None:
    scene = Scene(model, SECTION, EPSILON, RECORDS, way=way)
    for canary in (LONG, math.nan):
        inputs = pair(canary)
        first, second = (observed(partial(scene.train, data, 0)) for data in (inputs.first, inputs.second))
        assert first.facts == second.facts and not len(first.numbers)
        refusals = ("cannot be trained privately", "book-keeping does not cover this model")
        assert any(words in fact for words in refusals for fact in first.facts)


def test_a_state_that_is_released_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(per_record, "check_state", lambda model, shape: None)
    monkeypatch.setattr(per_record, "check_kinds", lambda model: None)
    monkeypatch.setattr(per_record, "check_operations", lambda names: None)
    scene = Scene(Average, SECTION, EPSILON, RECORDS, way="book-keeping")
    with one_decision():
        assert play(scene.train, pair(LONG), Claim(EPSILON, DELTA), trials=60, pilot=30).refuted


class Body(nn.Module):
    """A classifier on frozen layers, before which something is done to a batch."""

    def __init__(self, before: nn.Module) -> None:
        super().__init__()
        self.before, self.frozen, self.head = before, nn.Linear(2, 4), nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.relu(self.frozen(self.before(inputs))))  # type: ignore[no-any-return]


class Scaled(nn.Module):
    """Divides records by the largest number of their batch, once it is above 1."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs / inputs.abs().max().clamp(min=1)


def features(before: nn.Module, inputs: Tensor, apart: bool = True) -> Tensor:
    torch.manual_seed(0)
    model, training = Body(before), Training(trainable="head")
    choose_part(model, training)
    found = Features()(model, training, inputs, 4, apart)[1]
    return found[0 : len(found)]


def test_frozen_layers_mix_no_records() -> None:
    inputs = torch.randn(11, 2, generator=torch.Generator().manual_seed(1))
    for canary in (LONG, 1e38, math.nan):
        other = torch.cat([inputs[:-1], torch.full((1, 2), canary)])
        assert torch.equal(features(Scaled(), inputs)[:-1], features(Scaled(), other)[:-1])
        assert torch.equal(features(Scaled(), inputs)[:-1], features(Scaled(), inputs[:-1]))
    plain = [
        features(Scaled(), each, apart=False)[-2] for each in (inputs, torch.cat([inputs[:-1], LONG + inputs[-1:]]))
    ]
    assert not torch.equal(*plain)


class Quantised(torch.autograd.Function):
    """Rounds to steps of the largest number of a batch; by its rule for vmap, to those of all records of a pass."""

    @staticmethod
    def forward(inputs: Tensor) -> Tensor:
        step = inputs.abs().max() / 127
        return (inputs / step).round() * step

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, dimensions: Any, inputs: Tensor) -> tuple[Tensor, int]:
        return Quantised.apply(inputs), dimensions[0]  # type: ignore[no-untyped-call]


class Rounded(nn.Module):
    """Records in steps of the largest number of a pass."""

    def forward(self, inputs: Tensor) -> Tensor:
        return Quantised.apply(inputs)  # type: ignore[no-untyped-call, no-any-return]


def test_frozen_layers_whose_operations_mix_records_are_refused() -> None:
    with pytest.raises(UserError, match="rule for vmap mixes records"):
        features(Rounded(), rows_of())


@pytest.mark.parametrize("model", [*STATEFUL, Branching])
def test_frozen_layers_keep_no_records(model: type[nn.Module]) -> None:
    if model is Normalised:  # its statistics stay as they are in evaluation mode
        features(
            nn.Sequential(nn.Unflatten(1, (1, 2)), nn.InstanceNorm1d(1, track_running_stats=True), nn.Flatten()),
            rows_of(),
        )
        return
    for inputs in (rows_of(), torch.full((9, 2), LONG)):
        with pytest.raises(UserError, match="cannot be trained privately"):
            features(model(), inputs)


def rows_of() -> Tensor:
    return torch.from_numpy(rows(9)[:, :-1]).float()
