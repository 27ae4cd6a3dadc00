"""Measure a private training step against a plain one and against Opacus's implementations, in one run on one thread.

    python benchmarks/dp_step.py                      eight models, every side (thirty minutes)
    python benchmarks/dp_step.py --models vit         one model (two to five minutes)
    python benchmarks/dp_step.py --sides "dp-sgd" "dp-sgd, vmap" "opacus ghost" --no-memory --out benchmarks/dp_step.tsv

A step is that of the defaults of a config: its way of computing gradients, and its micro-batch. It consists of gradients,
clipping (flat, at 1), noise and optimizer. Time is CPU time, with the sides taking turns. Memory is what steps add to the
peak of a separate process; this project's private step is also measured at sixteen times the batch. The noise's share is
the part of this project's private step that draws noise and adds it to the clipped sum. A side that cannot train a model
prints the reason.
"""

import argparse
import math
import os
import resource
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mia_audit.config.schema import Compute
from mia_audit.models.architecture import build
from mia_audit.privacy.catalogue import Job, Mechanism, PerRecord, mechanisms
from mia_audit.privacy.noise import Stream
from mia_audit.training.section import Training
from mia_audit.training.trainable import choose_part

IMAGE = {"img_size": 224, "patch_size": 16, "embed_dim": 192, "depth": 4, "num_heads": 3}
SMALL = {**IMAGE, "img_size": 32, "patch_size": 4}
CLASSES = 10
MICRO_BATCH = Compute().micro_batch

MODELS: dict[str, tuple[str, dict[str, Any], tuple[int, ...], int]] = {
    "vit": ("vision_transformer", IMAGE, (3, 224, 224), 32),
    "vit-mean": ("vision_transformer", {**IMAGE, "global_pool": "avg"}, (3, 224, 224), 32),
    "vit-32px": ("vision_transformer", SMALL, (3, 32, 32), 64),
    "vit-32px-mean": ("vision_transformer", {**SMALL, "global_pool": "avg"}, (3, 32, 32), 64),
    "beit": ("beit_base_patch16_224", IMAGE, (3, 224, 224), 32),
    "relative-position": ("vit_relpos_base_patch16_224", IMAGE, (3, 224, 224), 32),
    "cnn": ("cnn", {}, (1, 28, 28), 250),
    "mlp": ("mlp", {"width": 256, "depth": 3}, (64,), 256),
}

Step = Callable[[Tensor, Tensor], None]


def ours(
    mechanism: str, part: Literal["all", "head", "bias"] = "all", way: PerRecord | None = None
) -> Callable[[nn.Module, int], Step]:
    """Return a step of this project's loop, for all or part of the parameters, with one method of per-record gradients."""

    def make(model: nn.Module, batch: int) -> Step:
        training = Training(batch=batch, per_record=way, trainable=part)
        choose_part(model, training)
        job = Job(
            model=model,
            records=50 * batch,
            epsilon=8.0 if mechanism == "dp-sgd" else math.inf,
            training=training,
            micro_batch=MICRO_BATCH,
            key=b"step",
        )
        options = {"clipping": "flat", "accountant": "rdp"} if mechanism == "dp-sgd" else {}
        section = Mechanism(mechanism=mechanism, **options)
        protection = mechanisms[mechanism].protect(section, job)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-6, fused=True)

        def step(inputs: Tensor, labels: Tensor) -> None:
            protection.backward(inputs, labels)
            optimizer.step()

        return step

    return make


def opacus(mode: str) -> Callable[[nn.Module, int], Step]:
    """Return a step of Opacus: `hooks`, `functorch`, or `ghost` (two passes, without storing per-record gradients)."""

    def make(model: nn.Module, batch: int) -> Step:
        from opacus.grad_sample import wrap_model
        from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
        from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

        inner = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
        terms = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": batch}
        if mode == "ghost":
            wrapped = wrap_model(model, "ghost", max_grad_norm=1.0, use_ghost_clipping=True)
            optimizer = DPOptimizerFastGradientClipping(inner, **terms)
            criterion: Any = DPLossFastGradientClipping(wrapped, optimizer, nn.CrossEntropyLoss())
        else:
            wrapped, optimizer, criterion = wrap_model(model, mode), DPOptimizer(inner, **terms), nn.CrossEntropyLoss()

        def step(inputs: Tensor, labels: Tensor) -> None:
            optimizer.zero_grad()
            criterion(wrapped(inputs), labels).backward()
            optimizer.step()

        return step

    return make


