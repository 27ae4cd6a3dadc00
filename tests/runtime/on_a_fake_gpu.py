"""Train under every mechanism and explain with every explainer on a fake GPU and on the CPU; print a line per comparison.

Both devices have to give the same numbers up to rounding: in float32, after a kill as well, and from pools that are
converted whole, resident in their stored type, or read from their memory map. TF32 and bf16 have to run.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from fake_gpu import on_the_gpu

# isort: split
import numpy as np
import torch

from mia_audit.explain import explainers
from mia_audit.explain.section import Explainers
from mia_audit.explanation_metrics.study import Task as Measuring
from mia_audit.explanation_metrics.study import explained
from mia_audit.learners import Records, TrainedOn
from mia_audit.learners.kinds.torch_module import TorchModel
from mia_audit.models import Inputs, construct, describe, inputs
from mia_audit.privacy.catalogue import Mechanism, mechanisms
from mia_audit.runtime.determinism import make_deterministic
from mia_audit.signals.compute import Task, model_signals
from mia_audit.signals.families import families
from mia_audit.training.checkpoints import Checkpoint
from mia_audit.training.section import Training
from mia_audit.training.shadow import Recipe, Shadow, train_shadow

RECORDS, SHAPE, CLASSES = 16, (1, 8, 8), 3
PIXELS = np.random.default_rng(0).integers(0, 256, (RECORDS, *SHAPE), dtype=np.uint8)
LABELS = np.arange(RECORDS) % CLASSES
MEMBERS = np.arange(RECORDS) % 2 == 0
MODELS = {
    "vision_transformer": {"patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 2},
    "locally-linear-maps": {"maps": 3, "projection": 10},
}
SMALL = {"ig_nodes": 2, "gradient_shap_samples": 2, "smoothgrad_samples": 2, "local_steps": 3}
MEASURES = {"perturbations": 2, "removed_share": 0.2, "radius": 0.1, "curve_steps": 2}


class Killed(Exception):
    """Raised in place of a signal that ends the process."""


def architecture(model: str) -> dict[str, Any]:
    return describe("tiny", model, MODELS[model], SHAPE, CLASSES)


def records(device: str) -> Inputs:
    return Inputs(PIXELS, {"kind": "image"}, SHAPE, device)


def trained(device: str, section: dict[str, Any], precision: str, killed_at: int = 0) -> Shadow:
    """Train a model for four steps, interrupted at a step where `killed_at` says so."""
    private = {} if section["mechanism"] == "none" else {"delta": 1e-3, "accountant": "rdp"}
    mechanism = Mechanism(**private, **section)
    epsilon = float("inf") if mechanism.mechanism == "none" else 8.0
    training = Training(epochs=4, batch=8, precision=precision)  # type: ignore[arg-type]
    data, labels = records(device), torch.tensor(LABELS, device=device)
    terms = (architecture("vision_transformer"), None, mechanism, training, epsilon, 4, (0, "gpu"), (data, labels))
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
                return train_shadow(Recipe(*terms), 0, data, labels, MEMBERS, progress, checkpoint)
            except Killed:
                pass


def weights_of(shadow: Shadow) -> dict[str, np.ndarray]:
    weights = {name: value.detach().cpu().numpy() for name, value in shadow.model.state_dict().items()}
    return weights | ({"mask": shadow.masks.channels.numpy()} if shadow.masks else {})


def signals(device: str, model: str, methods: list[str], precision: str) -> dict[str, np.ndarray]:
    """Return all signals of an untrained model."""
    section = Explainers(methods=tuple(methods), explain=("logit", "probability"), precision=precision, **SMALL)  # type: ignore[arg-type]
    built = construct(architecture(model), seed=1).to(device).eval().requires_grad_(False)
    data = records(device)
    pool = Records(PIXELS, LABELS, {"kind": "image"}, np.arange(RECORDS))
    found = {}
    for family, options in families(section, model).items():
        asked = TorchModel(built, batch=11, prepare=lambda _: data)
        found |= model_signals(asked, pool, Task(family, options, 0), TrainedOn(pool, MEMBERS, 0))
    return found


def measures(device: str) -> dict[str, np.ndarray]:
    """Return the explanation metrics of an untrained model that need passes through it."""
    built = construct(architecture("vision_transformer"), seed=1).to(device).eval().requires_grad_(False)
    options = {"explain": ["logit"], "explained_class": "predicted"}
    names = ["infidelity", "sensitivity", "deletion", "insertion"]
    sample = Records(PIXELS, LABELS, {"kind": "image"}, np.arange(RECORDS))[:6]
    asked = TorchModel(built, 256, lambda part: Inputs(part.values, {"kind": "image"}, SHAPE, device))
    told = explained(asked, sample, Measuring(["ixg", "gradcam"], options, names, MEASURES, 0, 4, SHAPE))
    return {f"{key} {name}": values for key, one in told.items() for name, values in one.probed.items()}


def compare(what: str, here: dict[str, np.ndarray], there: dict[str, np.ndarray]) -> None:
    print(what, flush=True)
    assert list(here) == list(there)
    for name, values in here.items():
        np.testing.assert_allclose(there[name], values, rtol=1e-3, atol=1e-5, err_msg=f"{what}: {name}")


def main() -> None:
    """Compare everything on both devices."""
    acknowledged = {"fadp-literal": {"acknowledge_no_guarantee": True}}
    kept = [{"mechanism": name} | acknowledged.get(name, {}) for name in mechanisms.names() if mechanisms[name].steps]
    for section in [*kept, {"mechanism": "fadp", "importance": "past"}]:
        here, there = (weights_of(trained(device, section, "float32")) for device in ("cpu", "cuda"))
        compare(f"{section}", here, there)
        compare(f"{section}, killed", there, weights_of(trained("cuda", section, "float32", killed_at=3)))
    for precision in ("tf32", "bf16"):
        for name in ("none", "dp-sgd"):
            assert np.isfinite(trained("cuda", {"mechanism": name}, precision).epochs[-1].loss)
    every = [*explainers.names(), "private_local:8", "captum:NoiseTunnel+Saliency"]
    for model in MODELS:
        own = [name for name in every if model in explainers[name].models] or every
        compare(model, *(signals(device, model, own, "float32") for device in ("cpu", "cuda")))
    signals("cuda", "vision_transformer", ["ig"], "bf16")
    compare("measures", *(measures(device) for device in ("cpu", "cuda")))
    whole = signals("cuda", "vision_transformer", [], "float32")
    inputs.READY = 0
    compare("as stored", whole, signals("cuda", "vision_transformer", [], "float32"))
    inputs.SHARE = 0.0
    compare("memory-mapped", whole, signals("cuda", "vision_transformer", [], "float32"))
    trained("cuda", {"mechanism": "none"}, "float32")


if __name__ == "__main__":
    make_deterministic()
    with on_the_gpu():
        main()
