"""What the last three stages write: file names only, so that a workflow can declare them without drawing anything."""

from collections.abc import Iterable, Mapping
from typing import Any

TABLE_NAMES = ("settings", "summary", "differences", "null_control")
TABLE_FORMATS = ("csv", "parquet", "tex")
FIGURE_FORMATS = ("pdf", "svg", "png")

TABLES = tuple(f"{name}.{suffix}" for name in TABLE_NAMES for suffix in TABLE_FORMATS)
"""File names of the tables, whatever the settings."""


def roc_name(setting: Mapping[str, Any]) -> str:
    """Name the ROC figure of a setting, without its suffix."""
    return f"roc_{setting['dataset']}_{setting['architecture']}_{setting['mechanism']}-eps{setting['epsilon']}"


def figure_names(settings: Iterable[Mapping[str, Any]]) -> list[str]:
    """List the file names of the figures of these settings.

    A setting is a mapping with `dataset`, `architecture`, `mechanism` and `epsilon`; with `trained: false` it came
    from somebody else's signals, whose accuracy is unknown, and the trade-off is drawn only from the other ones.
    """
    known = list(settings)
    names = [*map(roc_name, known), "attack_by_epsilon"]
    if any(setting.get("trained", True) for setting in known):
        names.append("tradeoff")
    return [f"{name}.{suffix}" for name in names for suffix in FIGURE_FORMATS]
