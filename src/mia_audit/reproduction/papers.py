"""Papers whose printed numbers the package contains, cell by cell, with the table and the section where they are printed."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from mia_audit.errors import UserError, suggest


@dataclass(frozen=True)
class Key:
    """The key of a number; `epsilon` is `inf` without privacy, `explainer` and `attack` are empty if they do not apply."""

    dataset: str
    architecture: str
    mechanism: str
    epsilon: str
    explainer: str
    attack: str
    metric: str


@dataclass(frozen=True)
class Printed:
    """A printed number: mean, standard deviation and number of models, None if the paper prints none."""

    table: str
    where: str
    models: int
    key: Key
    mean: float | None
    sd: float | None


@dataclass(frozen=True)
class Shape:
    """The layout of a table: its title, and the parts of a key in its rows and its columns."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    note: str = ""


@dataclass(frozen=True)
class Panel:
    """A panel of ROC curves: its title, its attack, and the key of each curve by label."""

    title: str
    attack: str
    curves: Mapping[str, tuple[str, str, str, str, str]]
    """Data set, architecture, mechanism, ε and explainer of every curve."""
    config: str = ""
    """The config that trains them, if it differs from the data set's."""
    others: Sequence[int] = ()
    """Numbers of shadow models: every curve is drawn once for each of them, with the same targets."""


@dataclass(frozen=True)
class Paper:
    """A paper: its citation, its tables and figures, and the configs that train the models for each data set's cells."""

    citation: str
    shapes: Mapping[str, Shape]
    figures: Mapping[str, Sequence[Panel]]
    configs: Mapping[str, str]
    elsewhere: Mapping[str, str]
    """Tables and figures of the paper that are not written here, with where they are or why there are none."""
    studies: Mapping[str, str] = field(default_factory=dict)
    """Titles of tables, for a paper on private explanations: these are written from finished studies instead of audits."""
    of_settings: str = ""
    """The figure of membership probabilities; set for a paper that also measures confusion matrices."""
    tests: str = ""
    """The table that prints tests of one attack against another."""


EXPLAINERS = {"ixg": "IXG", "saliency": "SL", "ig": "IG", "gradient_shap": "GS"}
"""Explainers by the abbreviations of Huang et al. 2024."""

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
    return [
        Panel(
            f"{attack.upper()}, {DATASETS[dataset]}, {EXPLAINERS[explainer]}",
            attack,
            {
                "non-DP" if epsilon == "inf" else f"ε = {epsilon}": (
                    dataset,
                    CHOSEN[dataset],
                    "none" if epsilon == "inf" else "dp-sgd",
                    epsilon,
                    explainer,
                )
                for epsilon in BUDGETS
            },
        )
        for dataset in ("cifar10", "cifar100", "svhn")
        for explainer in ("ixg", "saliency", "ig")
        if (dataset, explainer) != ("cifar100", "ig")
    ]


def _by_epochs(attack: str) -> list[Panel]:
    """Return panels by the number of epochs, the first of which is the paper's own."""
    epochs = {"cifar10": (30, 5, 10), "cifar100": (9, 5, 7, 30, 50)}
    return [
        Panel(
            f"{attack.upper()}, {DATASETS[dataset]}, {EXPLAINERS[explainer]}",
            attack,
            {
                f"{count} epochs": (
                    dataset,
                    VIT,
                    "none" if count == counts[0] else f"none-{count}-epochs",
                    "inf",
                    explainer,
                )
                for count in sorted(counts)
            },
            f"config/huang2024/{dataset}-variants.yaml",
        )
        for dataset, counts in epochs.items()
        for explainer in ("ixg", "saliency")
    ]


def _chosen(attacks: Sequence[str], datasets: Sequence[str]) -> list[Panel]:
    return [_by_explainer(attack, dataset, CHOSEN[dataset]) for attack in attacks for dataset in datasets]


def _others(attacks: Sequence[str]) -> list[Panel]:
    places = (("cifar10", RELPOS), ("cifar10", RELPOS_BASE), ("cifar100", BEIT_2), ("food101", RELPOS))
    return [_by_explainer(attack, dataset, architecture) for attack in attacks for dataset, architecture in places]


MAIN = ("cifar10", "cifar100", "food101")

