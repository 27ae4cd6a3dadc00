"""Measure speed at the paper's shapes with random pixels and weights: records per second, share of the peak, hours of a column.

    python benchmarks/paper_scale.py --quick                                       on one core of a CPU (five minutes)
    python benchmarks/paper_scale.py --device cuda --precision float32 tf32 bf16   on a GPU (a few minutes)

Work and shapes are those of Huang et al. 2024: CIFAR-10's 32 × 32 pixels stored as bytes and resized on the device to
224, ViT-S/16, 20,000 records, 33 models, half of the records in a training set, 30 epochs; the code is the audit's own.
A GEMM of 4,096 (on a CPU 1,024) in the same precision takes turns with the work, and the best round of each is
reported, so that other processes disturb both equally. Floating-point operations are counted by torch over one forward
and backward pass, with attention as plain products, without what a fused kernel computes twice; a private step is
counted as a plain one. On a CPU, seconds are processor time per thread.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mia_audit.learners.torch_module import TorchModel
from mia_audit.models.architecture import build
from mia_audit.models.inputs import Inputs
from mia_audit.privacy.catalogue import Job, Mechanism, mechanisms
from mia_audit.runtime.device import computing, make_deterministic
from mia_audit.signals.compute import SignalsTask, model_signals
from mia_audit.training.loop import fit
from mia_audit.training.section import Training
from mia_audit.training.task import Records

MODEL, SHAPE, CLASSES = "vit_small_patch16_224", (3, 224, 224), 10
POOL, MODELS, EPOCHS = 20_000, 33, 30
FACTS = {"kind": "image", "mean": 0.5, "std": 0.5}
OPTIONS = {"explain": ["logit"], "explained_class": "predicted"}
EXPLAINED = {
    "ixg + saliency": ("gradient", {"explainers": ["ixg", "saliency"]}, 1, 0),
    "gradient_shap, 5 samples": (
        "gradient_shap",
        {"explainers": ["gradient_shap"], "gradient_shap_samples": 5, "gradient_shap_sd": 0.001},
        5,
        1,
    ),
    "ig, 25 nodes": ("ig", {"explainers": ["ig"], "ig_nodes": 25}, 25, 1),
}
"""Family, options, number of forward and backward passes, and number of forward passes alone."""

PUBLISHED = {
    "H200": {"float32": 67, "tf32": 495, "bf16": 989},
    "H100 PCIe": {"float32": 51, "tf32": 378, "bf16": 756},
    "H100": {"float32": 67, "tf32": 495, "bf16": 989},
    "A100": {"float32": 19.5, "tf32": 156, "bf16": 312},
    "L40S": {"float32": 91.6, "tf32": 183, "bf16": 362},
    "A10": {"float32": 31.2, "tf32": 62.5, "bf16": 125},
    "L4": {"float32": 30.3, "tf32": 60, "bf16": 121},
}
"""Dense peaks of GPUs from their data sheets, in TFLOP/s."""


@dataclass
class Bench:
    """The settings of a measurement: the device, and the number of records in a run of one pass and in longer runs."""

    device: str
    batch: int
    records: int
    rounds: int

    def clock(self) -> float:
        if self.device == "cpu":
            return time.process_time() / torch.get_num_threads()
        torch.cuda.synchronize()
        return time.perf_counter()

    def seconds(self, work: Callable[[], object]) -> float:
        start = self.clock()
        work()
        return self.clock() - start

    def inputs(self, count: int) -> tuple[Inputs, np.ndarray]:
        random = np.random.default_rng(0)
        pixels = random.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
        return Inputs(pixels, FACTS, SHAPE, self.device), random.integers(0, CLASSES, count)

    def peak(self, precision: str) -> Callable[[], float]:
        """Return a function that multiplies square matrices in a precision and returns TFLOP/s."""
        side = 1024 if self.device == "cpu" else 4096
        kind = torch.bfloat16 if precision == "bf16" else torch.float32
        left, right = (torch.randn(side, side, device=self.device, dtype=kind) for _ in range(2))
        repeats = 4 if self.device == "cpu" else 50

        def run() -> float:
            def products() -> None:
                for _ in range(repeats):
                    left @ right

            return repeats * 2 * side**3 / self.seconds(products) / 1e12

        return run

    def explaining(self, name: str, precision: str) -> tuple[Callable[[], float], float]:
        """Return a function that computes a family of signals and returns records/s, and the GFLOP per record."""
        family, choices, both, forward = EXPLAINED[name]
        model = build(MODEL, {}, SHAPE, CLASSES, seed=0).to(self.device).eval().requires_grad_(False)
        count = self.records if family == "gradient" else max(4, self.records // 8)
        inputs, labels = self.inputs(count)
        task = SignalsTask(family, OPTIONS | choices | {"precision": precision}, 0)
        there, back = operations(model, SHAPE)
        each = both * (there + back) + forward * there
        asked = TorchModel(model, self.batch, lambda _: inputs)
        records = Records(labels, labels, {}, np.arange(count))
        return lambda: count / self.seconds(lambda: model_signals(asked, records, task)), each

    def training(self, mechanism: str, precision: str) -> tuple[Callable[[], float], float]:
        """Return a function that trains an epoch of one step and returns records/s, and a plain step's GFLOP per record."""
        model = build(MODEL, {}, SHAPE, CLASSES, seed=0).to(self.device)
        inputs, numbers = self.inputs(self.records)
        labels = torch.tensor(numbers, device=self.device)
        training = Training(epochs=1, batch=self.records, optimizer="sgd", learning_rate=1e-3)
        budget = float("inf") if mechanism == "none" else 8.0
        job = Job(
            model=model,
            records=self.records,
            epsilon=budget,
            training=training,
            micro_batch=self.batch,
            key=b"benchmark",
        )
        private = {} if mechanism == "none" else {"delta": 1e-5, "accountant": "rdp"}
        section = Mechanism(mechanism=mechanism, **private)

        def run() -> float:
            protection = mechanisms[mechanism].protect(section, job)
            with computing(model, precision):  # type: ignore[arg-type]
                return self.records / self.seconds(lambda: fit(job, protection, inputs, labels))

        return run, sum(operations(model, SHAPE))


