"""`mia-audit verify`: check that no file of an audit was changed since it was written."""

import argparse
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from mia_audit.errors import UserError, first_line
from mia_audit.sanitise import visible
from mia_audit.storage.stamps import STAMPS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")
    parser.add_argument(
        "--signed",
        metavar="KEY",
        help="public key of minisign (a file, or the line in it) by which the results must be signed",
    )
    parser.add_argument(
        "--unfinished",
        action="store_true",
        help="check the existing files of an audit that has not ended; such an audit has no list of files",
    )


def run(options: argparse.Namespace) -> None:
    """Compare all files with digests, provenance and SHA256SUMS; print the root hash, or a line for each file that differs."""
    if options.unfinished:
        if options.signed:
            raise UserError("--signed: only finished results are signed; leave --unfinished out")
        count = _whole(options.results)
        print(f"{count} files of {options.results} match their digests; without a list, missing files are not noticed")
        return
    verified(options.results)
    if options.signed:
        from mia_audit.storage.signatures import check_signature

        print(f"signed by that key: {check_signature(options.results, options.signed)}")


def verified(results: Path) -> None:
    """Print the root hash of results that match SHA256SUMS, provenance.json and their own digests. Raises UserError for other results."""
    from mia_audit.storage.manifest import MANIFEST, read_manifest, root_hash

    count = len(_checked(results))
    if not (results / MANIFEST).exists():
        raise UserError(
            f"{results}: no {MANIFEST}, which lists the files of a finished audit: the audit has not ended, or the list was"
            " removed. --unfinished checks the existing files"
        )
    _refuse(list(complaints(results)))
    listed = len(read_manifest(results / MANIFEST))
    print(f"{listed} files of {results} match {MANIFEST}; {count} of them contain their own digest")
    print(
        f"root hash {root_hash(results)}; whoever forges files can forge this list too, so compare the root hash or check a signature"
    )


def complaints(results: Path) -> Iterator[str]:
    """Yield a line for every file that differs from its own digest, provenance.json or SHA256SUMS."""
    from mia_audit.storage.manifest import differences, provenance_differences

    yield from _damages(results)
    yield from provenance_differences(results)
    yield from differences(results)


def _whole(results: Path) -> int:
    files = _checked(results)
    _refuse(list(_damages(results)))
    return len(files)


CHECKED = (".parquet", ".npy", ".safetensors")
"""Endings of files that contain their own digest, or whose digest is in a file beside them."""


def _checked(results: Path) -> list[Path]:
    files = [path for path in sorted(results.rglob("*")) if path.suffix in CHECKED and not _hidden(path, results)]
    if not files:
        raise UserError(f"{results}: no tables or models there; expected the results of an audit, results/NAME")
    return files


def _damages(results: Path) -> Iterator[str]:
    checks: dict[str, Callable[[Path], None]] = {".parquet": _table, ".npy": _pool, ".safetensors": _weights}
    for path in _checked(results):
        yield from _checked_by(checks[path.suffix], path)


def _refuse(differences: list[str]) -> None:
    """Raise the first complaint as a UserError, after printing a line for each of the others."""
    if differences:
        more = [f"; {len(differences) - 1} more above"] if len(differences) > 1 else []
        for complaint in differences[1:]:
            print(visible(complaint))
        raise UserError("".join([differences[0], *more]))


def _hidden(path: Path, results: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(results).parts)


def _checked_by(check: Callable[[Path], None], path: Path) -> Iterable[str]:
    try:
        check(path)
    except UserError as error:
        yield str(error)


def _table(path: Path) -> None:
    from mia_audit.storage import digests

    if digests.state(path) != "whole":
        raise UserError(f"{path}: truncated or damaged: delete it and run again")
    if path.parent.name == "models" and (match := re.fullmatch(r"shadow-(\d+)\.parquet", path.name)):
        _model(path, int(match[1]))


def _model(path: Path, shadow: int) -> None:
    """Check that the files of a model match the digests in its table."""
    from mia_audit.storage import table_metadata
    from mia_audit.training.stored import damaged_file

    if damaged := damaged_file(path.parent, shadow, table_metadata(path, "training")):
        raise UserError(
            f"{damaged}: missing, or does not match its digest in {path.name}. Delete {path.parent / STAMPS} and run again, with"
            " --forcerun train if the audit had ended"
        )


def _pool(path: Path) -> None:
    from mia_audit.pools.store import ARRAY, read_records
    from mia_audit.storage import table_metadata

    read_records(path.parent, path.stem)
    if not table_metadata(path.with_suffix(".parquet"), "records").get(ARRAY):
        raise UserError(
            f"{path}: {path.stem}.parquet beside it does not hold the digest of this file, so this audit did not write it"
        )


def _weights(path: Path) -> None:
    from safetensors import SafetensorError, safe_open

    from mia_audit.models.weights import WRITTEN, read_weights
    from mia_audit.training.stored import MASKS

    read_weights(path)
    try:
        with safe_open(path, framework="np") as file:
            written = WRITTEN in (file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: damaged ({first_line(error)})") from None
    if not written and path.name != MASKS:
        raise UserError(
            f"{path}: does not contain the digest that an audit writes into weights, so this audit did not write it"
        )
