"""`mia-audit report`: write the self-contained HTML report, and provenance.json beside it.

`mia-audit tables`: write the tables of an audit as CSV, Parquet and LaTeX.

`mia-audit figures`: draw the figures of an audit as PDF, SVG and PNG.

`mia-audit private-report`: write tables and figures of private explanations, and of the attacks on them.

`mia-audit side-by-side`: draw explanations of the same records by several architectures, side by side.

`mia-audit filters`: draw the filters of locally linear maps, every setting side by side.

`mia-audit over-seeds`: write the means over an audit's seeds.

`mia-audit manifest`: list the files of finished results with their SHA-256.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.commands._arguments import add_spec
from mia_audit.config.specs import FiltersSpec, ReportSpec, SeedsSpec, SideBySideSpec

if TYPE_CHECKING:
    from mia_audit.report.figures.explanations import Filters


def report_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, ReportSpec)
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")
    parser.add_argument(
        "--out", type=Path, required=True, help="the page; answer.json and provenance.json are written beside it"
    )


def run_report(options: argparse.Namespace) -> None:
    """Read all results of the audit, write the page, its answer and its provenance."""
    from mia_audit.report.opened import audited, find
    from mia_audit.report.page import write_report

    results = audited(options.results, ReportSpec.read(options.spec))
    write_report(results, find(results), options.out)


def tables_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, ReportSpec)
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables")


def run_tables(options: argparse.Namespace) -> None:
    """Read metrics and training tables, write every table in every format."""
    from mia_audit.report.opened import audited, find
    from mia_audit.report.tables.catalogue import write

    results = audited(options.results, ReportSpec.read(options.spec))
    write(results, find(results), options.out)


def figures_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, ReportSpec)
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")
    parser.add_argument("--out", type=Path, required=True, help="folder for the figures")


def run_figures(options: argparse.Namespace) -> None:
    """Read metrics, scores and training tables, draw every figure in every format."""
    from mia_audit.report.figures.catalogue import draw
    from mia_audit.report.opened import audited, find

    results = audited(options.results, ReportSpec.read(options.spec))
    draw(results, find(results), options.out)


def private_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, ReportSpec)
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")


def run_private_report(options: argparse.Namespace) -> None:
    """Write the tables and figures of private explanations: those registered with `private=True`."""
    from mia_audit.report.figures.catalogue import draw
    from mia_audit.report.opened import find
    from mia_audit.report.results import Results
    from mia_audit.report.tables.catalogue import write

    results = Results(options.results, ReportSpec.read(options.spec))
    findings = find(results)
    write(results, findings, options.results / "tables", private=True)
    draw(results, findings, options.results / "figures", private=True)


def side_by_side_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, SideBySideSpec)
    parser.add_argument("--results", required=True, type=Path, help="folder of the audit's results")
    parser.add_argument("--out", required=True, type=Path, help="folder for the figure named explanations")


def run_side_by_side(options: argparse.Namespace) -> None:
    """Draw the maps of explanations.parquet of all architectures of a data set."""
    from mia_audit.errors import UserError
    from mia_audit.pools.store import read_records
    from mia_audit.report.figures.catalogue import paper_style, save
    from mia_audit.report.figures.explanations import image_figure, strips, table_figure
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


def filters_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, FiltersSpec)
    parser.add_argument("--results", required=True, type=Path, help="folder of the audit's results")
    parser.add_argument(
        "--out",
        required=True,
        type=Path,
        help="folder for the figures {architecture}_records and {architecture}_classes, and for shares.csv",
    )


def run_filters(options: argparse.Namespace) -> None:
    """Draw the maps of every architecture's first shadow model, for one record of some classes and for every class.

    shares.csv states how unevenly every setting mixes its maps. A warning names the settings that mix them evenly.
    """
    import numpy as np
    import polars as pl
    import torch

    from mia_audit.models import load, read_architecture, taken_by, to_input
    from mia_audit.models.architectures.locally_linear_maps import LocallyLinearMaps
    from mia_audit.models.weights import WEIGHTS
    from mia_audit.pools.store import read_records
    from mia_audit.report.figures.catalogue import paper_style, save
    from mia_audit.report.figures.explanations import class_sheet, column, record_sheet
    from mia_audit.sanitise import csv
    from mia_audit.seeds import generator
    from mia_audit.storage import write_text
    from mia_audit.training.stored import first_folder

    torch.set_num_threads(1)
    spec = FiltersSpec.read(options.spec)
    dataset = spec.dataset
    pool = read_records(options.results / "pools" / dataset)
    order = generator(spec.seed, "filters", dataset).permutation(len(pool.labels))[:SAMPLE]
    _, first = np.unique(pool.labels[order], return_index=True)
    shown = order[np.sort(first)[: spec.shown]]
    named = [f"class {pool.metadata['classes'][label]}" for label in pool.labels[shown]]
    shares = []
    for name, settings in spec.architectures.items():
        architecture = read_architecture(options.results / dataset / name / "architecture.json")
        inputs, sample = (
            to_input(pool.data[rows], taken_by(architecture, pool.metadata), architecture["input_shape"])
            for rows in (shown, np.sort(order))
        )
        columns = []
        for heading, folder in settings:
            model = load(architecture, first_folder(options.results / folder / "models") / WEIGHTS)
            assert isinstance(model, LocallyLinearMaps)
            columns.append(drawn := column(heading, model, inputs, sample, spec.top))
            shares.append((name, heading, drawn.maps, drawn.top_share, 1 / drawn.maps, drawn.mixes_evenly))
            if drawn.mixes_evenly:
                print(f"warning: {folder}: {_even(drawn)}", file=sys.stderr)
        with paper_style(spec.figures.font):
            metadata = pool.metadata | {"shape": architecture["input_shape"]}
            save(
                record_sheet(columns, pool.data[shown], metadata, named),
                options.out,
                f"{name}_records",
                look=spec.figures,
            )
            save(class_sheet(columns, metadata), options.out, f"{name}_classes", look=spec.figures)
        print(f"{name}: {len(shown)} records and {len(pool.metadata['classes'])} classes in {len(columns)} settings")

    names = ("architecture", "setting", "maps", "top_share", "even_share", "mixed_evenly")
    write_text(options.out / "shares.csv", csv(pl.DataFrame(shares, schema=names, orient="row")))


def _even(drawn: Filters) -> str:
    """Return a warning, with advice, that no map stands out."""
    return (
        f"the mean share of the top map is {drawn.top_share:.3f}, and {drawn.maps} evenly mixed maps would have {1 / drawn.maps:.3f}: the"
        " model is in effect one linear map per class; raise beta or the projections' scale, or scale the inputs up (mean, std)"
    )


SAMPLE = 512
"""Number of records over which shares are averaged."""


def over_seeds_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, SeedsSpec)
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")


def run_over_seeds(options: argparse.Namespace) -> None:
    """Read the results of every seed, and write tables, figure, page, answer, provenance and SHA256SUMS of all seeds."""
    from mia_audit.report.over_seeds import OverSeeds, write
    from mia_audit.storage.digests import write_manifest

    spec = SeedsSpec.read(options.spec)
    write(OverSeeds(options.results, spec, spec.seeds))
    print(f"{options.results}: root hash {write_manifest(options.results)}")


def manifest_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")


def run_manifest(options: argparse.Namespace) -> None:
    """Write SHA256SUMS and print the root hash."""
    from mia_audit.storage.digests import write_manifest

    print(f"{options.results}: root hash {write_manifest(options.results)}")
