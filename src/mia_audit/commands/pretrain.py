"""`mia-audit pretrain`: train the public model that shadow models start from."""

import argparse
import json
import shutil
from pathlib import Path

from mia_audit.compute.cards import take_card
from mia_audit.config.load import parse
from mia_audit.config.schema import Mechanism, Training
from mia_audit.errors import UserError
from mia_audit.pools.files import read_records
from mia_audit.storage import sha256, write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--pool", required=True, type=Path, help="folder of the pool")
    parser.add_argument("--architecture", required=True, type=Path, help="architecture.json")
    parser.add_argument(
        "--spec", required=True, help='JSON: {"seed", "dataset", "architecture", "pretraining": the section}'
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of this process")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--checkpoints", type=Path, help="folder to resume from after a kill; nothing is kept without")
    parser.add_argument("--checkpoint-seconds", type=float, default=60.0, help="least time between two checkpoints")
    parser.add_argument("--out", required=True, type=Path, help="public.safetensors; public.json goes beside it")


def run(options: argparse.Namespace) -> None:
    """Write the public model's weights and how well it does."""
    take_card(options.device)
    import numpy as np
    import torch

    from mia_audit.models import Inputs, read_architecture, save_weights, taken_by
    from mia_audit.training.checkpoints import Checkpoint, identity
    from mia_audit.training.device import batch_for, device_for
    from mia_audit.training.progress import reporter
    from mia_audit.training.shadows import Recipe, train_shadow

    spec = json.loads(options.spec)
    training = parse(Training, spec["pretraining"], f"architectures.{spec['architecture']}.pretraining")
    architecture = read_architecture(options.architecture)
    public = read_records(options.pool, "public")
    count = len(public.labels)
    if count == 0:
        raise UserError(
            f"architectures.{spec['architecture']}.pretrained: no public records to train on:"
            f" set datasets.{spec['dataset']}.public to a number of records"
        )
    device = device_for(options.threads, options.device)
    batch = batch_for(architecture, training.batch, device)
    inputs = Inputs(public.data, taken_by(architecture, public.facts), architecture["input_shape"], device)
    labels = torch.tensor(public.labels, dtype=torch.long, device=device)
    key = (spec["seed"], "pretrain", spec["dataset"], spec["architecture"])
    recipe = Recipe(architecture, None, Mechanism(mechanism="none"), training, float("inf"), batch, key)
    files = {path.name: sha256(path) for path in (options.pool / "public.parquet", options.architecture)}
    same = identity(spec=spec, torch=torch.__version__, compute=[device, options.threads], files=files)
    kept = options.checkpoints / "public" if options.checkpoints else None
    checkpoint = Checkpoint(kept, same, options.checkpoint_seconds)
    with reporter() as report:
        report.begin("public model", training.epochs, count)
        trained = train_shadow(recipe, 0, inputs, labels, np.ones(count, dtype=bool), report.step, checkpoint)
        report.end(f"accuracy {trained.train_accuracy:.3f} on {count} public records")
    facts = {
        "records": count,
        "train_accuracy": trained.train_accuracy,
        "loss": trained.epochs[-1].loss,
        "steps": trained.epochs[-1].steps,
    }
    save_weights(trained.model, options.out)
    write_json(options.out.with_suffix(".json"), facts)
    if kept:
        shutil.rmtree(kept, ignore_errors=True)
