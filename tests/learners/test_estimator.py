"""Estimators: seeded by the shadow, stored without a pickle, and never certain."""

import functools
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import FunctionTransformer

from mia_audit.errors import UserError
from mia_audit.learners.estimators import FILE, EstimatorLearner, EstimatorModel, load_estimator, rows_of, votes_of
from mia_audit.learners.protocol import Compute, ExplanationRequest, TrainedOn
from mia_audit.learners.script import ScriptLearner
from mia_audit.signals.compute import SignalsTask, model_signals
from mia_audit.training.task import Records, TrainingTask

FOREST = "sklearn.ensemble:RandomForestClassifier"
SMALL = {"n_estimators": 7}

MakeTask = Callable[..., TrainingTask]
Described = Callable[..., dict[str, Any]]

PIPELINE = """
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer
from mia_audit.learners import estimator


def doubled(rows):
    return 2 * rows


@estimator()
def binned(bins=3):
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), KBinsDiscretizer(bins, quantile_method="averaged_inverted_cdf")), [0, 1]),
        (FunctionTransformer(doubled), [2]),
    )
    return make_pipeline(columns, LogisticRegression())
"""

MODELS = {
    FOREST: SMALL,
    "sklearn.ensemble:HistGradientBoostingClassifier": {"max_iter": 5, "min_samples_leaf": 2},
    "sklearn.linear_model:LogisticRegression": {},
    "sklearn.neighbors:KNeighborsClassifier": {"n_neighbors": 3},
    "sklearn.neural_network:MLPClassifier": {"max_iter": 200, "learning_rate_init": 0.05},
    "pipeline.py:binned": {"bins": 4},
}


@pytest.mark.parametrize("model", MODELS)
def test_an_estimator_is_trained_stored_and_asked(
    model: str, table: Records, task: MakeTask, described: Described, script: Callable[..., Path], tmp_path: Path
) -> None:
    script(PIPELINE, "pipeline.py")
    architecture = described(EstimatorLearner, model, parameters=MODELS[model])
    json.dumps(architecture)
    learner = EstimatorLearner(architecture, Compute(micro_batch=17))
    json.dumps(learner.environment)
    trained = learner.train(task())
    logits = trained.logits(table)
    assert logits.shape == (60, 3) and np.isfinite(logits).all()
    np.testing.assert_allclose(np.exp(logits).sum(axis=1), 1, rtol=1e-6)
    assert (logits.argmax(axis=1) == table.labels)[::2].mean() > 0.6
    (tmp_path / "model").mkdir()
    trained.save(tmp_path / "model")
    assert [path.name for path in (tmp_path / "model").iterdir()] == [FILE]
    opened = EstimatorLearner(architecture, Compute(micro_batch=60)).load(tmp_path / "model")
    np.testing.assert_allclose(opened.logits(table), logits, rtol=1e-5)
    signals = model_signals(
        opened, table, SignalsTask("gradient", {"explainers": [], "explain": [], "explained_class": "true"}, 0)
    )
    assert list(signals) == ["label", "predicted", "loss", "confidence"] and np.isfinite(signals["confidence"]).all()


def test_boosting_libraries_are_stored_alike(
    table: Records, task: MakeTask, described: Described, tmp_path: Path
) -> None:
    pytest.importorskip("lightgbm")
    pytest.importorskip("xgboost")
    models = {
        "lightgbm:LGBMClassifier": {"n_estimators": 5, "verbose": -1},
        "xgboost:XGBClassifier": {"n_estimators": 5},
    }
    for number, (model, parameters) in enumerate(models.items()):
        learner = EstimatorLearner(described(EstimatorLearner, model, parameters=parameters), Compute())
        trained, folder = learner.train(task()), tmp_path / str(number)
        folder.mkdir()
        trained.save(folder)
        np.testing.assert_array_equal(learner.load(folder).logits(table), trained.logits(table))


def test_the_seed_is_the_shadows_and_bytes_repeat(task: MakeTask, described: Described, tmp_path: Path) -> None:
    architecture = described(EstimatorLearner, FOREST, parameters=SMALL)
    learner = EstimatorLearner(architecture, Compute())
    stored = []
    for number, one in enumerate((task(), task(), task(shadow=4))):
        folder = tmp_path / str(number)
        folder.mkdir()
        learner.train(one).save(folder)
        stored.append((folder / FILE).read_bytes())
    assert stored[0] == stored[1] != stored[2]


