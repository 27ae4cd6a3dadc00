"""The printed numbers of Huang et al. 2024 whose score matrices are published."""

PRINTED = {
    "loss": ("Loss LiRA", ((0.054, 0.007), (0.095, 0.012), (0.570, 0.009))),
    "l1": ("L1-LRT", ((0.093, 0.022), (0.156, 0.018), (0.639, 0.008))),
    "l2": ("L2-LRT", ((0.078, 0.021), (0.146, 0.016), (0.633, 0.007))),
    "variance": ("VAR-LRT", ((0.025, 0.008), (0.120, 0.015), (0.613, 0.009))),
}
"""The paper's Table 3 by signal: the attack's name, then mean and standard deviation of TPR at 0.1 % and at 1 % FPR and of the AUC."""