def operations(model: torch.nn.Module, shape: tuple[int, ...]) -> tuple[float, float]:
    """Return the GFLOP of a record's forward and backward pass: to its pixels, and to the parameters that are not frozen.

    Attention is computed by plain products here, because torch's counter does not know the fused kernel of CPUs, which
    is a tenth of the operations of a ViT-S/16.
    """
    pixels = torch.zeros(1, *shape, device=next(model.parameters()).device, requires_grad=True)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        logits = model(pixels)
        there = counter.get_total_flops()
        logits.sum().backward()
    model.zero_grad()
    return there / 1e9, (counter.get_total_flops() - there) / 1e9


def measure(bench: Bench, precision: str) -> dict[str, float]:
    """Print a line per kind of work, and return records per second by its name."""
    product = bench.peak(precision)
    product()
    works = {name: bench.explaining(name, precision) for name in EXPLAINED}
    works |= {f"training, {name}": bench.training(name, precision) for name in ("none", "dp-sgd")}
    peak, rates = 0.0, {}
    for name, (run, _) in works.items():
        run()
        found = []
        for _ in range(bench.rounds):
            peak = max(peak, product())
            found.append(run())
        rates[name] = max(found)
    published = next((peaks for card, peaks in PUBLISHED.items() if card in name_of(bench.device)), {}).get(precision)
    told = f", published {published:g}" if published else ""
    print(f"\n{precision}: GEMM {peak:.3g} TFLOP/s{told}; share of {'the published' if published else 'that'} peak")
    print(f"{'work':28}{'GFLOP/record':>14}{'records/s':>12}{'TFLOP/s':>10}{'share':>8}")
    for name, (_, each) in works.items():
        speed = rates[name] * each / 1e3
        print(f"{name:28}{each:14.1f}{rates[name]:12.2f}{speed:10.3g}{speed / (published or peak):8.0%}", flush=True)
    return rates


def column(rates: dict[str, float]) -> None:
    """Print the hours of one data set's column of the paper: every model is trained, and explains 20,000 records in four ways."""
    explained = sum(POOL / rates[name] for name in EXPLAINED)
    for mechanism in ("none", "dp-sgd"):
        trained = EPOCHS * POOL / 2 / rates[f"training, {mechanism}"]
        hours = MODELS * (trained + explained) / 3600
        print(
            f"column of {MODELS} models, {mechanism}: {hours:,.2f} h (training {MODELS * trained / 3600:,.2f} h,"
            f" explaining {MODELS * explained / 3600:,.2f} h)"
        )


def name_of(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "CPU"


def main() -> None:
    """Measure every requested precision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", nargs="+", default=["float32"], choices=["float32", "tf32", "bf16"])
    parser.add_argument(
        "--records", type=int, default=2048, help="records of a timed run; ig and gradient_shap take an eighth"
    )
    parser.add_argument("--batch", type=int, default=256, help="records in memory at once")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="8 records, 3 rounds: for a CPU")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.device == "cuda":
        make_deterministic()  # as an audit does
    records, batch, rounds = (8, 8, 3) if options.quick else (options.records, options.batch, options.rounds)
    print(f"{MODEL} at 224 × 224 on {name_of(options.device)}, {options.threads} threads, torch {torch.__version__}")
    for precision in options.precision:
        column(measure(Bench(options.device, batch, records, rounds), precision))


if __name__ == "__main__":
    main()
