"""`mia-audit verify`: check that every file of an audit is still as it was written."""

import argparse
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from mia_audit.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")


def run(options: argparse.Namespace) -> None:
    """Read and check every table, pool and model of the results; print a line for each that is damaged or missing."""
    checks: dict[str, Callable[[Path], None]] = {".parquet": _table, ".npy": _pool, ".safetensors": _weights}
    files = [
        path for path in sorted(options.results.rglob("*")) if path.suffix in checks and not _hidden(path, options)
    ]
    if not files:
        raise UserError(f"{options.results}: no tables or models there; expected the results of an audit, results/NAME")
    complaints = [complaint for path in files for complaint in _complaints(checks[path.suffix], path)]
    if complaints:
        more = [f"; {len(complaints) - 1} more above"] if len(complaints) > 1 else []
        for complaint in complaints[1:]:
            print(complaint)
        raise UserError("".join([complaints[0], *more]))
    print(f"{len(files)} files of {options.results} are as they were written")


def _hidden(path: Path, options: argparse.Namespace) -> bool:
    return any(part.startswith(".") for part in path.relative_to(options.results).parts)


def _complaints(check: Callable[[Path], None], path: Path) -> Iterable[str]:
    try:
        check(path)
    except UserError as error:
        yield str(error)


def _table(path: Path) -> None:
    from mia_audit.storage import digests

    if digests.state(path) != "whole":
        raise UserError(f"{path}: truncated or damaged: delete it and run again")
    if re.fullmatch(r"\d+-\d+", path.parent.name) and path.name == "training.parquet":
        _block(path)


def _block(path: Path) -> None:
    """Check that the weights of all models in a block's table exist."""
    from mia_audit.storage import read_table

    for shadow in read_table(path, "training", ["shadow"])["shadow"].unique().to_pylist():
        folder = path.with_name(f"shadow-{shadow}")
        if not folder.is_dir() or not any(folder.iterdir()):
            raise UserError(
                f"{folder}: no model there, but {path.name} beside it describes its training: train the block again"
            )


def _pool(path: Path) -> None:
    from mia_audit.pools.store import read_records

    read_records(path.parent, path.stem)


def _weights(path: Path) -> None:
    from mia_audit.models.weights import read_weights

    read_weights(path)
