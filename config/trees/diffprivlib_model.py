"""Models of diffprivlib as two commands, `train` and `predict`, in an environment of its own (scikit-learn below 1.8).

The environment variable MIA_AUDIT_DIFFPRIVLIB names that environment's Python. Without an ε, the models are scikit-learn's.
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
BOUND = 4.0  # columns are standardised by public records: values beyond the bound are clipped
FOREST = {"n_estimators": 30, "max_depth": 6}


def forest(epsilon: float, seed: int, columns: int):
    """Return a random forest."""
    if epsilon == float("inf"):
        from sklearn.ensemble import RandomForestClassifier

        return RandomForestClassifier(**FOREST, random_state=seed)
    from diffprivlib.models import RandomForestClassifier

    limits = {"bounds": (-BOUND, BOUND), "classes": [0, 1]}
    return RandomForestClassifier(epsilon=epsilon, **limits, **FOREST, random_state=seed)


def logistic(epsilon: float, seed: int, columns: int):
    """Return a logistic regression; no record is longer than one at the bound in all columns."""
    if epsilon == float("inf"):
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(max_iter=1000, random_state=seed)
    from diffprivlib.models import LogisticRegression

    return LogisticRegression(epsilon=epsilon, data_norm=BOUND * columns**0.5, random_state=seed)


MODELS = {"forest": forest, "logistic": logistic}


def train(kind: str, records: str, labels: str, members: str, epsilon: str, seed: str, model: str) -> None:
    """Fit a model to the members."""
    inside = np.load(members)
    rows, classes = np.clip(np.load(records)[inside], -BOUND, BOUND), np.load(labels)[inside]
    fitted = MODELS[kind](float(epsilon), int(seed), rows.shape[1]).fit(rows, classes)
    with open(model, "wb") as file:  # noqa: PTH123
        pickle.dump(fitted, file)


def predict(records: str, model: str, out: str) -> None:
    """Write the probabilities; a forest's are the mean of its trees'."""
    with open(model, "rb") as file:  # noqa: PTH123
        fitted = pickle.load(file)
    np.save(out, fitted.predict_proba(np.clip(np.load(records), -BOUND, BOUND)).astype(np.float32))


{"train": train, "predict": predict}[sys.argv[1]](*sys.argv[2:])
