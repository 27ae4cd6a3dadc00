"""`mia-audit filters`: sheets of the filters of locally linear maps, in every setting side by side."""

import argparse
import json
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--results", required=True, type=Path, help="folder of the audit's results")
    parser.add_argument(
        "--spec",
        required=True,
        help='JSON: {"seed", "dataset", "block", "top", "shown", "architectures": {name: [[heading, folder of the setting], …]}}',
    )
    parser.add_argument(
        "--out",
        required=True,
        type=Path,
        help="folder for the figures: {architecture}_records and {architecture}_classes",
    )


def run(options: argparse.Namespace) -> None:
    """Draw the first shadow model's maps of every architecture: for a few records, one of a class, and for every class."""
    import numpy as np
    import torch

    from mia_audit.commands.signals import shadow_files
    from mia_audit.models import load, read_architecture, taken_by, to_input
    from mia_audit.models.families.locally_linear_maps import LocallyLinearMaps
    from mia_audit.pools.files import read_records
    from mia_audit.report.figures import paper_style, save
    from mia_audit.report.sheets import class_sheet, column, record_sheet
    from mia_audit.seeds import generator

    torch.set_num_threads(1)
    spec = json.loads(options.spec)
    dataset = spec["dataset"]
    pool = read_records(options.results / "pools" / dataset)
    order = generator(spec["seed"], "filters", dataset).permutation(len(pool.labels))[:SAMPLE]
    _, first = np.unique(pool.labels[order], return_index=True)
    shown = order[np.sort(first)[: spec["shown"]]]
    named = [f"class {pool.facts['classes'][label]}" for label in pool.labels[shown]]
    for name, settings in spec["architectures"].items():
        architecture = read_architecture(options.results / dataset / name / "architecture.json")
        inputs, sample = (
            to_input(pool.data[rows], taken_by(architecture, pool.facts), architecture["input_shape"])
            for rows in (shown, np.sort(order))
        )
        columns = []
        for heading, folder in settings:
            files = shadow_files(options.results / folder / "models" / spec["block"])
            model = load(architecture, next(iter(files.values())))
            assert isinstance(model, LocallyLinearMaps)
            columns.append(column(heading, model, inputs, sample, spec["top"]))
        with paper_style():
            facts = pool.facts | {"shape": architecture["input_shape"]}
            save(record_sheet(columns, pool.data[shown], facts, named), options.out, f"{name}_records")
            save(class_sheet(columns, facts), options.out, f"{name}_classes")
        print(f"{name}: {len(shown)} records and {len(pool.facts['classes'])} classes in {len(columns)} settings")


SAMPLE = 512
"""Records over which shares are averaged."""
