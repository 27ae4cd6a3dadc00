"""Compare one pass for all signals of the gradient family with plain captum loops and with the machine's GEMM, in one run.

    python benchmarks/fused_pass.py                                          a small transformer, 8×8 pixels (seconds)
    python benchmarks/fused_pass.py --model vit_small_patch16_224 --records 8 --batch 4 --repeats 3      224×224 (minutes)

A plain loop is what an audit would write with captum alone: a forward pass for logits, loss and confidence, then
InputXGradient and Saliency for every quantity, all on a model whose parameters are left as training leaves them; once a
record at a time, and once a batch at a time. All sides return the same columns; the largest relative difference between
them is printed beside the ratios. The share is relative to a float32 GEMM of size 1,024, counting the operations that
the formulas require. All sides run on one thread in turns; seconds are processor time, and each side's best round is
reported.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import captum.attr
import numpy as np
import torch
from torch import Tensor, nn

from mia_audit.explain.batch import summarise
from mia_audit.learners.torch_module import TorchModel, confidence, loss
from mia_audit.models.architecture import build
from mia_audit.models.inputs import Inputs, to_input
from mia_audit.signals.compute import SignalsTask, model_signals
from mia_audit.signals.families import shared
from mia_audit.signals.name import stem
from mia_audit.training.task import Records
from paper_scale import operations

SMALL = {"img_size": 8, "patch_size": 2, "embed_dim": 48, "depth": 2, "num_heads": 4}
FACTS = {"kind": "image", "mean": 0.5, "std": 0.5}
CLASSES = 10
SIDE = 1024
CAPTUM = {"ixg": captum.attr.InputXGradient, "saliency": captum.attr.Saliency}

Signals = dict[str, np.ndarray]


def plain(model: nn.Module, records: np.ndarray, labels: np.ndarray, task: SignalsTask) -> Signals:
    """Return the same columns from one captum call per explainer and quantity."""
    forwards: dict[str, Any] = {"logit": model, "probability": lambda inputs: model(inputs).softmax(dim=1)}
    parts: list[dict[str, Tensor]] = []
    for start in range(0, len(records), task.batch):
        inputs = to_input(records[start : start + task.batch], FACTS)
        truth = torch.from_numpy(labels[start : start + task.batch])
        with torch.no_grad():
            logits = model(inputs)
        signals = {"loss": loss(logits, truth), "confidence": confidence(logits, truth)}
        for name in task.options["explainers"]:
            for quantity in task.options["explain"]:
                method = CAPTUM[name](forwards[quantity])
                attributions = method.attribute(inputs.requires_grad_(), target=logits.argmax(dim=1)).detach()
                column = stem(name, quantity, "predicted")
                signals |= {f"{column}_{summary}": values for summary, values in summarise(attributions).items()}
        parts.append(signals)
    return {name: torch.cat([part[name] for part in parts]).float().numpy() for name in parts[0]}


def seconds(sides: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return each side's best time; the sides take turns after one unmeasured round."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats + 1):
        for name, side in sides.items():
            start = time.process_time()
            side()
            times[name].append(time.process_time() - start)
    return {name: min(values[1:]) for name, values in times.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", default="vision_transformer", help="any timm model; the default is a small transformer"
    )
    parser.add_argument("--records", type=int, default=1200)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--alone", type=int, default=64, help="at most so many records are done one at a time")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    small = options.model == "vision_transformer"
    shape = (1, 8, 8) if small else (3, 224, 224)
    random = np.random.default_rng(0)
    records = random.integers(0, 256, (options.records, *shape)).astype(np.uint8)
    labels = random.integers(0, CLASSES, options.records)
    trained, frozen = (build(options.model, SMALL if small else {}, shape, CLASSES, seed=0).eval() for _ in range(2))
    frozen.requires_grad_(False)
    model = TorchModel(frozen, options.batch, lambda part: Inputs(part.values, FACTS, shape))
    there, back = operations(frozen, shape)
    left, right = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    few = min(options.records, options.alone)
    print(f"{options.model}, {options.records} records of {'×'.join(map(str, shape))}, batch {options.batch}")
    for explain in (["logit"], ["logit", "probability"]):
        choices = {"explainers": shared(), "explain": explain, "explained_class": "predicted"}
        task = SignalsTask("gradient", choices, seed=0, batch=options.batch)
        sides: dict[str, Callable[[], Signals]] = {
            "alone": lambda task=task: plain(trained, records[:few], labels[:few], replace(task, batch=1)),
            "batched": lambda task=task: plain(trained, records, labels, task),
            "fused": lambda task=task: model_signals(
                model, Records(records, labels, FACTS, np.arange(len(labels))), task
            ),
        }
        reference, ours = sides["batched"](), sides["fused"]()
        difference = max(float(np.max(np.abs(ours[name] / reference[name] - 1))) for name in reference)
        taken = seconds({**sides, "gemm": lambda: left @ right}, options.repeats)
        alone, batched, fused = (
            taken["alone"] / few,
            taken["batched"] / options.records,
            taken["fused"] / options.records,
        )
        share = (there + len(explain) * back) / fused / (2 * SIDE**3 / 1e9 / taken["gemm"])
        print(
            f"  {' + '.join(explain):20} ms a record: captum, one at a time {1e3 * alone:.2f}, captum, batches {1e3 * batched:.2f},"
            f" one pass {1e3 * fused:.2f}: ratios {alone / fused:.2f} and {batched / fused:.2f};"
            f" share of GEMM {share:.0%}; largest relative difference {difference:.1e}"
        )


if __name__ == "__main__":
    main()
