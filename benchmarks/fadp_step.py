"""Measure what noise by feature importance adds to a private step, in one run on one thread.

    python benchmarks/fadp_step.py                       three models (about two minutes)
    python benchmarks/fadp_step.py --models mobilenet-8px --repeats 50

A step consists of gradients, clipping (flat, at 1), noise and optimizer (Adam). Time is CPU time, with the sides taking turns;
the ratio is the median over turns of a side's time divided by that of dp-sgd. `fadp` computes its mask once (public records)
or once per epoch (past gradients), which is timed separately; `fadp-literal` computes one per step.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mia_audit.models.architecture import build
from mia_audit.privacy.catalogue import Job, Mechanism, mechanisms
from mia_audit.training.section import Training

CLASSES = 10
MODELS: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "mobilenet-8px": ("mobilenet_groupnorm", {"width": 0.5, "stages": 2, "stem_stride": 1}, (1, 8, 8)),
    "mobilenet-32px": ("mobilenet_groupnorm", {"width": 0.5, "stages": 4, "stem_stride": 1}, (3, 32, 32)),
    "vit-32px": (
        "vision_transformer",
        {"img_size": 32, "patch_size": 4, "embed_dim": 192, "depth": 4, "num_heads": 3},
        (3, 32, 32),
    ),
}
SIDES: dict[str, dict[str, Any]] = {
    "none": {},
    "dp-sgd": {},
    "fadp": {},
    "fadp, past": {"importance": "past"},
    "fadp, groups": {"group_clips": (1, 1, 1, 1)},
    "fadp-literal": {"acknowledge_no_guarantee": True},
    "fadp-literal, batch": {"acknowledge_no_guarantee": True, "clipping": "batch"},
}
BATCH = 64


def data(shape: tuple[int, ...], seed: int) -> tuple[Tensor, Tensor]:
    """Return random records and labels."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(BATCH, *shape, generator=generator), torch.randint(CLASSES, (BATCH,), generator=generator)


def step_of(model: str, side: str) -> Callable[[], None]:
    """Return one step of a side on its own copy of the model."""
    name, parameters, shape = MODELS[model]
    built = build(name, parameters, shape, CLASSES, 0).train()
    mechanism = side.partition(",")[0]
    section = Mechanism(mechanism=mechanism, **({"clipping": "flat", "accountant": "rdp"} | SIDES[side]))
    budget = float("inf") if mechanism == "none" else 3.0
    job = Job(
        model=built,
        records=50 * BATCH,
        epsilon=budget,
        training=Training(batch=BATCH),
        micro_batch=BATCH,
        key=b"step",
        public=data(shape, 1),
    )
    protection = mechanisms[mechanism].protect(section, job)
    optimizer = torch.optim.Adam(built.parameters(), lr=1e-6, fused=True)
    inputs, labels = data(shape, 0)

    def step() -> None:
        protection.backward(inputs, labels)
        optimizer.step()

    return step


def measure(model: str, repeats: int) -> None:
    """Print one line per side."""
    steps = {side: step_of(model, side) for side in SIDES}
    times: dict[str, list[float]] = {side: [] for side in steps}
    for turn in range(repeats + 1):
        for side, step in steps.items():
            start = time.process_time()
            step()
            if turn:  # the first warms up
                times[side].append(time.process_time() - start)
    for side, mine in times.items():
        ratio = statistics.median(a / b for a, b in zip(mine, times["dp-sgd"], strict=True))
        print(f"{model:<16}{side:<14}{1000 * statistics.median(mine):8.1f} ms{ratio:8.2f}×", flush=True)


def main() -> None:
    """Measure the models asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for model in options.models:
        measure(model, options.repeats)


if __name__ == "__main__":
    main()
