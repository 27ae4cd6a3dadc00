"""`mia-audit reproduce`: compare the paper's Table 3 with its published score matrices."""

import argparse
from pathlib import Path

from mia_audit.attacks.io.published import read_per_model_csv
from mia_audit.errors import UserError
from mia_audit.sanitise import csv


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("scores", type=Path, help="folder of the published score matrices")
    parser.add_argument("--out", required=True, type=Path, help="folder for the table and the figures")
    parser.add_argument(
        "--models", action="store_true", help="also measure the effect of fewer shadow models (takes a minute)"
    )


def run(options: argparse.Namespace) -> None:
    """Print the table, and write it as CSV and LaTeX together with its log-log figure."""
    from threadpoolctl import threadpool_limits

    from mia_audit.report.figures.style import paper_style, save
    from mia_audit.reproduction.models import COUNTS, measure, models_figure
    from mia_audit.reproduction.table import curves_figure, latex, plain, rows, table
    from mia_audit.storage import write_text

    if not options.scores.is_dir():
        raise UserError(f"{options.scores}: no such folder; expected the published score matrices")
    published = read_per_model_csv(options.scores, {})
    if options.models and published.member.shape[1] <= COUNTS[0]:
        raise UserError(
            f"--models: {options.scores} has {published.member.shape[1]} models; expected more than {COUNTS[0]}"
        )
    with threadpool_limits(1, "blas"):  # the attacks' matrix products are too small for threads
        lines = list(rows(published))
        measured = measure(published) if options.models else None
    write_text(options.out / "table.csv", csv(table(lines)))
    write_text(options.out / "table.tex", latex(lines))
    with paper_style():
        save(curves_figure(lines, published.member), options.out, "curves")
    print(plain(lines))
    if measured is not None:
        write_text(options.out / "models.csv", csv(measured))
        with paper_style():
            save(models_figure(measured), options.out, "models")
