"""What the last three stages write: file names only, so that a workflow can declare them without drawing anything."""

from collections.abc import Iterable, Mapping
from typing import Any

TABLE_FORMATS = ("csv", "parquet", "tex")
FIGURE_FORMATS = ("pdf", "svg", "png")
CURVE = 3
"""Budgets that make a curve."""


def table_names(interpreted: bool = False, curved: bool = False) -> list[str]:
    """List the file names of the tables, whatever the settings.

    `interpreted` says that explanations were measured, and `curved` that curves were among the measures.
    """
    names = ["settings", "summary", "differences", "null_control"]
    names += [name for name, there in (("interpretability", interpreted), ("curves", curved)) if there]
    return [f"{name}.{suffix}" for name in names for suffix in TABLE_FORMATS]


def roc_name(setting: Mapping[str, Any]) -> str:
    """Name the ROC figure of a setting, without its suffix."""
    return f"roc_{setting['dataset']}_{setting['architecture']}_{setting['mechanism']}-eps{setting['epsilon']}"


def sheet_name(dataset: str, architecture: str) -> str:
    """Name the figure that shows the same records' explanations in every setting, without its suffix."""
    return f"explanations_{dataset}_{architecture}"


def inherent_name(dataset: str) -> str:
    """Name the figure that holds explanations that are the model itself against others, without its suffix."""
    return f"inherent_{dataset}"


def curves_name(dataset: str, architecture: str) -> str:
    """Name the figure of the curves measured on explanations, without its suffix."""
    return f"curves_{dataset}_{architecture}"


def figure_names(
    settings: Iterable[Mapping[str, Any]],
    interpreted: bool = False,
    shown: bool = False,
    curved: bool = False,
    inherent: Iterable[str] = (),
) -> list[str]:
    """List the file names of the figures of these settings.

    A setting is a mapping with `dataset`, `architecture`, `mechanism` and `epsilon`; with `trained: false` it came
    from somebody else's signals, whose accuracy is unknown, and the trade-off is drawn only from the other ones.
    `interpreted` says that explanations were measured, `shown` that maps of some records were kept, and `curved` that
    curves were among the measures; `inherent` names the data sets that have explanations which are the model itself.
    """
    known = list(settings)
    names = [*map(roc_name, known), "attack_by_epsilon"]
    if any(setting.get("trained", True) for setting in known):
        names.append("tradeoff")
    names += study_names(known) + [inherent_name(dataset) for dataset in inherent]
    groups = dict.fromkeys((one["dataset"], one["architecture"]) for one in known if one.get("trained", True))
    if interpreted and groups:
        names += ["interpretability", *(sheet_name(*group) for group in groups if shown)]
        names += [curves_name(*group) for group in groups if curved]
    return [f"{name}.{suffix}" for name in names for suffix in FIGURE_FORMATS]


def study_names(settings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Name the figures of accuracy over ε and over swept parameters, without their suffix."""
    known = list(settings)
    over_budgets = ["accuracy_by_epsilon"] if budgets_of(known) else []
    return over_budgets + [f"accuracy_by_{key}" for key in swept_parameters(known)]


def budgets_of(settings: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], set[str]]:
    """Return the budgets, inf included, of every data set and architecture that has a curve over ε: three of them at least."""
    found: dict[tuple[str, str], set[str]] = {}
    for setting in settings:
        if setting.get("trained", True):
            found.setdefault((setting["dataset"], setting["architecture"]), set()).add(setting["epsilon"])
    return {group: budgets for group, budgets in found.items() if len(budgets) >= CURVE}


def swept_parameters(settings: Iterable[Mapping[str, Any]]) -> list[str]:
    """List the parameters that were swept over several values."""
    values: dict[str, set[str]] = {}
    for setting in settings:
        for key in setting.get("swept") or {}:
            values.setdefault(key, set()).add(str(setting["swept"][key]))
    return [key for key, several in values.items() if len(several) > 1]


PRIVATE_TABLES = ("private_explanations.csv", "private_published.csv")
"""File names of the tables of private explanations."""


def private_figure_names(studies: Mapping[str, Mapping[str, Any]], attacked: bool) -> list[str]:
    """List the file names of the figures of private explanations.

    `studies` are those of `settings.private_report_slice`; `attacked` says whether settings have private explainers too.
    """
    names = [f"private_{name}" for name in ("loss", "spending", "losses", "steps", "queries")] if studies else []
    if any(study["settings"] for study in studies.values()):
        names.append("private_training")
    names += [f"private_pictures_{dataset}" for dataset, study in studies.items() if study["pictures"]]
    if any(study["attacked"] for study in studies.values()):
        names.append("private_sets")
    if attacked:
        names.append("private_attacks")
    return [f"{name}.{suffix}" for name in names for suffix in FIGURE_FORMATS]
