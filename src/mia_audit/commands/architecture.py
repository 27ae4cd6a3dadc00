"""`mia-audit architecture`: check that a model fits its pool and its mechanisms, before anything is trained."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_pool, add_spec
from mia_audit.config.specs import ArchitectureSpec
from mia_audit.errors import UserError
from mia_audit.storage import table_metadata, write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, ArchitectureSpec)
    add_pool(parser)
    parser.add_argument("--private", type=int, default=0, help="1: check that the model has per-record gradients")
    parser.add_argument("--out", required=True, type=Path, help="architecture.json")


def run(options: argparse.Namespace) -> None:
    """Build the model once on the pool's shape and write its metadata."""
    from mia_audit.models import describe, own_normalisation

    spec = ArchitectureSpec.read(options.spec)
    name, section = spec.name, spec.architecture
    pool = table_metadata(options.pool / "records.parquet", "records")
    metadata = describe(name, section.model or name, section.parameters, tuple(pool["shape"]), len(pool["classes"]))
    if section.pretrained not in ("none", "public") and pool["kind"] == "image":
        metadata["normalisation"] = own_normalisation(metadata["model"], metadata["input_shape"][0])
    layers = metadata["batch_norm_layers"]
    if options.private and layers:
        raise UserError(
            f"architectures.{name}: layer '{layers[0]}' of '{metadata['model']}' ({len(layers)} in all) is a BatchNorm, which mixes"
            " the records of a batch and cannot be trained under dp-sgd: choose a model with LayerNorm or GroupNorm"
        )
    write_json(options.out, metadata)
    print(
        f"{name}: {metadata['model']}, {metadata['parameters']:,} parameters, input {metadata['input_shape']}, {metadata['classes']} classes"
    )
