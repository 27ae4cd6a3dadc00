"""`mia-audit side-by-side`: the same records explained by several architectures."""

import argparse
import json
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--results", required=True, type=Path, help="folder of the audit's results")
    parser.add_argument(
        "--spec",
        required=True,
        help='JSON: {"dataset", "architectures": {name: [[mechanism, ε, heading], …]}}',
    )
    parser.add_argument("--out", required=True, type=Path, help="folder for the figure, explanations")


def run(options: argparse.Namespace) -> None:
    """Draw the maps of explanations.parquet of all architectures of a data set."""

    from mia_audit.errors import UserError
    from mia_audit.pools.files import read_records
    from mia_audit.report.figures import paper_style, save
    from mia_audit.report.side_by_side import image_figure, strips, table_figure
    from mia_audit.storage import read_frame

    spec = json.loads(options.spec)
    folder = options.results / spec["dataset"]
    maps = {name: read_frame(folder / name / "explanations.parquet", "explanations") for name in spec["architectures"]}
    numbers = [table["record"].unique(maintain_order=True).to_list() for table in maps.values()]
    if any(one != numbers[0] for one in numbers):
        raise UserError(
            f"{folder}: the architectures' explanations.parquet hold other records; delete them and run again"
        )
    headings = {
        name: {(mechanism, epsilon): heading for mechanism, epsilon, heading in settings}
        for name, settings in spec["architectures"].items()
    }
    pool = read_records(options.results / "pools" / spec["dataset"])
    found = strips(maps, headings)
    with paper_style():
        if pool.facts["kind"] == "image":
            figure = image_figure(found, pool.data[numbers[0]], pool.facts)
        else:
            figure = table_figure(found, numbers[0], pool.facts)
        save(figure, options.out, "explanations")
    print(f"{len(numbers[0])} records, {len(found)} explanations of each")
