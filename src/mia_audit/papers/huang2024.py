"""Huang, Pawelczyk and Lakkaraju 2024, Explaining the Model, Protecting Your Data: its panels, tables and tests of one attack against another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from mia_audit.papers.cells import Key, Measured, Panel, Paper, command, printed_rows

if TYPE_CHECKING:
    from mia_audit.evaluation.intervals import OverTargets

EXPLAINERS = {"ixg": "IXG", "saliency": "SL", "ig": "IG", "gradient_shap": "GS"}
DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "food101": "Food 101", "svhn": "SVHN", "gtsrb": "GTSRB"}

VIT, RELPOS, RELPOS_BASE = (
    "vit_small_patch16_224",
    "vit_relpos_small_patch16_224.sw_in1k",
    "vit_relpos_base_patch16_224.sw_in1k",
)
BEIT, BEIT_2 = "beit_base_patch16_224.in22k_ft_in22k_in1k", "beitv2_base_patch16_224.in1k_ft_in22k_in1k"

CHOSEN = {"cifar10": VIT, "cifar100": BEIT, "food101": VIT, "svhn": VIT, "gtsrb": VIT}
"""The architecture of a data set's cells, if the paper names none."""

BUDGETS = ("0.5", "1", "2", "8", "inf")


def _by_explainer(attack: str, dataset: str, architecture: str) -> Panel:
    title = f"{attack.upper()}, {DATASETS[dataset]}"
    without = {"ig"} if dataset == "cifar100" else set()
    curves = {
        name: (dataset, architecture, "none", "inf", explainer)
        for explainer, name in EXPLAINERS.items()
        if explainer not in without
    }
    return Panel(title, attack, curves)


def _by_epsilon(attack: str) -> list[Panel]:
    settings = {
        "non-DP" if one == "inf" else f"ε = {one}": ("none" if one == "inf" else "dp-sgd", one) for one in BUDGETS
    }
    places = [
        (dataset, explainer)
        for dataset in ("cifar10", "cifar100", "svhn")
        for explainer in ("ixg", "saliency", "ig")
        if (dataset, explainer) != ("cifar100", "ig")
    ]
    return [_panel(attack, dataset, CHOSEN[dataset], settings, explainer, models=17) for dataset, explainer in places]


def _by_epochs(attack: str) -> list[Panel]:
    """Return panels by the number of epochs, the first of which is the paper's own."""
    panels = []
    for dataset, (own, *others) in {"cifar10": (30, 5, 10), "cifar100": (9, 5, 7, 30, 50)}.items():
        names = {own: "none"} | {count: f"none-{count}-epochs" for count in others}
        settings = {f"{count} epochs": (names[count], "inf") for count in sorted(names)}
        config = f"config/huang2024/{dataset}-variants.yaml"
        panels += [_panel(attack, dataset, VIT, settings, one, config=config) for one in ("ixg", "saliency")]
    return panels


def _panel(
    attack: str, dataset: str, architecture: str, settings: Mapping[str, tuple[str, str]], explainer: str, **more: Any
) -> Panel:
    """Return the panel of one explainer, with a curve for every setting (mechanism and ε)."""
    title = f"{attack.upper()}, {DATASETS[dataset]}, {EXPLAINERS[explainer]}"
    curves = {label: (dataset, architecture, *setting, explainer) for label, setting in settings.items()}
    return Panel(title, attack, curves, **more)


def _chosen(attacks: Sequence[str], datasets: Sequence[str]) -> list[Panel]:
    return [_by_explainer(attack, dataset, CHOSEN[dataset]) for attack in attacks for dataset in datasets]


def _others(attacks: Sequence[str]) -> list[Panel]:
    places = (("cifar10", RELPOS), ("cifar10", RELPOS_BASE), ("cifar100", BEIT_2), ("food101", RELPOS))
    return [_by_explainer(attack, dataset, architecture) for attack in attacks for dataset, architecture in places]


MAIN = ("cifar10", "cifar100", "food101")

PAPER = Paper(
    tables={
        "1": "VAR-LRT against the thresholding attack",
        "2": "L1-LRT",
        "3": "The attacks beside loss LiRA: CIFAR-10, IXG, vit_small",
        "5": "Accuracy of the non-private models",
        "8": "Accuracy at every ε",
        "9": "L1-LRT with and without privacy, by 17 models",
    },
    figures={
        "1a": _chosen(["var-lrt"], MAIN),
        "1b": _chosen(["threshold"], MAIN),
        "2": _chosen(["l1-lrt", "l2-lrt"], MAIN),
        "3": _by_epsilon("l1-lrt"),
        "6": _others(["var-lrt"]),
        "7": _chosen(["var-lrt"], ["svhn", "gtsrb"]),
        "8": _others(["l1-lrt", "l2-lrt"]),
        "9": _chosen(["l1-lrt", "l2-lrt"], ["svhn", "gtsrb"]),
        "10": _by_epochs("var-lrt"),
        "11": [
            Panel(
                "L1-LRT, CIFAR-10, IXG",
                "l1-lrt",
                {"": ("cifar10", VIT, "none", "inf", "ixg")},
                "config/huang2024/cifar10-models.yaml",
                (32, 64, 128),
            )
        ],
        "12": _by_epsilon("var-lrt"),
        "13": _by_epsilon("l2-lrt"),
    },
    configs={dataset: f"config/huang2024/{dataset}.yaml" for dataset in DATASETS},
    elsewhere={
        "Table 7": "seconds per explainer: a property of the authors' machine",
        "Table 4": "hyper-parameters: they are the configs' (config/huang2024)",
        "Figure 4": "activation functions: a drawing, no result",
        "Figure 5": "the architecture of a transformer: a drawing, no result",
    },
    tests="6",
)


ATTACK = "var-lrt"
"""The attack that the paper compares with the threshold attack."""


def tests(measured: Measured) -> pl.DataFrame:
    """Return a row per printed test: `exact` is for the paper's score, `ours` for our attack, each minus the threshold attack."""
    lines = []
    for row in printed_rows("huang2024_tests"):
        key = Key(
            dataset=row["dataset"],
            architecture=row["architecture"],
            mechanism="none",
            epsilon="inf",
            explainer=row["explainer"],
            attack=ATTACK,
            metric=row["metric"],
        )
        line: dict[str, Any] = {
            name: row[name] for name in ("table", "where", "dataset", "architecture", "explainer", "metric")
        }
        line |= {"printed_t": float(row["t"]), "printed_p": float(row["p"])}
        exact, ours = measured.over_threshold(key)
        for name, difference in (("exact", exact), ("ours", ours)):
            line |= _parts(name, difference)
        line |= {"targets": None if exact is None else exact.count}
        lines.append(line | {"command": "" if exact else command(PAPER, key.dataset)})
    words = ("table", "where", "dataset", "architecture", "explainer", "metric", "command")
    kinds: dict[str, Any] = {name: pl.String if name in words else pl.Float64 for name in lines[0]}
    return pl.DataFrame(lines, schema=kinds | {"targets": pl.Int32}).with_columns(
        pl.col(name).fill_nan(None) for name, kind in kinds.items() if kind == pl.Float64 and name != "targets"
    )


def _parts(name: str, difference: OverTargets | None) -> dict[str, float]:
    values = (math.nan,) * 5
    if difference is not None:
        values = (difference.mean, *difference.interval(0.95), difference.t(), difference.p_value())
    return dict(zip((f"{name}_{part}" for part in ("difference", "low", "high", "t", "p")), values, strict=True))
