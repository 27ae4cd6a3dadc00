"""Models of diffprivlib as a command: JSON lines in and out; run by a Python that has diffprivlib, not by the tests' own."""

import json
import sys
import warnings

import numpy as np

warnings.simplefilter("ignore")
EPSILON = float(sys.argv[2])


def logistic_regression(records, labels):
    from diffprivlib.models import LogisticRegression

    model = LogisticRegression(epsilon=EPSILON, data_norm=2.0, max_iter=50).fit(records, labels)
    return [model.coef_.tolist(), model.intercept_.tolist()]


def gaussian_nb(records, labels):
    from diffprivlib.models import GaussianNB

    model = GaussianNB(epsilon=EPSILON, bounds=(-1, 1)).fit(records, labels)
    return [model.theta_.tolist(), model.var_.tolist(), model.class_prior_.tolist()]


fit = {"logistic-regression": logistic_regression, "gaussian-nb": gaussian_nb}[sys.argv[1]]
for line in sys.stdin:
    rows = np.array(json.loads(line)["records"], dtype=float)
    try:
        answer = fit(rows[:, :-1], rows[:, -1].astype(int))
    except Exception as error:  # an observation like any other
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer), flush=True)