@pytest.mark.slow
def test_another_process_stores_the_same_bytes(tmp_path: Path) -> None:
    text = """
import sys
from hashlib import sha256
from pathlib import Path
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from mia_audit.learners.estimators import FILE, save_estimator
random = np.random.default_rng(0)
model = RandomForestClassifier(5, random_state=0).fit(random.normal(size=(40, 3)), np.arange(40) % 2)
save_estimator(model, Path(sys.argv[1]))
"""
    stored = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        subprocess.run([sys.executable, "-c", text, str(tmp_path / name)], check=True)
        stored.append((tmp_path / name / FILE).read_bytes())
    assert stored[0] == stored[1]


def test_votes_are_smoothed_by_half_a_vote_for_every_class(
    table: Records, task: MakeTask, described: Described
) -> None:
    learner = EstimatorLearner(described(EstimatorLearner, FOREST, parameters=SMALL), Compute())
    model = learner.train(task())
    assert votes_of(model.estimator) == 7
    shares = model.estimator.predict_proba(table.values)
    np.testing.assert_allclose(np.exp(model.logits(table)), (7 * shares + 0.5) / (7 + 1.5))
    assert shares.max() == 1


def test_a_class_without_training_records_is_unlikely(table: Records, task: MakeTask, described: Described) -> None:
    learner = EstimatorLearner(described(EstimatorLearner, FOREST, parameters=SMALL), Compute())
    few = Records(table.values, np.where(table.labels == 1, 0, table.labels), table.metadata, table.numbers)
    logits = learner.train(task(few)).logits(table)
    np.testing.assert_allclose(logits[:, 1], np.log(0.5 / 8.5))


LACKING: dict[str, dict[str, Any]] = {
    "xgboost:XGBClassifier": {"parameters": {"n_estimators": 5}},
    "sklearn.naive_bayes:GaussianNB": {"outputs": "labels"},
    "sklearn.svm:LinearSVC": {"outputs": "logits"},
    "sklearn.linear_model:LogisticRegression": {"parameters": {"class_weight": {0: 1.0, 1: 2.0, 2: 3.0}}},
}


