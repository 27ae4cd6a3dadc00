"""What tests of commands share."""

import json
from pathlib import Path


def spec_file(folder: Path, values: object) -> str:
    """Write a specification to a file of its own."""
    path = folder / f"spec-{len(list(folder.glob('spec-*.json')))}.json"
    path.write_text(json.dumps(values))
    return str(path)
