"""`mia-audit reproduce`: compare the paper's Table 3 with its published score matrices."""

import argparse
from pathlib import Path

from mia_audit.attacks.io.published import parse_where, read_per_model_csv
from mia_audit.errors import UserError
from mia_audit.sanitise import csv


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "scores", type=Path, help="folder of the published score matrices, such as the authors' attack_data"
    )
    parser.add_argument("--out", required=True, type=Path, help="folder for the table and the figure")
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="read only folders with this value of a key (model, type …)",
    )


def run(options: argparse.Namespace) -> None:
    """Print the table, and write it as CSV together with its log-log figure."""
    from threadpoolctl import threadpool_limits

    from mia_audit.papers.matrices import curves_figure, plain, rows, table
    from mia_audit.report.figures.style import paper_style, save
    from mia_audit.storage import write_text

    if not options.scores.is_dir():
        raise UserError(f"{options.scores}: no such folder; expected the published score matrices")
    published = read_per_model_csv(options.scores, parse_where(options.where))
    with threadpool_limits(1, "blas"):  # the attacks' matrix products are too small for threads
        lines = list(rows(published))
    write_text(options.out / "table.csv", csv(table(lines)))
    with paper_style():
        save(curves_figure(lines, published.member), options.out, "curves")
    print(plain(lines))
