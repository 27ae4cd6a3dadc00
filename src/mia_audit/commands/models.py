"""Stages that describe a model, and that make or import weights other than those of shadow models."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mia_audit.commands._arguments import add_pool, add_run, add_spec, computing
from mia_audit.config.specs import ArchitectureSpec, PretrainingSpec, TargetSpec, WeightsSpec
from mia_audit.errors import UserError
from mia_audit.explain.catalogue import explainers
from mia_audit.planning.requests import RunFile, refuse_model
from mia_audit.pools.store import read_records
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.runtime.machine import acquire_gpu
from mia_audit.storage import open_table, sha256, table_metadata, write_json

if TYPE_CHECKING:
    from mia_audit.learners.protocol import Learner


def architecture_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, ArchitectureSpec)
    add_pool(parser)
    parser.add_argument(
        "--run", type=Path, help="the workflow's run file, which says what is trained privately, and limits of jobs"
    )
    parser.add_argument("--out", required=True, type=Path, help="architecture.json")


def run_architecture(options: argparse.Namespace) -> None:
    """Check the model on the pool's shape by its learner, and write the model's metadata."""
    from mia_audit.learners.protocol import Compute, learner_named
    from mia_audit.planning.check import describe_model

    spec, planned = ArchitectureSpec.read(options.spec), RunFile.read(options.run)
    name, pool = spec.name, table_metadata(options.pool / "records.parquet", "records")
    metadata = describe_model(name, spec.architecture, pool, name in planned.private)
    methods = [one for one in planned.config.get("explainers", {}).get("methods", ()) if explainers[one].applies]
    if metadata.get("code") or methods:
        learner = learner_named(metadata["learner"])(metadata, Compute("cpu"))
        _check_untrained(learner, options.pool, metadata, methods)
    _check_targets(planned, metadata)
    count = open_table(options.pool / "records.parquet", "records").metadata.num_rows
    refuse_model(planned, options.out.parent, metadata, count)
    write_json(options.out, metadata)
    size = f", {metadata['parameters']:,} parameters" if "parameters" in metadata else ""
    print(
        f"{name}: {metadata['learner']} {metadata['model']}{size}, input {metadata['input_shape']}, {metadata['classes']} classes"
    )


def _check_untrained(
    learner: Learner, pool: Path, architecture: Mapping[str, Any], methods: Sequence[str] = ()
) -> None:
    """Raise UserError unless an untrained model returns logits for the pool's first records, and explainers apply to it."""
    from mia_audit.learners.protocol import BuildingLearner
    from mia_audit.models.answers import check_untrained
    from mia_audit.training.task import Records

    model = learner.untrained() if isinstance(learner, BuildingLearner) else None
    if model is not None:
        few = Records.from_stored(read_records(pool))[:8]
        where = f"architectures.{architecture['name']}: {architecture['model']}"
        inputs = model.inputs(few)[0 : len(few)]
        check_untrained(model.module, inputs, few.classes, where)
        for name in methods:
            applies = explainers[name].applies
            assert applies is not None
            try:
                applies(model.module, inputs)
            except UserError as error:
                raise UserError(f"architectures.{architecture['name']}: {error}") from None


def _check_targets(planned: RunFile, architecture: Mapping[str, Any]) -> None:
    """Raise UserError, before shadow models are trained, if a finished estimator of the config is of another recipe."""
    if architecture["learner"] != "estimator":
        return
    from mia_audit.learners.finished import adopt
    from mia_audit.learners.protocol import Compute, learner_named

    for name, target in (planned.config.get("targets") or {}).items():
        path = Path(target["model"])
        if target["architecture"] == architecture["name"] and path.exists():
            with TemporaryDirectory() as folder:
                learner = learner_named("estimator")(architecture, Compute("cpu"))
                adopt(learner, path, Path(folder), f"targets.{name}.model: {path}")


def weights_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, WeightsSpec)
    parser.add_argument("--architecture", required=True, type=Path, help="architecture.json")
    parser.add_argument("--out", required=True, type=Path, help="start.safetensors; start.json is written beside it")


def run_weights(options: argparse.Namespace) -> None:
    """Write the initial weights of shadow models, without the classifier, and their origin."""
    from mia_audit.models.architecture import fetch, read_architecture
    from mia_audit.models.weights import write_weights

    spec = WeightsSpec.read(options.spec)
    source, where = spec.pretrained, f"architectures.{spec.name}.pretrained"
    architecture = read_architecture(options.architecture)
    weights = fetch(architecture, source, where)
    write_weights(weights, options.out)
    metadata = {"pretrained": source, "model": architecture["model"], "weights": sha256(options.out)}
    if Path(source).is_file():
        metadata["file"] = sha256(Path(source))
    write_json(options.out.with_suffix(".json"), metadata)
    count = sum(value.numel() for value in weights.values())
    print(f"{spec.name}: {count:,} of {architecture['parameters']:,} parameters from {source}; the classifier is new")


