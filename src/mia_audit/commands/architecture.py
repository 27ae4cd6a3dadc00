"""`mia-audit architecture`: check that a model fits its pool and its mechanisms, before anything is trained."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_pool, add_spec
from mia_audit.config.specs import ArchitectureSpec
from mia_audit.errors import UserError
from mia_audit.planning.limits import Run, refuse_model
from mia_audit.registry import code_files, file_digest
from mia_audit.storage import open_table, table_metadata, write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, ArchitectureSpec)
    add_pool(parser)
    parser.add_argument(
        "--run", type=Path, help="the workflow's run file, which says what is trained privately, and limits of jobs"
    )
    parser.add_argument("--out", required=True, type=Path, help="architecture.json")


def run(options: argparse.Namespace) -> None:
    """Check the model on the pool's shape by its learner, and write the model's metadata."""
    from mia_audit.learners import ModelSection, learners

    spec, planned = ArchitectureSpec.read(options.spec), Run.read(options.run)
    name, section = spec.name, spec.architecture
    pool = table_metadata(options.pool / "records.parquet", "records")
    values = section.model_dump(include={"parameters", "pretrained", "votes"})
    code = {file: file_digest(file) for file in code_files(section)}
    asked = ModelSection(name=name, model=section.model or name, code=code, outputs=section.outputs or "", **values)
    metadata = learners[section.learner].describe(asked, pool)
    layers = metadata.get("batch_norm_layers")
    if name in planned.private and layers:
        raise UserError(
            f"architectures.{name}: layer '{layers[0]}' of '{metadata['model']}' ({len(layers)} in all) is a BatchNorm, which mixes"
            " the records of a batch and cannot be trained under dp-sgd: choose a model with LayerNorm or GroupNorm"
        )
    count = open_table(options.pool / "records.parquet", "records").metadata.num_rows
    refuse_model(planned, options.out.parent, metadata, count)
    write_json(options.out, metadata)
    size = f", {metadata['parameters']:,} parameters" if "parameters" in metadata else ""
    print(
        f"{name}: {metadata['learner']} {metadata['model']}{size}, input {metadata['input_shape']}, {metadata['classes']} classes"
    )
