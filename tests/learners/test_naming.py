"""Which learner a config's model names, without running the user's file."""

from pathlib import Path

import pytest

from mia_audit.errors import UserError
from mia_audit.learners.naming import functions_of, learner_of, packages_of, script_and_function

SOURCE = """
raise SystemExit("a file is not run to find out what it holds")
import numpy as np, sklearn.tree
from xgboost.sklearn import XGBClassifier
from mia_audit import learners
from mia_audit.models.catalogue import architecture

def train(task): ...

@architecture()
def linear(shape, classes): ...

@learners.estimator()
def pipeline(): ...

registered = architecture()(train)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


@pytest.mark.parametrize(
    ("model", "learner"),
    [
        ("vision_transformer", "torch-module"),
        ("vit_small_patch16_224.augreg", "torch-module"),
        ("sklearn.ensemble:RandomForestClassifier", "estimator"),
        ("{}", "script"),
        ("{}:train", "script"),
        ("{}:linear", "torch-module"),
        ("{}:registered", "torch-module"),
        ("{}:pipeline", "estimator"),
    ],
)
def test_the_name_says_which_learner(model: str, learner: str, file: Path) -> None:
    assert learner_of(model.format(file)) == learner


def test_what_a_file_holds(file: Path) -> None:
    assert functions_of(file) == {"train": [], "linear": ["architecture"], "pipeline": ["estimator"]}
    assert packages_of(file) == {"numpy", "sklearn", "xgboost", "mia_audit"}
    assert script_and_function("a/b.py") == (Path("a/b.py"), "train")
    assert script_and_function("a/b.py:fit") == (Path("a/b.py"), "fit")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no such file: missing\.py in .*, where relative paths start"):
        learner_of("missing.py")
