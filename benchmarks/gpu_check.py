"""Check on a real GPU what the tests check only on a CPU and on simulated GPUs; prints a table.

    make gpu-check                        (python benchmarks/gpu_check.py; at most eight minutes)

The exit code is 0 if all rows are as expected, 1 if one is not, and 2 without a GPU. Checks for every device are in
benchmarks/device_checks.py.
"""

import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr

import numpy as np
import torch

from device_checks import MAPPED, ON_ANY, RESIDENT, Arrays, Row, placed, pool_of
from mia_audit.learners.torch_module import TorchModel
from mia_audit.models.architecture import construct, describe
from mia_audit.models.inputs import Inputs
from mia_audit.privacy.catalogue import Job, Mechanism, mechanisms
from mia_audit.runtime.machine import installed_gpus
from mia_audit.signals.compute import SignalsTask, model_signals
from mia_audit.training.section import Training
from mia_audit.training.task import Records

LARGE = ("vit_small_patch16_224", (3, 224, 224), 10)
"""The model and shapes on which memory and speed are measured, as in the paper."""

HOLDER = """
import sys
from mia_audit.runtime.machine import acquire_gpu
print(acquire_gpu("auto", lambda: sys.argv[1:]), flush=True)
sys.stdin.read()
"""


def locks(gpus: Sequence[str]) -> Iterator[Row]:
    """Check that as many processes as GPUs lock one each, and that a further one waits and gets that of a killed process."""
    with tempfile.TemporaryDirectory() as folder:
        hidden = {"CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID"}
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        environment["XDG_RUNTIME_DIR"] = (
            folder  # a separate folder of locks, so that an audit on this machine keeps its GPUs
        )

        def holder() -> "subprocess.Popen[str]":
            words = [sys.executable, "-c", HOLDER, *gpus]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            return subprocess.Popen(words, env=environment, text=True, **pipes)  # type: ignore[call-overload,no-any-return]

        holders = [holder() for _ in gpus]
        try:
            taken = [one.stdout.readline().strip() for one in holders if one.stdout]
            yield Row("locks", "a GPU a process", ", ".join(taken), sorted(taken) == sorted(gpus))
            holders.append(waiting := holder())
            assert waiting.stderr and waiting.stdout
            waited = waiting.stderr.readline().startswith("waiting for GPU")
            holders[0].kill()
            freed = waiting.stdout.readline().strip()
            says = f"{'waited' if waited else 'did not wait'}, then {freed}"
            yield Row("locks, one process more", f"waits, then {taken[0]}", says, waited and freed == taken[0])
        finally:
            for one in holders:
                one.kill()
                one.communicate()


def resident_memory(device: str) -> Iterator[Row]:
    """Check that a resident pool takes its size in GPU memory, and a memory-mapped one nothing."""
    with tempfile.TemporaryDirectory() as folder:
        stored = pool_of(folder, 500_000)
        for name, how, expected in (("resident", RESIDENT, 1.0), ("memory-mapped", MAPPED, 0.0)):
            before = torch.cuda.memory_allocated()
            pool = placed(stored, device, *how)
            share = (torch.cuda.memory_allocated() - before) / stored.nbytes
            says = f"{share:.2f} of the pool's bytes"
            yield Row(f"GPU memory, {name}", f"{expected:.2f} of the pool's bytes", says, abs(share - expected) < 0.1)
            del pool


def halving(device: str) -> Iterator[Row]:
    """Check that smaller batches, after memory runs out, give the same signals and the same private gradient."""
    name, shape, classes = LARGE
    described = describe("large", name, {}, shape, classes)
    pixels = np.random.default_rng(0).integers(0, 256, (64, *shape), dtype=np.uint8)
    data = Inputs(pixels, {"kind": "image"}, shape, device)
    pool = Records(pixels, np.zeros(64, dtype=np.int64), {"kind": "image"}, np.arange(64))
    labels = torch.zeros(64, dtype=torch.long, device=device)

    def explain() -> Arrays:
        model = construct(described, seed=0).to(device).eval().requires_grad_(False)
        options = {"explain": ["logit"], "explained_class": "predicted", "explainers": ["ixg"]}
        return model_signals(TorchModel(model, 64, lambda _: data), pool, SignalsTask("gradient", options, 0))

    def step() -> Arrays:
        model = construct(described, seed=0).to(device)
        job = Job(
            model=model, records=640, epsilon=8.0, training=Training(epochs=1, batch=64), micro_batch=64, key=b"halving"
        )
        protection = mechanisms["dp-sgd"].protect(Mechanism(mechanism="dp-sgd", delta=1e-5, accountant="rdp"), job)
        protection.backward(data[0:64], labels)
        return {"gradient": torch.cat([value.grad.flatten() for value in model.parameters()]).cpu().numpy()}

    for what, work in (("explaining", explain), ("a private step", step)):
        whole = work()
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info()[0]
        weights = described["stored_bytes"]
        left = 20 * weights + 20 * described["activation_bytes"]
        filler = torch.empty(max(free - left, 0), dtype=torch.uint8, device=device)
        with redirect_stderr(io.StringIO()) as log:
            halved = work()
        del filler
        lines = log.getvalue().splitlines()
        far = max(float(np.abs(halved[key] - one).max() / (np.abs(one).max() + 1e-9)) for key, one in whole.items())
        says = f"{lines[-1] if lines else 'memory never ran out'}; {far:.1e}"
        yield Row(f"{what} in little memory", "fewer at once, the same to 1e-3", says, bool(lines) and far < 1e-3)


def speed(device: str) -> Iterator[Row]:
    """Compare records per second at the paper's shapes with a third of the data sheet's peak."""
    from paper_scale import PUBLISHED, Bench, measure, name_of

    peaks = next((known for gpu, known in PUBLISHED.items() if gpu in name_of(device)), {})
    for kind, share in (("float32", 0.5), ("tf32", 0.19), ("bf16", 0.31)):
        rates = measure(Bench(device, 256, 512, 2), kind)
        wanted = share * peaks.get(kind, 0.0) * 1e3 / 19.1
        rate = rates["ixg + saliency"]
        expected = f"{wanted:,.0f} records/s" if wanted else "unknown: no data sheet of this GPU"
        yield Row(f"ixg + saliency, {kind}", expected, f"{rate:,.0f} records/s", rate >= wanted)
        slower = rates["training, none"] / rates["training, dp-sgd"]
        yield Row(f"dp-sgd step / plain step, {kind}", "at most 1.5", f"{slower:.2f}", slower <= 1.5)


ON_A_GPU: tuple[Callable[[str], Iterator[Row]], ...] = (resident_memory, halving, speed)
"""Checks of a GPU's own memory and speed."""


def main() -> int:
    """Run all checks, print the table; return the exit code."""
    gpus = installed_gpus()
    if not (gpus and torch.cuda.is_available()):
        print("gpu-check: no GPU here, or torch sees none: `mia-audit check` says why", file=sys.stderr)
        return 2
    from mia_audit.runtime.device import device_for

    device, start = device_for(1, "cuda"), time.monotonic()
    rows = list(locks(gpus))
    for check in (*ON_ANY, *ON_A_GPU):
        rows += check(device)
    print(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}, {time.monotonic() - start:.0f} s\n")
    print("| check | expected | measured | |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row.check} | {row.expected} | {row.measured} | {'ok' if row.good else 'NOT AS EXPECTED'} |")
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
