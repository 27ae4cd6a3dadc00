"""`mia-audit schema`: write the config's JSON schema and the key table of its README."""

import argparse
from pathlib import Path

from mia_audit.config.docs import json_schema, with_key_tables
from mia_audit.storage import write_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--folder", type=Path, default=Path("config"), help="folder of schema.json and README.md (config)"
    )


def run(options: argparse.Namespace) -> None:
    """Write schema.json, and the key tables between the markers in README.md."""
    readme = options.folder / "README.md"
    write_text(options.folder / "schema.json", json_schema())
    write_text(readme, with_key_tables(readme.read_text(encoding="utf-8")))