SIDES: dict[str, Callable[[nn.Module, int], Step]] = {
    "none": ours("none"),
    "dp-sgd": ours("dp-sgd"),
    "dp-sgd, vmap": ours("dp-sgd", way="vmap"),
    "dp-sgd, head": ours("dp-sgd", "head"),
    "dp-sgd, bias": ours("dp-sgd", "bias"),
    "opacus hooks": opacus("hooks"),
    "opacus functorch": opacus("functorch"),
    "opacus ghost": opacus("ghost"),
}


def data(shape: tuple[int, ...], batch: int) -> tuple[Tensor, Tensor]:
    """Return random records and labels."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(batch, *shape, generator=generator), torch.randint(CLASSES, (batch,), generator=generator)


def step_for(name: str, side: str, batch: int) -> Callable[[], None]:
    """Return one step of a side on its own copy of the model."""
    model, parameters, shape, _ = MODELS[name]
    step = SIDES[side](build(model, parameters, shape, CLASSES, 0).train(), batch)
    inputs, labels = data(shape, batch)
    return lambda: step(inputs, labels)


def noise_for(name: str, side: str) -> Callable[[], None] | None:
    """Return the noise of this project's private step for the side's number of parameters; None for other sides."""
    if not side.startswith("dp-sgd"):
        return None
    architecture, parameters, shape, _ = MODELS[name]
    model = build(architecture, parameters, shape, CLASSES, 0)
    part = side.partition(", ")[2]
    choose_part(model, Training(trainable=part if part in ("head", "bias") else "all"))
    total = torch.zeros(sum(p.numel() for p in model.parameters() if p.requires_grad), dtype=torch.float64)
    stream = Stream(b"step", "noise")

    def draw() -> None:
        stream.add_noise(total, 1.0)

    return draw


def added_memory(name: str, side: str, batch: int, steps: int) -> float:
    """Return what steps add to the peak of a child process, in MB."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            step = step_for(name, side, batch)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a side that cannot is reported when it is timed
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for _ in range(steps):
                step()
            os.write(write, str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as pipe:
        return float(pipe.read() or "nan") / 1024


def memory(name: str, side: str) -> str:
    """Describe the memory that a side adds at the model's batch and, for private sides, at sixteen times the batch."""
    batch = MODELS[name][3]
    text = f"{added_memory(name, side, batch, 2):7.0f} MB"
    return text + (
        f", {added_memory(name, side, 16 * batch, 1):.0f} MB at 16×" if side in ("dp-sgd", "dp-sgd, vmap") else ""
    )


def seconds(call: Callable[[], None]) -> float:
    """Return the CPU time of a call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def measure(name: str, sides: list[str], repeats: int, added: dict[str, str]) -> list[str]:
    """Print a line a side, and return those of a table."""
    batch = MODELS[name][3]
    steps: dict[str, Callable[[], None]] = {}
    for side in sides:
        try:
            step = step_for(name, side, batch)
            step()
            steps[side] = step
        except Exception as error:  # a library's failure to train is part of the result
            print(f"{name:<19}{side:<22}cannot: {str(error).splitlines()[0][:90]}", flush=True)
    noises = {side: noise for side in steps if (noise := noise_for(name, side))}
    times: dict[str, list[float]] = {side: [] for side in steps}
    shares: dict[str, list[float]] = {side: [] for side in noises}
    for _ in range(repeats):
        for side, step in steps.items():
            times[side].append(seconds(step))
            if side in noises:
                shares[side].append(seconds(noises[side]) / times[side][-1])
    lines = []
    for side, mine in times.items():
        ratio = statistics.median(a / b for a, b in zip(mine, times["none"], strict=True))
        share = f"{statistics.median(shares[side]):8.1%} noise" if side in shares else ""
        print(
            f"{name:<19}{side:<22}{1000 * statistics.median(mine):8.1f} ms{ratio:8.2f}×{added[side]}{share}", flush=True
        )
        lines.append(f"{name}\t{side}\t{1000 * statistics.median(mine):.1f}\t{ratio:.2f}")
    return lines


def main() -> None:
    """Measure the models asked for; memory first, while the heap that children inherit is small."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-memory", action="store_true", help="measure times only")
    parser.add_argument("--out", type=Path, help="also write the times as a table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sides = list(dict.fromkeys(["none", *options.sides]))
    added = {name: {side: "" if options.no_memory else memory(name, side) for side in sides} for name in options.models}
    lines = ["model\tstep\tmilliseconds\tratio"]
    for name in options.models:
        lines += measure(name, sides, options.repeats, added[name])
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
