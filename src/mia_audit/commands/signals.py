"""`mia-audit signals`: compute one family of signals of a block of shadow models."""

import argparse
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

from mia_audit.compute.cards import take_card
from mia_audit.errors import UserError
from mia_audit.missing import missing, missing_of_all

TABLE = "training.parquet"
"""Tells of the training of a block's models, beside their weights; models from elsewhere have none."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--pool", required=True, type=Path, help="folder of the pool")
    parser.add_argument("--architecture", required=True, type=Path, help="architecture.json of the models")
    parser.add_argument(
        "--models", required=True, nargs="+", type=Path, help="folders of the blocks' shadow-{k}.safetensors, in order"
    )
    parser.add_argument("--spec", required=True, help='JSON: {"seed", "dataset", "options": those of the family}')
    parser.add_argument("--family", required=True, help="gradient, or the family of another explainer")
    parser.add_argument(
        "--membership",
        type=Path,
        nargs="?",
        help="membership.parquet, for explainers that read training records; may be left empty",
    )
    parser.add_argument("--threads", type=int, default=1, help="threads to compute with")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--batch", type=int, default=256, help="records in memory at once")
    parser.add_argument("--out", required=True, type=Path, help="the signals, Parquet")


def run(options: argparse.Namespace) -> None:
    """Write the family's signals, one row group per shadow."""
    weights = {shadow: path for folder in options.models for shadow, path in shadow_files(folder).items()}
    lost = missing_of_all([path for folder in options.models if (path := folder / TABLE).exists()], "training")
    take_card(options.device)
    import numpy as np
    import pyarrow as pa

    from mia_audit.explain.families import columns
    from mia_audit.explain.members import Members
    from mia_audit.models import Inputs, load, read_architecture, taken_by
    from mia_audit.pools.files import read_membership, read_records
    from mia_audit.signals import Task, model_signals
    from mia_audit.storage import write_table
    from mia_audit.training.device import batch_for, device_for

    device = device_for(options.threads, options.device)
    spec = json.loads(options.spec)
    pool = read_records(options.pool)
    architecture = read_architecture(options.architecture)
    batch = batch_for(architecture, options.batch, device)
    task = Task(options.family, spec["options"], spec["seed"], batch)
    inputs = Inputs(pool.data, taken_by(architecture, pool.facts), architecture["input_shape"], device)
    count = len(pool.labels)
    membership = read_membership(options.membership, weights, count) if options.membership else None

    def tables() -> Iterator[pa.Table]:
        for column, (shadow, path) in enumerate(weights.items()):
            model = load(architecture, path).to(device)
            members = Members(model, inputs, membership[:, column], shadow) if membership is not None else None
            start = time.perf_counter()
            try:
                signals = model_signals(model, inputs, pool.labels, task, members)
            except UserError as error:
                raise UserError(f"{path}: {error}") from None
            rate = count / (time.perf_counter() - start)
            print(f"shadow {shadow}: {count} records, {rate:,.0f} records/s", flush=True)
            numbers = {"shadow": np.full(count, shadow, dtype=np.int32), "record": np.arange(count, dtype=np.int32)}
            yield pa.table({name: pa.array(values) for name, values in (numbers | signals).items()})

    def nothing() -> pa.Table:
        kinds = dict.fromkeys(("shadow", "record", "label", "predicted"), pa.int32())
        names = ["shadow", "record", *columns(task.family, task.options)]
        return pa.schema([(name, kinds.get(name, pa.float32())) for name in names]).empty_table()

    found = tables() if weights else iter([nothing()])
    write_table(options.out, found, "signals", count * len(weights), lost)


def shadow_files(folder: Path) -> dict[int, Path]:
    """Return the weights of a block's shadows by number, in order.

    A folder without any is a UserError that names it, unless its table says that all of them are left out.
    """
    matches = [(re.fullmatch(r"shadow-(\d+)\.safetensors", path.name), path) for path in folder.glob("shadow-*")]
    files = {int(match[1]): path for match, path in matches if match}
    if not files and not ((folder / TABLE).exists() and missing(folder / TABLE, "training")):
        raise UserError(
            f"{folder}: no shadow-{{k}}.safetensors there; expected the weights of a block of shadow models"
        )
    return dict(sorted(files.items()))
