"""`mia-audit side-by-side`: draw explanations of the same records by several architectures, side by side."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_spec
from mia_audit.config.specs import SideBySideSpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, SideBySideSpec)
    parser.add_argument("--results", required=True, type=Path, help="folder of the audit's results")
    parser.add_argument("--out", required=True, type=Path, help="folder for the figure named explanations")


def run(options: argparse.Namespace) -> None:
    """Draw the maps of explanations.parquet of all architectures of a data set."""
    from mia_audit.errors import UserError
    from mia_audit.pools.store import read_records
    from mia_audit.report.figures.side_by_side import image_figure, strips, table_figure
    from mia_audit.report.figures.style import paper_style, save
    from mia_audit.storage import read_frame

    spec = SideBySideSpec.read(options.spec)
    folder = options.results / spec.dataset
    maps = {name: read_frame(folder / name / "explanations.parquet", "explanations") for name in spec.architectures}
    numbers = [table["record"].unique(maintain_order=True).to_list() for table in maps.values()]
    if any(one != numbers[0] for one in numbers):
        raise UserError(
            f"{folder}: the files explanations.parquet of the architectures hold different records; run their explanation metrics again"
        )
    headings = {
        name: {(mechanism, epsilon): heading for mechanism, epsilon, heading in settings}
        for name, settings in spec.architectures.items()
    }
    pool = read_records(options.results / "pools" / spec.dataset)
    explained = strips(maps, headings)
    with paper_style(spec.figures.font):
        if pool.metadata["kind"] == "image":
            figure = image_figure(explained, pool.data[numbers[0]], pool.metadata)
        else:
            figure = table_figure(explained, numbers[0], pool.metadata)
        save(figure, options.out, "explanations", look=spec.figures)
    print(f"{len(numbers[0])} records, each with {len(explained)} explanations")
