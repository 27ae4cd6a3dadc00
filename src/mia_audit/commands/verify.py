"""`mia-audit verify`: check that no file of an audit was changed since it was written."""

import argparse
from pathlib import Path

from mia_audit.errors import UserError
from mia_audit.sanitise import visible


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")
    parser.add_argument(
        "--unfinished",
        action="store_true",
        help="check the existing files of an audit that has not ended; such an audit has no list of files",
    )


def run(options: argparse.Namespace) -> None:
    """Compare all files with digests, provenance and SHA256SUMS; print the root hash, or a line for each file that differs."""
    from mia_audit.storage.manifest import MANIFEST, read_manifest, root_hash
    from mia_audit.training.verification import complaints, damages, files_with_digests

    results = options.results
    count = len(files_with_digests(results))
    if options.unfinished:
        _refuse(list(damages(results)))
        print(f"{count} files of {results} match their digests; without a list, missing files are not noticed")
        return
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


def _refuse(differences: list[str]) -> None:
    """Raise the first complaint as a UserError, after printing a line for each of the others."""
    if differences:
        more = [f"; {len(differences) - 1} more above"] if len(differences) > 1 else []
        for complaint in differences[1:]:
            print(visible(complaint))
        raise UserError("".join([differences[0], *more]))
