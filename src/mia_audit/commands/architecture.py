"""`mia-audit architecture`: check that a model fits its pool and its mechanisms, before anything is trained."""

import argparse
import json
from pathlib import Path

from mia_audit.config.load import parse
from mia_audit.config.schema import Architecture
from mia_audit.errors import UserError
from mia_audit.storage import table_facts, write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--pool", required=True, type=Path, help="folder of the pool")
    parser.add_argument("--spec", required=True, help='JSON: {"name", "architecture": the section}')
    parser.add_argument(
        "--private", type=int, default=0, help="1: per-record gradients will be wanted, which not every model has"
    )
    parser.add_argument("--out", required=True, type=Path, help="architecture.json")


def run(options: argparse.Namespace) -> None:
    """Build the model once on the pool's shape and write its facts."""
    from mia_audit.models import describe, own_normalisation

    spec = json.loads(options.spec)
    name = spec["name"]
    section = parse(Architecture, spec["architecture"], f"architectures.{name}")
    pool = table_facts(options.pool / "records.parquet", "records")
    facts = describe(name, section.model or name, section.parameters, tuple(pool["shape"]), len(pool["classes"]))
    if section.pretrained not in ("none", "public") and pool["kind"] == "image":
        facts["normalisation"] = own_normalisation(facts["model"], facts["input_shape"][0])
    layers = facts["batch_norm_layers"]
    if options.private and layers:
        raise UserError(
            f"architectures.{name}: layer '{layers[0]}' of '{facts['model']}' ({len(layers)} in all) is a BatchNorm, which mixes"
            " the records of a batch and cannot be trained under dp-sgd: choose a model with LayerNorm or GroupNorm"
        )
    write_json(options.out, facts)
    print(
        f"{name}: {facts['model']}, {facts['parameters']:,} parameters, input {facts['input_shape']}, {facts['classes']} classes"
    )
