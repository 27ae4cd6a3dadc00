"""`mia-audit extend`: before anything is run, print the models that a changed config would train in an existing audit."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.config.load import check_audit, load_audit
from mia_audit.errors import UserError
from mia_audit.sanitise import console

if TYPE_CHECKING:
    from mia_audit.planning.growth import Growth

BEFORE = ("pool", "architecture", "weights", "pretrain")
"""Rules whose results enter all models of a data set or an architecture."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("config", type=Path, help="the audit's YAML file with the change")
    parser.add_argument("--models", type=int, help="value of membership.models to try, instead of the config's")
    parser.add_argument("--checkout", type=Path, default=Path(), help="folder of the workflow and of its results (.)")


def run(options: argparse.Namespace) -> None:
    """Print how many models of every setting would be kept and trained, and which jobs would run; nothing is changed."""
    audit = load_audit(options.config)
    changes = {}
    if options.models is not None:
        values = audit.model_dump(exclude_unset=True)
        changes = {"membership": {**values.get("membership", {}), "models": options.models}}
        audit = check_audit(values | changes, "--models")
    from mia_audit.planning.growth import growth
    from mia_audit.planning.jobs import count_jobs

    results = options.checkout / "results" / audit.audit
    if not results.is_dir():
        raise UserError(f"{results}: no results to extend; mia-audit plan prints the cost of the whole audit")
    grown = list(growth(audit, results))
    jobs = count_jobs(options.config, options.checkout, whole=False, changes=changes)
    _print(grown, jobs, options.models)


def _print(grown: "list[Growth]", jobs: Mapping[str, int], models: int | None) -> None:
    from rich.table import Table

    display = console(sys.stdout)
    table = Table(box=None, pad_edge=False)
    for column in ("setting", "models that are kept", "trained", "of these, trained again"):
        table.add_column(column, justify="left" if column == "setting" else "right")
    for one in grown:
        table.add_row(one.setting.path, *(str(len(group)) for group in (one.kept, one.trained, one.again)))
    display.print(table)
    trained = sum(len(one.trained) for one in grown)
    print(f"{trained} models are trained; {sum(len(one.kept) for one in grown)} stay as they are")
    before = [f"{jobs[rule]} {rule}" for rule in BEFORE if rule in jobs]
    if before and any(one.kept for one in grown):
        print(
            f"First run: {', '.join(before)}; if their outputs change, all models that depend on them are trained again"
        )
    if any(one.again for one in grown):
        print("Trained again: existing models whose training, pool or membership design differs from the config's")
    listed = ", ".join(f"{count:,} {rule}" for rule, count in jobs.items())
    print(f"{sum(jobs.values()):,} jobs: {listed}" if jobs else "Nothing is left to do")
    if models is not None and trained:
        print(f"To train them, set membership.models: {models} in the config and run the workflow again")
