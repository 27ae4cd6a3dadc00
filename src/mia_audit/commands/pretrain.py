"""`mia-audit pretrain`: train the public model from which shadow models start."""

import argparse
import shutil
from pathlib import Path

from mia_audit.commands._arguments import add_pool, add_run, add_spec
from mia_audit.config.specs import PretrainingSpec
from mia_audit.errors import UserError
from mia_audit.planning.limits import Run
from mia_audit.pools.store import read_records
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.runtime.gpus import acquire_gpu
from mia_audit.storage import sha256, write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, PretrainingSpec)
    add_pool(parser)
    parser.add_argument("--architecture", required=True, type=Path, help="architecture.json")
    add_run(parser)
    parser.add_argument(
        "--out",
        required=True,
        type=Path,
        help="public.safetensors; beside it go public.json and .checkpoints",
    )


def run(options: argparse.Namespace) -> None:
    """Write the public model's weights, and a JSON file of its accuracy and loss on the public and on the audited records.

    The public model was not trained on the audited records. The report shows its accuracy and loss on them as the start
    of private training.
    """
    stated = Run.read(options.run).compute
    acquire_gpu(stated.device)
    import numpy as np

    from mia_audit.learners import Compute, Records, TorchBackedModel, TrainingTask, open_learner
    from mia_audit.models import save_weights
    from mia_audit.runtime.progress import reporter
    from mia_audit.training import outputs
    from mia_audit.training.block import report_of
    from mia_audit.training.checkpoints import Checkpoint
    from mia_audit.training.identity import identity
    from mia_audit.training.report import mean

    spec = PretrainingSpec.read(options.spec)
    training = spec.pretraining
    compute = Compute(stated.device, options.threads, training.batch)
    _, learner = open_learner(options.architecture, compute)
    public = Records.of(read_records(options.pool, "public"))
    if len(public) == 0:
        raise UserError(
            f"architectures.{spec.architecture}.pretrained: no public records to train on:"
            f" set datasets.{spec.dataset}.public to a number of records"
        )
    files = {path.name: sha256(path) for path in (options.pool / "public.parquet", options.architecture)}
    key = identity(spec=spec.contents(), environment=dict(learner.environment), files=files)
    folder = options.out.parent / ".checkpoints" / "public"
    with reporter() as progress:
        progress.begin("public model", training.epochs, len(public))
        task = TrainingTask(
            public,
            np.ones(len(public), dtype=bool),
            training,
            Mechanism(mechanism="none"),
            float("inf"),
            (spec.seed, "pretrain", spec.dataset, spec.architecture),
            checkpoint=Checkpoint(folder, key, stated.checkpoint_seconds),
            progress=progress.step,
        )
        model = learner.train(task)
        report = report_of(model, task)
        audited = Records.of(read_records(options.pool))
        logits = model.logits(audited)
        progress.end(f"accuracy {report.train_accuracy:.3f} on {len(public)} public records")
    if not isinstance(model, TorchBackedModel):
        raise UserError(
            f"architectures.{spec.architecture}.pretrained: public: only torch modules can start from weights"
        )
    metadata = {
        "records": len(public),
        "train_accuracy": report.train_accuracy,
        "loss": report.epochs[-1].loss,
        "steps": report.epochs[-1].steps,
        "test_records": len(audited),
        "test_accuracy": mean(logits.argmax(axis=1) == audited.labels),
        "test_loss": mean(outputs.loss(logits, audited.labels)),
    }
    save_weights(model.module, options.out)
    write_json(options.out.with_suffix(".json"), metadata)
    shutil.rmtree(folder, ignore_errors=True)
