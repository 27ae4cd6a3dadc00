"""Checks that must hold on every device that trains and explains: functions of a device that yield rows of a table.

benchmarks/gpu_check.py runs them on a GPU, tests/runtime/test_gpu_check.py on the CPU, tests/runtime/on_a_fake_gpu.py on a fake
GPU. Records, weights and draws are random, with fixed seeds.
"""

import io
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F

from mia_audit.explain import explainers
from mia_audit.explain.catalogue import Explainers
from mia_audit.explanation_metrics.study import MetricsTask as Measuring
from mia_audit.explanation_metrics.study import explained
from mia_audit.learners.protocol import TrainedOn
from mia_audit.learners.torch_module import TorchModel
from mia_audit.models import inputs
from mia_audit.models.architecture import construct, describe
from mia_audit.models.inputs import Inputs
from mia_audit.privacy.catalogue import Mechanism, mechanisms
from mia_audit.privacy.noise import automatic
from mia_audit.privacy.per_record import ClippedSum
from mia_audit.signals.compute import SignalsTask, model_signals
from mia_audit.signals.families import families
from mia_audit.training.checkpoints import Checkpoint
from mia_audit.training.section import Training
from mia_audit.training.shadow import Recipe, Shadow, train_shadow
from mia_audit.training.task import Records

