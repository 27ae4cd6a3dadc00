"""`mia-audit black-box`: store a black box's outputs on a pool, from which its explanations are computed."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.commands._arguments import add_pool, add_spec, add_threads
from mia_audit.config.specs import BlackBoxSpec
from mia_audit.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from mia_audit.pools.store import StoredRecords


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, BlackBoxSpec)
    add_pool(parser)
    parser.add_argument("--architecture", type=Path, nargs="?", help="architecture.json, if the black box is a model")
    parser.add_argument(
        "--models", type=Path, nargs="?", help="folder of shadow models, the first of which is the black box"
    )
    add_threads(parser)
    parser.add_argument("--out", required=True, type=Path, help="the values, Parquet")


def run(options: argparse.Namespace) -> None:
    """Write one row per record, with a value for every class; if there are two classes, only for the second."""
    import numpy as np
    import pyarrow as pa

    from mia_audit.explain.black_boxes import black_boxes
    from mia_audit.pools.store import read_records
    from mia_audit.seeds import seed_for
    from mia_audit.storage import write_table

    spec = BlackBoxSpec.read(options.spec)
    pool = read_records(options.pool)
    if options.models:
        if not options.architecture:
            raise UserError("--models: give --architecture too, the architecture.json of these models")
        values = _model_values(options, pool, spec.quantity)
    else:
        name = spec.black_box
        make, seed = black_boxes[name], seed_for(spec.seed, "black box", spec.dataset, name)
        records = np.asarray(pool.data).reshape(len(pool.labels), -1)
        values = make(records, pool.labels, len(pool.metadata["classes"]), seed)
    columns = {"record": np.arange(len(values), dtype=np.int32)}
    columns |= {f"value_{column}": values[:, column] for column in range(values.shape[1])}
    metadata = {"black_box": spec.black_box, "dataset": spec.dataset}
    write_table(options.out, pa.table(columns), "values", len(values), metadata)
    agrees = (values.argmax(axis=1) if values.shape[1] > 1 else values[:, 0] > 0) == pool.labels
    print(f"{spec.black_box}: agrees with {agrees.mean():.3f} of {len(values)} labels")


def _model_values(options: argparse.Namespace, pool: "StoredRecords", quantity: str) -> "np.ndarray":
    from mia_audit.explain.black_boxes.values import of_logits
    from mia_audit.learners import Compute, Records, open_learner
    from mia_audit.training.stored import first_folder

    _, learner = open_learner(options.architecture, Compute("cpu", options.threads))
    model = learner.load(first_folder(options.models))
    return of_logits(model.logits(Records.of(pool)), quantity)
