"""Commands that compare papers' printed numbers with finished audits, and with published score matrices."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.attacks.io.layouts import parse_where, read_per_model_csv
from mia_audit.config.specs import PaperSpec
from mia_audit.errors import UserError
from mia_audit.sanitise import csv

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from mia_audit.papers.cells import Paper


def paper_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paper", help="the paper: huang2024, harder2020, fadp or patel2020; left out with --spec")
    parser.add_argument("results", nargs="*", type=Path, help="folders of finished audits' results")
    parser.add_argument("--spec", type=Path, metavar="FILE", help="JSON file with the paper's name as `paper`")
    parser.add_argument("--out", required=True, type=Path, help="folder for the tables and figures")


def run_paper(options: argparse.Namespace) -> None:
    """Write table_{n}.csv and figure_{n}; print the number of filled cells, and the commands that fill the rest."""
    from mia_audit.papers import paper

    asked, folders = options.paper, options.results
    if options.spec:
        asked, folders = PaperSpec.read(options.spec).paper, [Path(options.paper), *folders]
    chosen = paper(asked)
    if not folders:
        raise UserError("results: missing; expected the folders of finished audits, such as results/NAME")
    missing = (_write_studies if chosen.studies else _write_audits)(asked, chosen, folders, options.out)
    for name, where in chosen.elsewhere.items():
        print(f"{name}: {where}.")
    for line in sorted(missing):
        print(f"missing: {line}")


def _write_audits(asked: str, chosen: "Paper", folders: Sequence[Path], out: Path) -> set[str]:
    """Write the tables and figures of a paper on attacks from finished audits; return the commands that fill the missing cells."""
    from mia_audit.papers import huang2024
    from mia_audit.papers.cells import CAPTION, Measured, frame, printed_cells, roc_panels
    from mia_audit.report.opened import finished

    printed = printed_cells(asked)
    measured = Measured([finished(folder) for folder in folders])
    missing = set[str]()
    for name, title in chosen.tables.items():
        table = frame(chosen, [cell for cell in printed if cell.table == name], measured)
        _write_table(out, name, table)
        missing |= {command for command in table.drop_nulls("printed_mean")["command"] if command}
        print(f"Table {name}: {(table['command'] == '').sum()} of {len(table)} cells filled. {title}.")
    if chosen.tests:
        tests = huang2024.tests(measured)
        _write_table(out, chosen.tests, tests)
        filled = len(tests) - tests["targets"].null_count()
        print(f"Table {chosen.tests}: {filled} of {len(tests)} tests. Paired differences: VAR-LRT minus the threshold.")
    panels = chosen.figures.items()
    _draw(out, {name: partial(roc_panels, chosen, one, measured, printed) for name, one in panels}, CAPTION)
    return missing


def _write_studies(asked: str, chosen: "Paper", folders: Sequence[Path], out: Path) -> set[str]:
    """Write the tables of a paper on private explanations from finished studies; return the missing studies' commands."""
    from mia_audit.papers.patel2020 import Studies, finished_study, frame, printed_numbers

    printed = printed_numbers(asked)
    studies, missing = Studies([finished_study(folder) for folder in folders]), set()
    for name, title in chosen.tables.items():
        table = frame([number for number in printed if number.table == name], studies)
        _write_table(out, name, table)
        missing |= {command for command in table["command"] if command}
        print(f"Table {name}: {(table['command'] == '').sum()} of {len(table)} cells filled. {title}.")
    return missing


def _write_table(out: Path, name: str, table: "pl.DataFrame") -> None:
    from mia_audit.storage import write_text

    write_text(out / f"table_{name}.csv", csv(table))


def _draw(out: Path, drawings: "Mapping[str, Callable[[], Figure | None]]", caption: str) -> None:
    """Draw and save figures, and print which of them have no results."""
    from mia_audit.report.figures.catalogue import paper_style, save

    with paper_style():
        for name, draw in drawings.items():
            figure = draw()
            if figure is not None:
                save(figure, out, f"figure_{name}", caption)
            print(f"Figure {name}: {'drawn' if figure is not None else 'no results for any panel'}.")


def reproduce_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scores", type=Path, help="published score matrices, such as the authors' attack_data")
    parser.add_argument("--out", required=True, type=Path, help="folder for the table and the figure")
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="read only folders with this value of a key (model, type …)",
    )


def run_reproduce(options: argparse.Namespace) -> None:
    """Print the table, and write it as CSV together with its log-log figure."""
    from threadpoolctl import threadpool_limits

    from mia_audit.papers.matrices import curves_figure, plain, rows, table
    from mia_audit.report.figures.catalogue import paper_style, save
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
