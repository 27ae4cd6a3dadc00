"""`mia-audit black-box`: record what a black box says of every record of a pool, all that explanations of it need."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from mia_audit.pools.files import StoredRecords


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--pool", required=True, type=Path, help="folder of the pool")
    parser.add_argument("--spec", required=True, help='JSON: {"seed", "dataset", "black_box": its name}')
    parser.add_argument("--architecture", type=Path, help="architecture.json, where the black box is a model")
    parser.add_argument("--models", type=Path, help="the folder of a block of shadow models, whose first one it is")
    parser.add_argument(
        "--quantity", choices=["probability", "margin"], default="probability", help="what is explained"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads to compute with")
    parser.add_argument("--out", required=True, type=Path, help="the values, Parquet")


def run(options: argparse.Namespace) -> None:
    """Write a row a record: its value for every class (two classes: for the second)."""
    import numpy as np
    import pyarrow as pa

    from mia_audit.explain.black_boxes import black_boxes
    from mia_audit.pools.files import read_records
    from mia_audit.seeds import seed_for
    from mia_audit.storage import write_table

    spec = json.loads(options.spec)
    pool = read_records(options.pool)
    if options.models:
        if not options.architecture:
            raise UserError("--models: give --architecture too, the architecture.json of these models")
        values = _model_values(options, pool)
    else:
        name = spec["black_box"]
        make, seed = black_boxes[name], seed_for(spec["seed"], "black box", spec["dataset"], name)
        records = np.asarray(pool.data).reshape(len(pool.labels), -1)
        values = make(records, pool.labels, len(pool.facts["classes"]), seed)
    columns = {"record": np.arange(len(values), dtype=np.int32)}
    columns |= {f"value_{column}": values[:, column] for column in range(values.shape[1])}
    facts = {"black_box": spec["black_box"], "dataset": spec["dataset"]}
    write_table(options.out, pa.table(columns), "values", len(values), facts)
    right = (values.argmax(axis=1) if values.shape[1] > 1 else values[:, 0] > 0) == pool.labels
    print(f"{spec['black_box']}: agrees with {right.mean():.3f} of {len(values)} labels")


def _model_values(options: argparse.Namespace, pool: "StoredRecords") -> "np.ndarray":
    import numpy as np
    import torch

    from mia_audit.commands.signals import shadow_files
    from mia_audit.explain.black_boxes.values import of_model
    from mia_audit.models import Inputs, load, read_architecture

    torch.set_num_threads(options.threads)
    architecture = read_architecture(options.architecture)
    inputs = Inputs(pool.data, pool.facts, architecture["input_shape"])
    model = load(architecture, next(iter(shadow_files(options.models).values())))
    says = of_model(model, lambda rows: inputs[torch.from_numpy(rows)], options.quantity)
    return np.concatenate([says(rows) for rows in np.array_split(np.arange(len(inputs)), -(-len(inputs) // 256))])
