"""Harder, Bauer and Park 2020, Interpretable and Differentially Private Predictions: locally linear maps."""

from mia_audit.papers.cells import Paper

PAPER = Paper(
    tables={
        "text": "Test accuracy (the paper prints σ = 1.3 as ε = 2 and σ = 4.1 as ε = 0.5)",
        "figure_8": "Test accuracy of two private CNNs",
    },
    figures={},
    configs={name: f"config/harder2020/{name}.yaml" for name in ("mnist", "fashion_mnist")},
    elsewhere={
        "Figures 2 to 5, 8 and 9": "figures of the audits of config/harder2020 (docs/results/papers.md)",
        "Figures 6, 7 and 10": "the hospital data are not available; config/harder2020/table.yaml is the study on another table",
    },
)
