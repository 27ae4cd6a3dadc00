"""Stamps: a small file for every job that trained or explained shadow models. The workflow waits for this file.

Every result belongs to a shadow model and is named after it; jobs only group the models, and may group them differently
when models are added. A stamp is named after its first and last model, in a hidden folder beside the results of its
job, and holds the key of every model: the digest of everything that the model's result depends on. No model is in two
stamps, so an existing stamp always describes existing results.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from mia_audit.errors import UserError
from mia_audit.storage.atomic import write_json

STAMPS = ".jobs"
"""The folder of stamps, beside the results that they describe."""


def parse_range(text: str, where: str) -> range:
    """Read the numbers of a job's models, first-last; UserError for anything else."""
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise UserError(f"{where}: '{text}'; expected the numbers of the first and the last model, such as 0-8")
    return range(int(first), int(last) + 1)


def clear_stamps(folder: Path, shadows: range) -> None:
    """Remove every stamp in this folder that includes one of the models. Call it before the models' results are written."""
    for path in folder.glob("*-*"):
        if re.fullmatch(r"\d+-\d+", path.name):
            stamped = parse_range(path.name, str(path))
            if stamped.start < shadows.stop and shadows.start < stamped.stop:
                path.unlink(missing_ok=True)


def write_stamp(path: Path, keys: Mapping[int, str]) -> None:
    """Write the stamp of a job that has finished these models, given their keys."""
    write_json(path, {str(shadow): key for shadow, key in keys.items()})