RECORDS, SHAPE, CLASSES = 16, (1, 8, 8), 3
PIXELS = np.random.default_rng(0).integers(0, 256, (RECORDS, *SHAPE), dtype=np.uint8)
LABELS = np.arange(RECORDS) % CLASSES
MEMBERS = np.arange(RECORDS) % 2 == 0
KNOWN: dict[tuple[str, str], dict[Any, dict[Any, int]]] = {}
"""Lengths of passes, by device and precision: all trainings are of one model."""
VIT = "vision_transformer"
MODELS = {
    VIT: {"patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 2},
    "locally-linear-maps": {"maps": 3, "projection": 10},
}
SMALL = {"ig_nodes": 2, "gradient_shap_samples": 2, "smoothgrad_samples": 2, "local_steps": 3}
MEASURES = {"perturbations": 2, "removed_share": 0.2, "radius": 0.1, "curve_steps": 2}
ACKNOWLEDGED = {"fadp-literal": {"acknowledge_no_guarantee": True}}
RTOL, ATOL = 1e-3, 1e-5
"""Tolerated difference between numbers of two devices."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    check: str
    expected: str
    measured: str
    good: bool


class Killed(Exception):
    """Raised in place of a signal that ends the process."""


def architecture(model: str) -> dict[str, Any]:
    """Return a small model's architecture.json."""
    return describe("tiny", model, MODELS[model], SHAPE, CLASSES)


def records(device: str) -> Inputs:
    """Return the small pool on a device."""
    return Inputs(PIXELS, {"kind": "image"}, SHAPE, device)


def sections() -> list[dict[str, Any]]:
    """List every mechanism that takes steps."""
    kept = [{"mechanism": name} | ACKNOWLEDGED.get(name, {}) for name in mechanisms.names() if mechanisms[name].steps]
    return [{"mechanism": "none"}, *kept, {"mechanism": "fadp", "importance": "past"}]


def trained(device: str, section: Mapping[str, Any], precision: str = "float32", killed_at: int = 0) -> Arrays:
    """Train a model for four epochs of one step, killed at step `killed_at` if it is set; return its weights."""
    private = {} if section["mechanism"] == "none" else {"delta": 1e-3, "accountant": "rdp"}
    mechanism = Mechanism(**private, **section)
    epsilon = float("inf") if mechanism.mechanism == "none" else 8.0
    # not Adam, which normalises gradients that are only rounding errors, such as those of an attention's key bias
    training = Training(epochs=4, batch=8, optimizer="sgd", learning_rate=0.1, precision=precision)  # type: ignore[arg-type]
    data, labels = records(device), torch.tensor(LABELS, device=device)
    known = KNOWN.setdefault((device, precision), {})
    recipe = Recipe(architecture(VIT), None, mechanism, training, epsilon, 4, (0, "gpu"), (data, labels), known=known)
    steps = 0

    def progress(count: int, epoch: int) -> None:
        nonlocal steps
        steps += 1
        if steps == killed_at:
            raise Killed

    with tempfile.TemporaryDirectory() as folder:
        while True:
            try:
                checkpoint = Checkpoint(Path(folder), "gpu")
                return weights_of(train_shadow(recipe, 0, data, labels, MEMBERS, progress, checkpoint))
            except Killed:
                pass


def weights_of(shadow: Shadow) -> Arrays:
    """Return a model's weights, and the mask of its noise."""
    weights = {name: value.detach().cpu().numpy() for name, value in shadow.model.state_dict().items()}
    return weights | ({"mask": shadow.masks.channels.numpy()} if shadow.masks else {})


def signals(device: str, model: str, methods: Sequence[str], precision: str = "float32") -> Arrays:
    """Return all signals of an untrained model."""
    section = Explainers(methods=tuple(methods), explain=("logit", "probability"), precision=precision, **SMALL)  # type: ignore[arg-type]
    built = construct(architecture(model), seed=1).to(device).eval().requires_grad_(False)
    data = records(device)
    pool = Records(PIXELS, LABELS, {"kind": "image"}, np.arange(RECORDS))
    computed: Arrays = {}
    for family, options in families(section, model).items():
        asked = TorchModel(built, batch=11, prepare=lambda _: data)
        computed |= model_signals(asked, pool, SignalsTask(family, options, 0), TrainedOn(pool, MEMBERS, 0))
    return computed


def methods_for(model: str) -> list[str]:
    """List the explainers of a model: its own, or else all."""
    every = [*explainers.names(), "private_local:8", "captum:NoiseTunnel+Saliency"]
    return [name for name in every if model in explainers[name].models] or every


def measures(device: str) -> Arrays:
    """Return the explanation metrics of an untrained model that need passes through it."""
    built = construct(architecture(VIT), seed=1).to(device).eval().requires_grad_(False)
    options = {"explain": ["logit"], "explained_class": "predicted"}
    names = ["infidelity", "sensitivity", "deletion", "insertion"]
    sample = Records(PIXELS, LABELS, {"kind": "image"}, np.arange(RECORDS))[:6]
    asked = TorchModel(built, 256, lambda part: Inputs(part.values, {"kind": "image"}, SHAPE, device))
    task = Measuring(["ixg", "gradcam"], options, names, MEASURES, 0, 4, SHAPE)
    explanations = explained(asked, sample, task)
    return {f"{key} {name}": values for key, one in explanations.items() for name, values in one.probed.items()}


def apart(one: Arrays, other: Arrays) -> float:
    """Return the largest difference between two sets of arrays, in units of the tolerance."""
    assert list(one) == list(other)
    return max(
        float(np.nan_to_num(np.abs(other[name] - values) / (ATOL + RTOL * np.abs(values)), nan=0.0).max(initial=0.0))
        if np.array_equal(np.isnan(other[name]), np.isnan(values))
        else float("inf")
        for name, values in one.items()
    )


def near(check: str, one: Arrays, other: Arrays) -> Row:
    """Compare numbers of two devices."""
    far = apart(one, other)
    return Row(check, f"the CPU's to {RTOL:g}", f"{far * RTOL:.1e}", far <= 1)


def same(check: str, one: Arrays, other: Arrays) -> Row:
    """Compare bytes."""
    odd = [name for name, values in one.items() if values.tobytes() != other[name].tobytes()]
    return Row(check, "the same bytes", f"{odd[0]} differs" if odd else "the same bytes", not odd)


def training(device: str) -> Iterator[Row]:
    """Check that every mechanism trains as on the CPU, and that a killed and resumed training gives the same bytes."""
    for section in sections():
        weights = trained(device, section)
        yield near(f"training, {called(section)}", trained("cpu", section), weights)
        yield same(f"training, {called(section)}, killed", weights, trained(device, section, killed_at=3))


def explaining(device: str) -> Iterator[Row]:
    """Check that every explainer and every metric gives the same results as on the CPU."""
    for model in MODELS:
        sides = (signals(where, model, methods_for(model)) for where in ("cpu", device))
        yield near(f"explainers of {model}", *sides)
    yield near("explanation metrics", measures("cpu"), measures(device))


def determinism(device: str) -> Iterator[Row]:
    """Check that two runs give the same bytes, and that every operation has a deterministic kernel."""
    with redirect_stderr(io.StringIO()) as log:
        for section in sections():
            yield same(f"twice, {called(section)}", trained(device, section), trained(device, section))
        for model in MODELS:
            twice = (signals(device, model, methods_for(model)) for _ in range(2))
            yield same(f"twice, explainers of {model}", *twice)
    lines = [line for line in log.getvalue().splitlines() if "no deterministic kernel" in line]
    yield Row("operations without a deterministic kernel", "none", "; ".join(lines) or "none", not lines)


def precision(device: str) -> Iterator[Row]:
    """Check that lower precision changes L1 norms of attributions little, and that training in it stays finite."""
    exact = signals("cpu", VIT, ["ixg", "ig"])
    for name, most in (("tf32", 0.01), ("bf16", 0.05)):
        rough = signals(device, VIT, ["ixg", "ig"], name)
        norms = [key for key in exact if key.endswith("_l1")]
        moved = float(np.median([np.abs(np.log(rough[key] / exact[key])) for key in norms]))
        yield Row(f"{name}, median change of log L1", f"below {most}", f"{moved:.1e}", moved < most)
        for section in ({"mechanism": "none"}, {"mechanism": "dp-sgd"}):
            weights = trained(device, section, name)
            finite = all(np.isfinite(values).all() for values in weights.values())
            yield Row(f"{name}, training, {called(section)}", "finite", "finite" if finite else "not finite", finite)


WHOLE, RESIDENT, MAPPED = (2**60, 1.0), (0, 1.0), (0, 0.0)
"""Size in bytes up to which a pool is converted once, and the share of a GPU's memory that it may take in its stored type."""


def pool_of(folder: str, count: int) -> np.ndarray:
    """Return a memory map of random images of 8 × 8 pixels."""
    path = Path(folder, "records.npy")
    np.save(path, np.random.default_rng(0).integers(0, 256, (count, 3, 8, 8), dtype=np.uint8))
    mapped: np.ndarray = np.load(path, mmap_mode="r")
    return mapped


def placed(stored: np.ndarray, device: str, ready: int, share: float) -> Inputs:
    """Return a pool as inputs of 16 × 16 pixels, stored in one of the three ways."""
    with mock.patch.multiple(inputs, READY=ready, SHARE=share):
        return Inputs(stored, {"kind": "image"}, (3, 16, 16), device)


def residency(device: str) -> Iterator[Row]:
    """Check that records are equal if converted once, resident in their stored type, or read from the memory map."""
    with tempfile.TemporaryDirectory() as folder:
        stored = pool_of(folder, 200)
        order = torch.randperm(200, generator=torch.Generator().manual_seed(0))[:100]

        def rows(ready: int, share: float) -> Arrays:
            pool = placed(stored, device, ready, share)
            read = {"slice": pool[40:60], "next slice": pool[60:80], "rows": pool[order.to(pool.device)]}
            return {name: value.cpu().numpy() for name, value in read.items()}

        yield same("records, resident", rows(*WHOLE), rows(*RESIDENT))
        yield same("records, memory-mapped", rows(*WHOLE), rows(*MAPPED))


def per_record(device: str) -> Iterator[Row]:
    """Check that the clipped sum of per-record gradients equals that of a loop over records on the CPU."""
    model = construct(architecture(VIT), seed=1)
    values, labels = records("cpu")[0:RECORDS], torch.tensor(LABELS)
    clipping, parameters = automatic(1.0), list(model.parameters())
    total = torch.zeros(sum(value.numel() for value in parameters), dtype=torch.float64)
    for record, label in zip(values, labels, strict=True):
        parts = torch.autograd.grad(F.cross_entropy(model(record[None]), label[None]), parameters)
        gradient = torch.cat([part.flatten().double() for part in parts])
        total += clipping.factors(gradient.norm()[None]) * gradient
    summed, _ = ClippedSum(model.to(device), clipping, micro_batch=8)(values.to(device), labels.to(device))
    error = float((summed.detach().cpu().double() - total).norm() / total.norm())
    yield Row("clipped sum, error beside a loop", "below 1e-5", f"{error:.1e}", error < 1e-5)


def called(section: Mapping[str, Any]) -> str:
    """Name a mechanism's section in the table."""
    return " ".join(str(value) for value in section.values() if value is not True)


ON_ANY: tuple[Callable[[str], Iterator[Row]], ...] = (
    training,
    explaining,
    determinism,
    precision,
    residency,
    per_record,
)
"""Checks that apply to every device."""
