"""FADP, "Balancing Trade-offs: Adaptive Differential Privacy in Interpretable Machine Learning Models": noise by feature importance."""

from mia_audit.papers.cells import Paper

PAPER = Paper(
    tables={
        "I": "Cats and dogs",
        "II": "CIFAR-10",
        "III": "SSIM of Grad-CAM maps with the baseline's (cats and dogs)",
        "IV": "Factors",
        "figure_4": "AUC of the attack on cats and dogs (the text prints .59 for the first as well)",
    },
    figures={},
    configs={"photos": "config/fadp/image_folder.yaml", "cifar10": "config/fadp/cifar10.yaml"},
    elsewhere={
        "Figures 1 and 2": "drawings, no results",
        "Table V": "minutes of training on a T4",
        "Figure 3": "Grad-CAM maps: figures/explanations_* of these audits",
        "Figure 4": "its heat maps: scores.parquet has the scores; its AUCs are table_figure_4",
    },
)
