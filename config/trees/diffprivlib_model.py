"""Models of diffprivlib, trained and queried by a Python of an environment of its own (scikit-learn below 1.8).

The environment variable MIA_AUDIT_DIFFPRIVLIB names that Python, which runs this file as a program. Without an ε, the
models are scikit-learn's.
"""

import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

BOUND = 4.0  # columns are standardised by public records: values beyond the bound are clipped
FOREST = {"n_estimators": 30, "max_depth": 6}


def train(task):
    """Return the bytes of a model that the other Python fitted to the members."""
    with TemporaryDirectory() as folder:
        np.save(Path(folder, "records.npy"), task.records[task.members])
        np.save(Path(folder, "labels.npy"), task.labels[task.members])
        elsewhere("fit", folder, task.parameters["kind"], str(task.epsilon), str(task.seed % 2**31))
        return Path(folder, "model").read_bytes()


def predict(model, records):
    """Return the probabilities; a forest's are the mean of its trees'."""
    with TemporaryDirectory() as folder:
        Path(folder, "model").write_bytes(model)
        np.save(Path(folder, "records.npy"), records)
        elsewhere("ask", folder)
        return np.load(Path(folder, "outputs.npy"))


def save(model, folder):
    """Store the model."""
    (folder / "model").write_bytes(model)


def load(folder):
    """Return a stored model."""
    return (folder / "model").read_bytes()


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


def elsewhere(*arguments: str) -> None:
    """Run this file by the other Python."""
    python = os.environ.get("MIA_AUDIT_DIFFPRIVLIB")
    if not python:
        raise RuntimeError("MIA_AUDIT_DIFFPRIVLIB names no Python that has diffprivlib")
    subprocess.run([python, __file__, *arguments], check=True)


def fit(folder: str, kind: str, epsilon: str, seed: str) -> None:
    """Fit a model to the records of a folder, and write it there."""
    rows = np.clip(np.load(Path(folder, "records.npy")), -BOUND, BOUND)
    model = {"forest": forest, "logistic": logistic}[kind](float(epsilon), int(seed), rows.shape[1])
    Path(folder, "model").write_bytes(pickle.dumps(model.fit(rows, np.load(Path(folder, "labels.npy")))))


def ask(folder: str) -> None:
    """Write the probabilities of the records of a folder by the model in it."""
    model = pickle.loads(Path(folder, "model").read_bytes())
    rows = np.clip(np.load(Path(folder, "records.npy")), -BOUND, BOUND)
    np.save(Path(folder, "outputs.npy"), model.predict_proba(rows).astype(np.float32))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    {"fit": fit, "ask": ask}[sys.argv[1]](*sys.argv[2:])