HUANG = Paper(
    citation="Huang, Pawelczyk and Lakkaraju 2024, Explaining the Model, Protecting Your Data",
    shapes={
        "1": Shape("VAR-LRT against the thresholding attack", ("explainer", "metric"), ("dataset", "attack")),
        "2": Shape("L1-LRT", ("explainer", "metric"), ("dataset",)),
        "3": Shape("The attacks beside loss LiRA: CIFAR-10, IXG, vit_small", ("attack",), ("metric",)),
        "5": Shape("Accuracy of the non-private models", ("dataset", "architecture"), ("metric",)),
        "7": Shape(
            "Seconds per explainer for 200 records of CIFAR-10",
            ("explainer",),
            ("metric",),
            "Measured on the machine that ran the audit, one value per job, start-up included: IXG and SL come from one pass.",
        ),
        "8": Shape("Accuracy at every ε", ("dataset", "epsilon"), ("metric",)),
        "9": Shape("L1-LRT with and without privacy", ("metric", "epsilon"), ("dataset", "explainer")),
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
        "Table 4": "hyper-parameters: they are the configs' (config/huang2024)",
        "Figure 4": "activation functions: a drawing, no result",
        "Figure 5": "the architecture of a transformer: a drawing, no result",
    },
    tests="6",
)

HARDER = Paper(
    citation="Harder, Bauer and Park 2020, Interpretable and Differentially Private Predictions",
    shapes={
        "text": Shape(
            "Test accuracy",
            ("dataset", "architecture", "epsilon"),
            ("metric",),
            "The text prints 2 standard deviations of 10 restarts, here 1; and it has Fashion-MNIST's two budgets the other way round.",
        )
    },
    figures={},
    configs={name: f"config/harder2020/{name}.yaml" for name in ("mnist", "fashion_mnist")},
    elsewhere={
        "Figures 2 to 5, 8 and 9": "figures of the audits of config/harder2020 (docs/papers.md)",
        "Figures 6, 7 and 10": "the hospital data are not available; config/harder2020/table.yaml is the study on another table",
    },
)

FADP = Paper(
    citation="Balancing Trade-offs: Adaptive Differential Privacy in Interpretable Machine Learning Models",
    shapes={
        "I": Shape("Cats and dogs", ("metric",), ("mechanism",)),
        "II": Shape("CIFAR-10", ("metric",), ("mechanism",)),
        "III": Shape(
            "SSIM of Grad-CAM maps with the baseline's (cats and dogs)",
            ("mechanism",),
            ("metric",),
            "The text also prints .45 and .81 without saying of what.",
        ),
        "V": Shape(
            "Minutes of training (cats and dogs, 50 epochs, a T4)",
            ("mechanism",),
            ("metric",),
            "Ours are the steps' alone, by the machine that ran them.",
        ),
        "IV": Shape(
            "Factors",
            ("dataset", "mechanism"),
            ("metric",),
            "Case 3 is the one of Tables I and II, where its test accuracy on cats and dogs is .850.",
        ),
    },
    figures={},
    configs={"photos": "config/fadp/image_folder.yaml", "cifar10": "config/fadp/cifar10.yaml"},
    elsewhere={
        "Figures 1 and 2": "drawings, no results",
        "Figure 3": "Grad-CAM maps: figures/explanations_* of these audits",
    },
    of_settings="4",
)

PATEL = Paper(
    citation="Patel, Shokri and Zick 2020, Model Explanations with Differential Privacy",
    shapes={},
    figures={},
    configs={},
    elsewhere={
        "Table 1": "notation: no result",
        "Table 2": "influential words: the reviews are not available, and MIM is not implemented",
        "Section 6.2": "disjoint parts: figures/private_parts and tables/private_parts.csv of the studies",
    },
    studies={"3": "Approximation loss of Algorithm 1", "text": "Numbers of the text"},
)

PAPERS = {"huang2024": HUANG, "harder2020": HARDER, "fadp": FADP, "patel2020": PATEL}
"""The papers by their name on the command line."""


def paper(name: str) -> Paper:
    """Return a paper by its name; UserError lists the known ones."""
    if name not in PAPERS:
        raise UserError(f"paper: no paper '{name}' here: {suggest(name, PAPERS)}")
    return PAPERS[name]


def printed_rows(name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of one of the files of printed numbers, as text by column."""
    text = files("mia_audit.reproduction").joinpath("printed", f"{name}.csv").read_text(encoding="utf-8")
    yield from csv.DictReader(text.splitlines())


def printed_cells(name: str) -> list[Printed]:
    """Return the printed numbers of a paper, in the order of its tables."""
    return [
        Printed(
            row["table"],
            row["where"],
            int(row["models"]),
            Key(**{part: row[part] for part in Key.__dataclass_fields__}),
            float(row["mean"]) if row["mean"] else None,
            float(row["sd"]) if row["sd"] else None,
        )
        for row in printed_rows(name)
    ]
