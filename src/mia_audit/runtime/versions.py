"""Which results a version of the package can use, by the version in their provenance.json.

A version reads and continues results of its own major version, up to its own minor one: files and names change only with
the major version, and a minor version may add to them. Other results are read with the version that wrote them.
"""

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mia_audit.errors import UserError
from mia_audit.foreign_json import parse_object

PACKAGE = "mia-audit"


def refuse_other_version(results: Path, here: str | None = None) -> None:
    """Raise UserError for results of a version that `here`, the installed version, neither reads nor continues.

    Results without a readable version pass: their readers say what they lack.
    """
    try:
        here = here or version(PACKAGE)
        versions = parse_object((results / "provenance.json").read_bytes()).get("versions")
    except (PackageNotFoundError, OSError, ValueError):
        return
    known = versions.get(PACKAGE) if isinstance(versions, dict) else None
    if not isinstance(known, str) or not re.fullmatch(r"\d{1,9}(\.\w{1,9}){1,4}", known):
        return
    if _numbers(known)[0] != _numbers(here)[0] or _numbers(known) > _numbers(here):
        raise UserError(
            f"{results}: results of mia-audit {known}, which {here} neither reads nor continues: use version {known}, or"
            " run the audit again in another folder"
        )


def _numbers(text: str) -> tuple[int, ...]:
    """Return the major and minor number of a version."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])
