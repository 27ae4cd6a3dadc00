"""Measure training of classifiers alone on shared features against training them through the whole model, in one run.

    python benchmarks/shared_features.py                   ViT-S at 224 pixels (six minutes on one core)

Both sides train the same classifiers on the same batches with the same noise, and evaluate them on all records. Time is CPU
time on one thread, from the initial weights to the report. The whole model is trained `--slow` times, and its time is scaled to
the number of models, which all cost the same.
"""

import argparse
import math
import time
from collections.abc import Iterator

import numpy as np
import torch

from mia_audit.models.architecture import construct, describe
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.training.section import Training
from mia_audit.training.shadow import Recipe, train_shadow
from mia_audit.training.trainable import Features


class WholeModel(Features):
    """Train the classifier through the whole model."""

    def __call__(self, model, training, inputs, micro_batch, apart=False):  # type: ignore[no-untyped-def]
        return model, inputs


def compared(
    model: str = "vit_small_patch16_224", records: int = 64, epochs: int = 5, models: int = 33, slow: int = 2
) -> Iterator[tuple[str, float, float, float]]:
    """Yield mechanism, CPU seconds of whole models and on shared features, and the largest relative difference of test losses."""
    torch.set_num_threads(1)
    architecture = describe("head", model, {}, (3, 224, 224), 10)
    start = construct(architecture, seed=1).state_dict()
    public = {name: value for name, value in start.items() if not name.startswith("head.")}
    inputs = torch.randn(records, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    labels, members = torch.arange(records) % 10, np.arange(records) % 2 == 0
    training = Training(epochs=epochs, batch=16, trainable="head", learning_rate=1e-2)
    for name, epsilon in (("none", math.inf), ("dp-sgd", 8.0)):
        seconds, losses = [], []
        for features, count in ((WholeModel(), slow), (Features(), models)):
            recipe = Recipe(
                architecture, public, Mechanism(mechanism=name), training, epsilon, 16, (0, "heads"), features=features
            )
            begun = time.process_time()
            trained = [train_shadow(recipe, shadow, inputs, labels, members) for shadow in range(count)]
            seconds.append((time.process_time() - begun) / count * models)
            losses.append([one.test_loss for one in trained][:slow])
        yield name, *seconds, max(abs(a - b) / b for a, b in zip(*losses, strict=True))


def main() -> None:
    """Print the CPU seconds of both sides, and their ratio, without and with DP-SGD."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="vit_small_patch16_224", help="a model of timm")
    parser.add_argument(
        "--records", type=int, default=64, help="records of the pool, half of them in a training set (64)"
    )
    parser.add_argument("--epochs", type=int, default=5, help="epochs (5)")
    parser.add_argument("--models", type=int, default=33, help="models on shared features (33)")
    parser.add_argument("--slow", type=int, default=2, help="whole models (2)")
    options = vars(parser.parse_args())
    for name, whole, shared, apart in compared(**options):
        print(
            f"{name}: {options['models']} classifiers of {options['model']}: whole models {whole:.0f} s, shared features"
            f" {shared:.1f} s, ratio {whole / shared:.1f}; test losses differ by {apart:.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
