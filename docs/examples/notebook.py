# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # An audit of a model of one's own, in a notebook
#
# An audit needs several models like yours, each trained on a random half of the records.

# %%
import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

import mia_audit as mia

rows, labels = load_breast_cancer(return_X_y=True)
rows = ((rows - rows.mean(axis=0)) / rows.std(axis=0)).astype(np.float32)
random = np.random.default_rng(0)
wrong = random.random(len(labels)) < 0.1  # a tenth of the diagnoses are wrong: what models memorise
labels = np.where(wrong, 1 - labels, labels)
MODELS = 16
membership = np.stack([random.permutation(len(rows)) < len(rows) // 2 for _ in range(MODELS)], axis=1)

# %% [markdown]
# Train yours as you do, here a small network, on the members alone.


# %%
def train(seed: int, member: np.ndarray) -> nn.Module:
    """Return a network that was trained on the members."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(rows.shape[1], 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    x, y = torch.from_numpy(rows[member]), torch.from_numpy(labels[member])
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


models = [train(seed, member) for seed, member in enumerate(membership.T)]

# %% [markdown]
# Signals are a few scalars a model and record: of its outputs, and of explanations of them.

# %%
tables = [mia.signals(model, rows, labels, explainers=["ixg"]) for model in models]
signals = {name: np.stack([table[name] for table in tables], axis=1) for name in ("loss", "ixg_l1")}

# %% [markdown]
# Each model is the target once; the others, whose members are known, are the attacker's.

# %%
audit = mia.audit(membership, signals, name="breast_cancer")
audit.summary.filter(~audit.summary["null_control"]).select("attack", "signal", "auc_mean", "auc_low", "auc_high")

# %%
audit.figure("roc")

# %%
audit.report("notebook.html")
