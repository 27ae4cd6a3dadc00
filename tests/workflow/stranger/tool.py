"""The wrapped model as two commands; tool.json holds the number of models and the section `training` of the audit."""

import json
import sys
from pathlib import Path

import numpy as np
from wrapped import KEY, asked, fit, learner

from mia_audit.seeds import seed_for

AUDIT = json.loads(Path("tool.json").read_text())


def train(records: str, labels: str, members: str, seed: str, checkpoints: str, model: str) -> None:
    """Train the model whose seed is given: its number is the one that gives that seed."""
    own = (*KEY[:3], "tool", *KEY[4:])
    shadow = next(number for number in range(AUDIT["models"]) if seed_for(*own, number) % 2**31 == int(seed))
    arrays = np.load(records), np.load(labels), np.load(members)
    trained = fit(*arrays, shadow, AUDIT["training"], Path(checkpoints), Path("killed-tool"))
    Path(model).mkdir()
    trained.save(Path(model))


def predict(records: str, model: str, out: str) -> None:
    """Write the logits."""
    np.save(out, learner().load(Path(model)).logits(asked(np.load(records))))


{"train": train, "predict": predict}[sys.argv[1]](*sys.argv[2:])
