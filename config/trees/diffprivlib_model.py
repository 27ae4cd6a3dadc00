"""A random forest of diffprivlib as two commands, `train` and `predict`, in an environment of its own (scikit-learn below 1.8).

The environment variable MIA_AUDIT_DIFFPRIVLIB names that environment's Python. Without an ε, the forest is scikit-learn's.
"""

import importlib.util
import os
import pickle
import sys
import warnings

if importlib.util.find_spec("diffprivlib") is None:
    other = os.environ.get("MIA_AUDIT_DIFFPRIVLIB")
    if not other or os.environ.get("MIA_AUDIT_DIFFPRIVLIB_STARTED"):
        sys.exit("MIA_AUDIT_DIFFPRIVLIB names no Python that has diffprivlib")
    os.environ["MIA_AUDIT_DIFFPRIVLIB_STARTED"] = "1"
    os.execv(other, [other, *sys.argv])

import numpy as np

warnings.simplefilter("ignore")
TREES, DEPTH, BOUND = 30, 6, 4.0  # columns are standardised by public records: values beyond the bound are clipped


def train(records: str, labels: str, members: str, epsilon: str, seed: str, model: str) -> None:
    """Fit a forest to the members."""
    inside = np.load(members)
    rows, classes = np.clip(np.load(records)[inside], -BOUND, BOUND), np.load(labels)[inside]
    known = {"n_estimators": TREES, "max_depth": DEPTH, "random_state": int(seed)}
    if epsilon == "inf":
        from sklearn.ensemble import RandomForestClassifier

        forest = RandomForestClassifier(**known)
    else:
        from diffprivlib.models import RandomForestClassifier

        forest = RandomForestClassifier(epsilon=float(epsilon), bounds=(-BOUND, BOUND), classes=[0, 1], **known)
    with open(model, "wb") as file:  # noqa: PTH123
        pickle.dump(forest.fit(rows, classes), file)


def predict(records: str, model: str, out: str) -> None:
    """Write the mean of the trees' probabilities."""
    with open(model, "rb") as file:  # noqa: PTH123
        forest = pickle.load(file)
    np.save(out, forest.predict_proba(np.clip(np.load(records), -BOUND, BOUND)).astype(np.float32))


{"train": train, "predict": predict}[sys.argv[1]](*sys.argv[2:])
