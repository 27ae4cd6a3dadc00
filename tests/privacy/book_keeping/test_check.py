"""Models that book-keeping does not cover: refused where it is asked for, and by vmap to the last bit where it may choose."""

from collections.abc import Callable, Mapping
from functools import cached_property

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mia_audit.errors import UserError
from mia_audit.models.architecture import build
from mia_audit.privacy import per_record
from mia_audit.privacy.book_keeping.engine import checked_pass, without_dropout
from mia_audit.privacy.book_keeping.kinds import check_kinds, check_operations
from mia_audit.privacy.book_keeping.rules import NotCovered
from mia_audit.privacy.catalogue import PerRecord
from mia_audit.privacy.noise import automatic, flat
from mia_audit.privacy.per_record import ONE_A_PASS, ClippedSum
from mia_audit.runtime.device import computing


class Model(nn.Module):
    """Two layers of 5 features and a head of 3 classes, used as `how` says."""

    def __init__(self, how: Callable[["Model", Tensor], Tensor]) -> None:
        super().__init__()
        self.how = how
        self.first, self.second, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.shift = nn.Parameter(torch.ones(5))
        self.halved = False

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.how(self, inputs))  # type: ignore[no-any-return]


def used(how: Callable[[Model, Tensor], Tensor]) -> Model:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Model(how).train()


class Hidden(torch.autograd.Function):
    """A product that torch's functions do not show."""

    @staticmethod
    def forward(ctx, inputs, weight):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(inputs, weight)
        return inputs * weight

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def, override]
        inputs, weight = ctx.saved_tensors
        return gradient * weight, (gradient * inputs).sum(dim=0)


