"""`mia-audit weights`: download published weights, or read them from a file, and adapt them to the pool."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_spec
from mia_audit.config.specs import WeightsSpec
from mia_audit.storage import sha256, write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, WeightsSpec)
    parser.add_argument("--architecture", required=True, type=Path, help="architecture.json")
    parser.add_argument("--out", required=True, type=Path, help="start.safetensors; start.json is written beside it")


def run(options: argparse.Namespace) -> None:
    """Write the initial weights of shadow models, without the classifier, and their origin."""
    from mia_audit.models import fetch, read_architecture, write_weights

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
