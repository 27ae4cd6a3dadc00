"""`mia-audit manifest`: list the files of finished results with their SHA-256."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--results", type=Path, required=True, help="folder of the audit's results")


def run(options: argparse.Namespace) -> None:
    """Write SHA256SUMS and print the root hash."""
    from mia_audit.storage.manifest import write_manifest

    print(f"{options.results}: root hash {write_manifest(options.results)}")