def drawn_records(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    return torch.randn(12, *shape, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3


COVERED: dict[str, Callable[[Model, Tensor], Tensor]] = {
    "layers": lambda m, x: m.second(m.first(x).relu()) * m.shift,
    "an expression of parameters": lambda m, x: m.first(x) + torch.cat([m.shift[:2], m.shift[:3]]).tanh(),
    "a parameter used twice": lambda m, x: m.first(x * m.shift) + m.shift,
    "dropout": lambda m, x: F.dropout(m.first(x), m.first.bias.new_zeros(()).item(), m.training),
}

NOT_COVERED: dict[str, tuple[str, Callable[[Model, Tensor], Tensor]]] = {
    "a layer used twice": ("more than once", lambda m, x: m.first(m.first(x))),
    "a weight shared by two layers": ("more than once", lambda m, x: F.linear(m.first(x), m.first.weight)),
    "a computed weight": ("computed from other", lambda m, x: F.linear(x, m.first.weight / m.first.weight.norm())),
    "a weight in another function": ("there is no rule", lambda m, x: x @ m.first.weight),
    "a weight beside its layer": ("more than once", lambda m, x: m.first(x) * m.first.weight.sum()),
    "records mixed": ("alone", lambda m, x: m.first(x - x.mean(dim=0))),
    "large records mixed": ("alone", lambda m, x: m.first(x / x.abs().max().clamp(min=1))),
    "huge records mixed": ("alone", lambda m, x: m.first(x / x.abs().max().clamp(min=1e5))),
    "tiny records mixed": ("alone", lambda m, x: m.first(x / x.abs().sum(dim=1).min().clamp(min=1e-7, max=1))),
    "another first dimension": ("first dimension", lambda m, x: m.first(x[None])[0]),
    "randomness": ("randomness", lambda m, x: m.first(x + torch.randn_like(x))),
    "code of its own": ("no function of torch", lambda m, x: Hidden.apply(m.first(x), m.shift)),  # type: ignore[no-untyped-call]
}


@pytest.mark.parametrize("name", COVERED)
def test_layers_and_expressions_are_covered(name: str) -> None:
    assert checked_pass(used(COVERED[name]), (5,)).numbers["factors"] > 0


@pytest.mark.parametrize("name", NOT_COVERED)
def test_uses_without_a_rule_are_not_covered(name: str) -> None:
    reason, how = NOT_COVERED[name]
    with pytest.raises(NotCovered, match=reason):
        checked_pass(used(how), (5,))


def test_the_check_leaves_no_trace() -> None:
    model = used(lambda m, x: F.dropout(m.first(x), 0.5, m.training))
    model.second = nn.Dropout(0.5)  # type: ignore[assignment]
    state = torch.get_rng_state()
    weights = [value.clone() for value in model.parameters()]
    with pytest.raises(NotCovered, match="randomness"):
        checked_pass(model, (5,))
    assert torch.equal(torch.get_rng_state(), state)
    assert model.second.p == 0.5  # type: ignore[attr-defined]
    assert all(map(torch.equal, weights, model.parameters())) and all(p.grad is None for p in model.parameters())


def test_a_model_that_is_not_covered_is_taken_by_vmap_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    model = used(lambda m, x: m.first(m.first(x)))
    inputs, labels = drawn_records((5,))
    expected = ClippedSum(model, automatic(1.0), 12)(inputs, labels)
    found = ClippedSum(model, automatic(1.0), 12, "auto")(inputs, labels)
    assert all(map(torch.equal, found, expected))
    assert "by vmap" in capsys.readouterr().err
    with pytest.raises(UserError, match="per_record: book-keeping does not cover"):
        ClippedSum(model, automatic(1.0), 12, "book-keeping")(inputs, labels)


@pytest.fixture
def every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the check of gradients alone decide."""
    monkeypatch.setattr(per_record, "check_kinds", lambda model: None)
    monkeypatch.setattr(per_record, "check_operations", lambda names: None)


@pytest.mark.usefixtures("every_kind")
@pytest.mark.parametrize("way", ["auto", "book-keeping"])
def test_calls_that_no_rule_covers_are_taken_by_vmap_in_silence(
    way: PerRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    model = used(lambda m, x: m.second(m.first(x)))
    inputs, labels = drawn_records((5,))
    clipped = ClippedSum(model, automatic(1.0), 12, way)
    clipped(inputs, labels)
    model.how = lambda m, x: m.first(m.first(x))
    expected = ClippedSum(model, automatic(1.0), 12)(inputs, labels)
    assert torch.equal(clipped(inputs, labels)[0], expected[0])
    model.how = lambda m, x: m.second(m.first(x))
    assert not torch.equal(clipped(inputs, labels)[0], expected[0])
    # with some processors, kernels round every record of this model by its position
    assert not {*"".join(capsys.readouterr()).splitlines()} - {ONE_A_PASS}


@pytest.mark.usefixtures("every_kind")
def test_a_record_with_a_gradient_at_another_position_than_checked_adds_nothing() -> None:
    def pooled(model: Model, inputs: Tensor) -> Tensor:
        far, hidden = inputs[:, :1, 0] > 1e7, model.second(model.first(inputs))
        return torch.where(far, hidden[:, 2], hidden[:, 1])

    model = used(pooled)
    assert checked_pass(model, (3, 5)).places == {1: 1, 3: 1}
    inputs, labels = drawn_records((3, 5))
    expected = ClippedSum(model, automatic(1.0), 12, "auto")(inputs[1:], labels[1:])[0]
    inputs[0, 0, 0] = 1e8
    torch.testing.assert_close(ClippedSum(model, automatic(1.0), 12, "auto")(inputs, labels)[0], expected)


def test_records_do_not_decide_where_a_layer_has_its_gradient() -> None:
    """A gradient that ReLU stops at all but one position of the check's records may be elsewhere for others."""
    assert checked_pass(used(lambda m, x: m.second(m.first(x).tanh())[:, 1]), (3, 5)).places
    assert not checked_pass(used(lambda m, x: m.second(m.first(x).relu())[:, 1]), (3, 5)).places


@pytest.mark.parametrize("way", ["auto", "book-keeping"])
def test_the_model_alone_decides_whatever_the_first_batch_is(way: PerRecord) -> None:
    for inputs in (torch.zeros(0, 5), torch.full((3, 5), torch.nan), torch.full((3, 5), 1e34)):
        clipped = ClippedSum(build("mlp", {"width": 8}, (5,), 3, 0), automatic(1.0), 12, way)
        clipped(inputs, torch.zeros(len(inputs), dtype=torch.long))
        assert clipped._book is not None
        own = ClippedSum(used(lambda m, x: m.first(x)), automatic(1.0), 12, "auto")
        own(inputs, torch.zeros(len(inputs), dtype=torch.long))
        assert own._book is None


class Wide(nn.Linear):
    """A layer with a forward pass of its own."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs / inputs.abs().max().clamp(min=1e12))


class Named(nn.Sequential):
    """A layer and a head, built by a class of their own."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 3))


def test_a_model_is_covered_by_the_kinds_of_its_modules() -> None:
    check_kinds(Named())
    for precision in ("float32", "bf16"):
        model = Named()
        with computing(model, precision):  # type: ignore[arg-type]
            check_kinds(model)
    refused = [nn.Sequential(Wide(5, 3)), used(lambda m, x: m.first(x)), *(Named() for _ in range(4))]
    refused[2].register_forward_hook(lambda module, inputs, output: output / output.abs().max())
    refused[3].forward = lambda inputs: inputs  # type: ignore[method-assign, assignment]
    torch.nn.utils.parametrizations.weight_norm(refused[4][0])  # type: ignore[index]
    refused[5][0].extra_repr = lambda: ""  # type: ignore[index, union-attr]
    for model in refused:
        with pytest.raises(NotCovered):
            check_kinds(model)


def mixing(logits: Tensor) -> Tensor:
    """Mix records whose logits are larger than those of initial weights."""
    return logits - F.relu(logits - 2).mean(dim=0)


def of_the_instance(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    head = model.forward_head
    patch.setattr(model, "forward_head", lambda *given: mixing(head(*given)))  # type: ignore[operator]


def of_the_class(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    head = type(model).forward_head
    patch.setattr(type(model), "forward_head", lambda *given: mixing(head(*given)))  # type: ignore[operator]


def of_all_modules(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    hooks = {0: lambda module, inputs, outputs: mixing(outputs) if module is model else None}
    patch.setattr(nn.modules.module, "_global_forward_hooks", hooks)


@pytest.mark.parametrize("replace", [of_the_instance, of_the_class, of_all_modules])
def test_replaced_methods_move_the_sum_by_no_more_than_the_sensitivity(
    replace: Callable[[nn.Module, pytest.MonkeyPatch], None],
    models: Mapping[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By book-keeping, which the initial weights decide for, a record moved the sum by up to 2 C once the logits had grown."""
    model, shape = models["vit"]()
    replace(model, monkeypatch)
    clipped_sum = ClippedSum(model, flat(1e-3), 8, "auto")
    clipped_sum.decide(shape)
    with torch.no_grad():
        model.head.weight.copy_(3 * torch.randn(3, 8, generator=torch.Generator().manual_seed(0)))  # type: ignore[operator, union-attr]
    inputs, labels = drawn_records(shape)
    whole, _ = clipped_sum(inputs, labels)
    for gone in range(len(labels)):
        kept = torch.arange(len(labels)) != gone
        moved = (whole - clipped_sum(inputs[kept], labels[kept])[0]).norm()
        assert moved <= 1e-3 * (1 + 1e-6)


def test_a_method_that_a_library_adds_to_all_modules_replaces_none(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    monkeypatch.setattr(nn.Module, "smart_apply", lambda self: self, raising=False)  # as transformers does
    check_kinds(model)
    monkeypatch.setattr(nn.Module, "_call_impl", lambda self, *inputs: inputs)
    with pytest.raises(NotCovered, match="_call_impl"):
        check_kinds(model)


def test_functions_of_torch_that_another_library_replaced_are_not_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    check_kinds(model)
    monkeypatch.setattr(F, "linear", lambda *given: given[0])
    with pytest.raises(NotCovered, match="the function linear of torch was replaced"):
        check_kinds(model)


class Cached(nn.Linear):
    """A weight that is computed once."""

    @cached_property
    def scaled(self) -> Tensor:
        return self.weight


def test_a_computed_attribute_is_not_covered() -> None:
    with pytest.raises(NotCovered):
        check_kinds(nn.Sequential(Cached(3, 2)))


class Centred(torch.autograd.Function):
    """Subtracts the mean of all records that are passed together, by a rule of its own for vmap."""

    @staticmethod
    def forward(inputs):  # type: ignore[no-untyped-def]
        return inputs.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        pass

    @staticmethod
    def vmap(info, in_dims, inputs):  # type: ignore[no-untyped-def]
        return inputs - inputs.mean(dim=in_dims[0], keepdim=True) * (info.batch_size > 1), in_dims[0]

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def, override]
        return gradient


class Gathered(Centred):
    """Only gradients are mixed."""

    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, inputs):  # type: ignore[no-untyped-def]
        return inputs.clone(), in_dims[0]

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def, override]
        return Centred.apply(gradient)  # type: ignore[no-untyped-call]


class Slightly(Centred):
    """Records are mixed by a hundred-thousandth: what a record of ordinary size adds is below any tolerance."""

    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, inputs):  # type: ignore[no-untyped-def]
        return inputs + 1e-5 * inputs.mean(dim=in_dims[0], keepdim=True), in_dims[0]


class Signed(torch.autograd.Function):
    """The sum over the batch decides the sign."""

    @staticmethod
    def forward(gradient, outputs):  # type: ignore[no-untyped-def]
        return gradient * outputs.sum().sign()

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        pass

    @staticmethod
    def vmap(info, in_dims, gradient, outputs):  # type: ignore[no-untyped-def]
        return Signed.forward(gradient, outputs), in_dims[0]


class Turned(Centred):
    """Only the signs of gradients are mixed, so norms and losses are the same."""

    generate_vmap_rule = False

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(output)

    @staticmethod
    def vmap(info, in_dims, inputs):  # type: ignore[no-untyped-def]
        return Turned.apply(inputs), in_dims[0]  # type: ignore[no-untyped-call]

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def, override]
        return Signed.apply(gradient, *ctx.saved_tensors)  # type: ignore[no-untyped-call]


class Doubled(Centred):
    """A rule that mixes nothing."""

    @staticmethod
    def vmap(info, in_dims, inputs):  # type: ignore[no-untyped-def]
        return inputs.clone(), in_dims[0]


@pytest.mark.parametrize("function", [Centred, Gathered, Slightly, Turned, Doubled])
def test_a_rule_for_vmap_that_mixes_records_is_refused(function: type[torch.autograd.Function]) -> None:
    model = used(lambda m, x: function.apply(m.first(x)))  # type: ignore[no-untyped-call]
    if function is Doubled:
        ClippedSum(model, automatic(1.0), 4).decide((5,))
        return
    with pytest.raises(UserError, match="one record of a batch changes what is computed from another"):
        ClippedSum(model, automatic(1.0), 4).decide((5,))


def test_a_model_that_draws_randomness_of_its_own_is_not_refused() -> None:
    ClippedSum(used(lambda m, x: m.first(x + torch.randn_like(x))), automatic(1.0), 4).decide((5,))


def test_an_operation_that_is_not_known_is_not_covered() -> None:
    check_operations(["linear", "softmax"])
    with pytest.raises(NotCovered, match="cumsum"):
        check_operations(["linear", "cumsum"])


@pytest.mark.usefixtures("every_kind")
@pytest.mark.parametrize("way", ["vmap", "book-keeping"])
def test_a_record_that_is_not_finite_at_a_position_without_gradient_contributes_nothing(way: PerRecord) -> None:
    model = used(lambda m, x: m.second(m.first(x))[:, 1])
    inputs, labels = drawn_records((3, 5))
    expected, _ = ClippedSum(model, automatic(1.0), 12, way)(inputs[1:], labels[1:])
    inputs[0, 2, 3] = torch.inf
    total, _ = ClippedSum(model, automatic(1.0), 12, way)(inputs, labels)
    torch.testing.assert_close(total, expected)


def test_dropout_is_off_in_modules_of_attention_too() -> None:
    layer, some = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.5).train(), torch.randn(2, 3, 8)
    with without_dropout(layer):
        assert torch.equal(layer(some), layer(some))
    assert not torch.equal(layer(some), layer(some))


class Powers(nn.Sequential):
    """Layers with an exponent that is named as the probability of a dropout is."""

    p = 3.0

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = super().forward(
            inputs.abs().clamp(min=0.1).pow(self.p).mean(dim=1, keepdim=True).pow(1 / self.p)
        )
        return found


def test_an_exponent_is_not_taken_for_dropout() -> None:
    clipped = ClippedSum(Powers(nn.Linear(1, 3)).train(), automatic(1.0), 8, "vmap")
    assert float(clipped(torch.randn(4, 5), torch.zeros(4, dtype=torch.long))[0].norm()) > 0


def test_dropped_patches_are_dropout() -> None:
    small = {"img_size": 8, "patch_size": 4, "embed_dim": 8, "depth": 1, "num_heads": 2, "patch_drop_rate": 0.5}
    for seed in range(3):
        model = build("vision_transformer", small, (1, 8, 8), 3, seed).train()
        clipped = ClippedSum(model, automatic(1.0), 8, "auto")
        clipped.decide((1, 8, 8))
        assert clipped._lengths.longest(8) == 8


def test_dropout_of_what_all_records_share_is_drawn_once_a_step() -> None:
    """Else a record's gradient would depend on the pass that it is in, and so on how many records there are."""
    shape = (3, 16, 16)
    tokens = {"img_size": 16, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 2}
    model = build("vit_relpos_base_patch16_224", tokens, shape, 3, 0).train()
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in model.parameters():
            value += 0.3 * torch.randn(value.shape, generator=random)
    records, labels = torch.randn(16, *shape, generator=random), torch.zeros(16, dtype=torch.long)
    sums = []
    for size in (4, 8, 16):
        summed = ClippedSum(model, flat(1e-3), size, "book-keeping")
        summed.decide(shape)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            sums.append(torch.stack([summed(records, labels)[0] for _ in range(2)]))
    assert max((one - sums[0]).norm() / sums[0].norm() for one in sums) < 1e-6
    assert (sums[0][0] - sums[0][1]).norm() > 1e-3 * sums[0][0].norm()


def test_dropout_whose_probability_a_model_holds_is_dropout() -> None:
    parameters = {"layers": (1, 1, 1, 1), "drop_rate": 0.1}
    model = build("resnet50_gn", parameters, (3, 32, 32), 3, 0).train()
    ClippedSum(model, flat(1.0), 4, "book-keeping").decide((3, 32, 32))
    assert model.drop_rate == 0.1
