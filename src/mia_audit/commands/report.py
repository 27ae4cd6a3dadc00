"""Stages that write what an audit found: its report, figures of filters, means over seeds, and the list of files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.commands._arguments import add_spec
from mia_audit.config.specs import FiltersSpec, ReportSpec, SeedsSpec

if TYPE_CHECKING:
    from mia_audit.report.figures.explanations import Filters


def report_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, ReportSpec)
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")


def run_report(options: argparse.Namespace) -> None:
    """Read all results of the audit; write tables/, figures/, report.html, answer.json and provenance.json."""
    from mia_audit.report.opened import audited
    from mia_audit.report.page import publish

    publish(audited(options.results, ReportSpec.read(options.spec)))


def filters_arguments(parser: argparse.ArgumentParser) -> None:
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

    from mia_audit.models.architecture import load, read_architecture
    from mia_audit.models.architectures.locally_linear_maps import LocallyLinearMaps
    from mia_audit.models.inputs import taken_by, to_input
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
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")


def run_manifest(options: argparse.Namespace) -> None:
    """Write SHA256SUMS and print the root hash."""
    from mia_audit.storage.digests import write_manifest

    print(f"{options.results}: root hash {write_manifest(options.results)}")