@pytest.mark.parametrize("model", LACKING)
def test_classes_that_a_training_set_lacks_are_no_others(
    model: str, table: Records, task: MakeTask, described: Described, tmp_path: Path
) -> None:
    """A model of the classes 0 and 2 answers as one of 0 and 1, with outputs in their own columns, also after storage."""
    pytest.importorskip(model.partition(":")[0].partition(".")[0])
    learner = EstimatorLearner(described(EstimatorLearner, model, **LACKING[model]), Compute())
    few = Records(table.values, np.where(table.labels == 1, 0, table.labels), table.metadata, table.numbers)
    trained = learner.train(task(few))
    trained.save(tmp_path)
    two = dict(few.metadata) | {"classes": ["a", "c"]}
    if not LACKING[model].get("parameters", {}).get("class_weight"):
        plain = learner.train(task(Records(few.values, few.labels // 2, two, few.numbers)))
        np.testing.assert_array_equal(
            trained.logits(table).argmax(axis=1) // 2,
            plain.logits(Records(few.values, few.labels // 2, two, few.numbers)).argmax(axis=1),
        )
    logits = trained.logits(table)
    assert set(logits.argmax(axis=1)) == {0, 2}
    np.testing.assert_array_equal(learner.load(tmp_path).logits(table), logits)


@pytest.mark.parametrize("outputs", ["logits", "labels"])
def test_declared_outputs_are_what_is_asked(outputs: str, table: Records, task: MakeTask, described: Described) -> None:
    model = "sklearn.svm:LinearSVC" if outputs == "logits" else "sklearn.neighbors:NearestCentroid"
    learner = EstimatorLearner(described(EstimatorLearner, model, outputs=outputs), Compute())
    trained = learner.train(task())
    logits = trained.logits(table)
    np.testing.assert_array_equal(logits.argmax(axis=1), trained.estimator.predict(table.values))
    assert (len(np.unique(logits)) == 2) == (outputs == "labels")


def test_images_are_flattened_and_scaled() -> None:
    images = np.full((2, 1, 2, 2), 51, dtype=np.uint8)
    rows = rows_of(Records(images, np.zeros(2, dtype=int), {}, np.arange(2)))
    assert rows.shape == (2, 4) and rows.dtype == np.float32 and rows[0, 0] == np.float32(0.2)


@pytest.mark.parametrize(
    ("model", "section", "message"),
    [
        ("sklearn.ensemble:RandomForest", {}, "sklearn.ensemble has no class 'RandomForest'"),
        (
            "sklearn.utils._testing:check_output",
            {"parameters": {"args": "touch ran", "shell": True}},
            "no class 'check_output' with a method fit",
        ),
        (
            "subprocess:Popen",
            {"parameters": {"args": "touch ran", "shell": True}},
            "no class 'Popen' with a method fit",
        ),
        ("no_such_package:Model", {}, "No module named 'no_such_package'; install the package"),
        (FOREST, {"parameters": {"trees": 3}}, "unexpected keyword argument 'trees'"),
        (FOREST, {"outputs": "logits"}, "no decision_function; it supports outputs: probabilities or labels"),
        ("sklearn.cluster:KMeans", {}, "the estimator has no predict_proba; it supports outputs: labels"),
        ("pathlib:PurePath", {}, "no class 'PurePath' with a method fit"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    model: str, section: dict[str, Any], message: str, described: Described
) -> None:
    with pytest.raises(UserError) as caught:
        described(EstimatorLearner, model, **section)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_types_of_other_packages_are_not_loaded(task: MakeTask, described: Described, tmp_path: Path) -> None:
    """A file that names a type of a package that neither the config nor the file's own library has is refused."""
    from fractions import Fraction

    import skops.io
    from sklearn.dummy import DummyClassifier

    odd = DummyClassifier(strategy="constant", constant=Fraction(1, 2))
    (tmp_path / FILE).write_bytes(skops.io.dumps(odd))
    learner = EstimatorLearner(described(EstimatorLearner, FOREST), Compute())
    with pytest.raises(UserError, match=r"estimator\.skops: contains a fractions\.Fraction, which is not a type of"):
        learner.load(tmp_path)
    (tmp_path / FILE).write_bytes(b"no archive")
    with pytest.raises(UserError, match="damaged, or not an estimator"):
        learner.load(tmp_path)


def test_a_crash_names_what_crashed(task: MakeTask, described: Described, table: Records) -> None:
    learner = EstimatorLearner(described(EstimatorLearner, "sklearn.linear_model:LogisticRegression"), Compute())
    broken = Records(np.full_like(table.values, np.nan), table.labels, table.metadata, table.numbers)
    with pytest.raises(
        UserError, match=r"architectures\.mine: sklearn\.linear_model:LogisticRegression: ValueError: Input X"
    ):
        learner.train(task(broken))


@pytest.mark.parametrize(
    ("model", "explainer", "explain"),
    [
        (FOREST, "tree_shap", "probability"),
        ("sklearn.ensemble:HistGradientBoostingClassifier", "tree_shap", "logit"),
        ("lightgbm:LGBMClassifier", "tree_shap", "logit"),
        ("xgboost:XGBClassifier", "tree_shap", "logit"),
        ("sklearn.linear_model:LogisticRegression", "linear_shap", "logit"),
        ("sklearn.neighbors:KNeighborsClassifier", "permutation_shap", "probability"),
    ],
)
def test_an_estimator_is_explained(
    model: str, explainer: str, explain: str, table: Records, task: MakeTask, described: Described
) -> None:
    pytest.importorskip(model.partition(".")[0].partition(":")[0])
    if model.startswith("sklearn.ensemble"):
        pytest.importorskip("shap")
    small = {"HistGradientBoostingClassifier": {"min_samples_leaf": 2}, "LGBMClassifier": {"min_child_samples": 2}}
    parameters = {"n_estimators": 5} if model == FOREST else small.get(model.partition(":")[2], {})
    learner = EstimatorLearner(described(EstimatorLearner, model, parameters=parameters), Compute(micro_batch=600))
    made = task()
    trained = learner.train(made)
    options = {
        "explainers": [explainer], "explain": ["logit", "probability"], "explained_class": "predicted",
        "shap_evaluations": 16, "shap_background": 2,
    }  # fmt: skip
    found = model_signals(trained, table, SignalsTask("shap", options, 0, batch=50), TrainedOn(table, made.members, 3))
    name = explainer if explain == "logit" else f"{explainer}_probability"
    assert f"{name}_l1" in found and (found[f"{name}_l1"] > 0).any() and np.isfinite(found[f"{name}_l2"]).all()
    quantities = {"tree_shap": 1, "linear_shap": 1, "permutation_shap": 2}[explainer]
    assert len(found) == 4 * quantities
    if explainer != "permutation_shap":
        other = {"logit": "probability", "probability": "logit"}[explain]
        with pytest.raises(
            UserError, match=f"explain: {explainer} explains only the {explain} of this model; add this quantity"
        ):
            model_signals(
                trained,
                table,
                SignalsTask("shap", options | {"explain": [other]}, 0),
                TrainedOn(table, made.members, 3),
            )


AT_HOME = """
from mia_audit.learners import estimator


@estimator()
def mixed():
    from sklearn.compose import ColumnTransformer, make_column_selector
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    words = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder())
    columns = [("numbers", SimpleImputer(), ["age"]), ("words", words, make_column_selector(dtype_include="category"))]
    return make_pipeline(ColumnTransformer(columns), LogisticRegression())
"""
SCRIPT = """
from sklearn.ensemble import HistGradientBoostingClassifier


def train(task):
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0, min_samples_leaf=2)
    return model.fit(task.records.iloc[task.members], task.labels[task.members])
"""
FRAMES = {
    "home.py:mixed": (EstimatorLearner, {}),
    "sklearn.ensemble:HistGradientBoostingClassifier": (
        EstimatorLearner,
        {"categorical_features": "from_dtype", "random_state": 0, "min_samples_leaf": 2},
    ),
    "train.py": (ScriptLearner, {}),
}


@pytest.mark.parametrize("model", FRAMES)
def test_frames_are_learned_from_as_at_home(
    model: str, task: MakeTask, described: Described, script: Callable[..., Path], tmp_path: Path
) -> None:
    """Trained, stored and opened, a model of columns by name, categories and missing values answers as one fitted outside."""
    script(AT_HOME, "home.py")
    script(SCRIPT)
    random = np.random.default_rng(0)
    codes = np.where(random.random(60) < 0.1, -1, random.integers(0, 2, 60))
    age = np.where(random.random(60) < 0.1, np.nan, random.integers(18, 90, 60))
    home = pd.DataFrame({"age": age, "sex": pd.Categorical.from_codes(codes, ["f", "m"])})
    columns = [{"name": "age", "type": "float64"}, {"name": "sex", "type": "category", "values": ["f", "m"]}]
    values = np.stack([age, np.where(codes < 0, np.nan, codes)], axis=1)
    labels = (np.nan_to_num(age, nan=50) + 20 * codes > 60).astype(np.int64)
    metadata = {"kind": "table", "shape": [2], "classes": ["no", "yes"], "features": ["age", "sex"], "frame": columns}
    records = Records(values, labels, metadata, np.arange(60))
    learner, parameters = FRAMES[model]
    trained = learner(described(learner, model, records, parameters=parameters), Compute())
    (tmp_path / "model").mkdir()
    trained.train(task(records)).save(tmp_path / "model")
    answered = trained.load(tmp_path / "model")
    outside: Any = runpy.run_path("home.py")["mixed"]()
    if model != "home.py:mixed":
        outside = HistGradientBoostingClassifier(**FRAMES["sklearn.ensemble:HistGradientBoostingClassifier"][1])
    expected = outside.fit(home[::2], labels[::2]).predict_proba(home)
    np.testing.assert_allclose(np.exp(answered.logits(records)), expected, atol=1e-8)
    options = {"explained_class": "predicted", "explain": ["logit"], "shap_evaluations": 20, "shap_background": 2}
    request = ExplanationRequest(["permutation_shap"], options, 0, TrainedOn(records, np.arange(60) % 2 == 0, 0))
    (attributions,) = answered.attributions(records, request).values()
    assert attributions.shape == (60, 2) and (np.abs(attributions).max(axis=0) > 0).all()


def test_a_stored_partial_of_another_function_is_refused(tmp_path: Path) -> None:
    """HistGradientBoosting's own partial is opened, and none that calls something else."""
    (tmp_path / FILE).write_bytes(skops.io.dumps(FunctionTransformer(functools.partial(os.system, "touch evil"))))
    with pytest.raises(UserError, match=r"contains a posix\.system"):
        load_estimator(tmp_path, [])


def test_shap_of_an_image_is_that_of_its_pixels() -> None:
    """Coalitions are asked in the pool's form, which the estimator then scales like any record."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (40, 1, 2, 2)).astype(np.uint8)
    labels = (images[:, 0, 0, 0] > 127).astype(np.int64)
    records = Records(images, labels, {"kind": "image", "classes": ["a", "b"]}, np.arange(40))
    fitted = LogisticRegression().fit(rows_of(records), labels)
    options = {"explained_class": "true", "explain": ["logit"], "shap_evaluations": 800, "shap_background": 40}
    request = ExplanationRequest(["permutation_shap", "linear_shap"], options, 0, TrainedOn(records, labels >= 0, 0))
    model = EstimatorModel(fitted, "logits", 0, Compute(), "mine")
    own, linear = model.attributions(records, request).values()
    np.testing.assert_allclose(own[labels == 1], linear[labels == 1], rtol=1e-3, atol=1e-5)
