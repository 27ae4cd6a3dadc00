"""What tests of commands share."""

import json
from pathlib import Path


def spec_file(folder: Path, values: object) -> str:
    """Write a specification to a file of its own."""
    path = folder / f"spec-{len(list(folder.glob('spec-*.json')))}.json"
    path.write_text(json.dumps(values))
    return str(path)


def run_file(folder: Path, *, private: tuple[str, ...] = (), **compute: object) -> str:
    """Write the run file of an audit to a file of its own, and return its path."""
    path = folder / f"run-{len(list(folder.glob('run-*.json')))}.json"
    path.write_text(json.dumps({"compute": compute, "private": private}))
    return str(path)