def pretrain_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, PretrainingSpec)
    add_pool(parser)
    parser.add_argument("--architecture", required=True, type=Path, help="architecture.json")
    add_run(parser)
    parser.add_argument(
        "--out", required=True, type=Path, help="public.safetensors; beside it go public.json and .checkpoints"
    )


def run_pretrain(options: argparse.Namespace) -> None:
    """Write the public model's weights, and a JSON file of its accuracy and loss on the public and on the audited records.

    The public model was not trained on the audited records. The report shows its accuracy and loss on them as the start
    of private training.
    """
    run = RunFile.read(options.run)
    acquire_gpu(run.compute.device)
    import numpy as np

    from mia_audit.learners.protocol import TorchBackedModel, open_learner
    from mia_audit.models.architecture import keyed, read_architecture
    from mia_audit.models.weights import save_weights
    from mia_audit.runtime.progress import reporter
    from mia_audit.training import task as outputs
    from mia_audit.training.block import report_of
    from mia_audit.training.checkpoints import Checkpoint
    from mia_audit.training.report import mean
    from mia_audit.training.task import Records, TrainingTask, identity

    spec = PretrainingSpec.read(options.spec)
    training = spec.pretraining
    _, learner = open_learner(options.architecture, computing(run, options.threads))
    public = Records.from_stored(read_records(options.pool, "public"))
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
            records=public,
            members=np.ones(len(public), dtype=bool),
            training=training,
            mechanism=Mechanism(mechanism="none"),
            epsilon=float("inf"),
            key=(spec.seed, "pretrain", spec.dataset, spec.architecture),
            checkpoint=Checkpoint(folder, key, run.compute.checkpoint_seconds),
            progress=progress.step,
        )
        model = learner.train(task)
        report = report_of(model, task)
        audited = Records.from_stored(read_records(options.pool))
        logits = model.logits(audited)
        progress.end(f"accuracy {report.train_accuracy:.3f} on {len(public)} public records")
    if not isinstance(model, TorchBackedModel):
        raise UserError(f"architectures.{spec.architecture}.pretrained: public: only torch modules start from weights")
    metadata = {
        "records": len(public),
        "train_accuracy": report.train_accuracy,
        "loss": report.epochs[-1].loss,
        "steps": report.epochs[-1].steps,
        "test_records": len(audited),
        "test_accuracy": mean(logits.argmax(axis=1) == audited.labels),
        "test_loss": mean(outputs.loss(logits, audited.labels)),
        "public_sha256": files["public.parquet"],
    }
    stated = keyed(read_architecture(options.architecture))
    trained = identity(spec=spec.contents(), architecture=stated, public=files["public.parquet"])
    save_weights(model.module, options.out, trained)
    write_json(options.out.with_suffix(".json"), metadata)
    shutil.rmtree(folder, ignore_errors=True)


def target_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, TargetSpec)
    add_pool(parser)
    parser.add_argument("--architecture", required=True, type=Path, help="architecture.json of the model's references")
    add_run(parser)
    parser.add_argument("--out", required=True, type=Path, help="folder for the model and its membership")


def run_target(options: argparse.Namespace) -> None:
    """Write a folder shadow-{k} with the model, and membership.parquet."""
    from mia_audit.attacks.io.parquet import GIVEN, TARGET
    from mia_audit.learners.finished import adopt
    from mia_audit.learners.protocol import open_learner
    from mia_audit.pools.named_members import check_persons, named_members
    from mia_audit.pools.persons import Persons
    from mia_audit.pools.store import read_persons, write_membership
    from mia_audit.storage import atomic_folder, read_table

    spec = TargetSpec.read(options.spec)
    table = options.pool / "records.parquet"
    rows = read_table(table, "records", ["source"])["source"].to_numpy()
    pool_metadata = table_metadata(table, "records")
    count = pool_metadata["source_records"]
    where = f"targets.{spec.name}"
    member = named_members(spec.data, spec.target.members, spec.target.id, rows=rows, count=count, where=where)
    if pool_metadata.get("unit") == "person" and (ids := read_persons(table)) is not None:
        check_persons(member, Persons.numbered(ids), f"{where}.members: {spec.target.members}")
    _, learner = open_learner(options.architecture, computing(RunFile.read(options.run), options.threads))
    path = Path(spec.target.model)
    with atomic_folder(options.out) as folder:
        model = folder / f"shadow-{spec.number}"
        model.mkdir()
        adopt(learner, path, model, f"{where}.model")
        files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
        metadata = {TARGET: spec.number, GIVEN: {str(one): sha256(one) for one in files}}
        write_membership(folder / "membership.parquet", member[:, None], metadata, first=spec.number)
    print(f"{spec.name}: {path}, trained on {member.sum()} of the pool's {len(member)} records")
