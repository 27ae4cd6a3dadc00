import json
from contextlib import nullcontext

import numpy as np
import pytest
import yaml
from sklearn.linear_model import LogisticRegression

from mia_audit.errors import UserError
from mia_audit.explain.black_boxes.values import of_estimator
from mia_audit.learners.stored_estimator import save_estimator
from mia_audit.serving.section import read_served
from mia_audit.serving.subject import FACTS, open_subject


@pytest.fixture
def opened(files, tmp_path):
    """Open what a service of these files serves, with changes to its file."""

    def open_(**changes):
        path, _ = files() if not (tmp_path / "service.yaml").exists() else (tmp_path / "service.yaml", None)
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))
        return open_subject(read_served(path))

    return open_


def test_what_is_released_is_not_seeded(opened, tmp_path):
    """Two services of the same files but for their ledgers answer the same first query with other noise."""
    answers = []
    for name in ("one", "other"):
        subject = opened(ledger=str(tmp_path / name))
        query = subject.explainer.explained.records[:1]
        answers.append(subject.explainer.answer(query, subject.black_box(query)).explanations)
        subject.explainer.ledger.close()
    assert not np.allclose(*answers)


def test_a_pool_that_is_scaled_by_private_constants_is_refused(files):
    """One record moves such constants, and every row with them, so that sensitivities of one row do not hold."""
    private = {"standardise": "private", "standardise_epsilon": 1.0, "bounds": {"*": (-9, 9)}}
    path, _ = files(pool=private)
    with pytest.raises(UserError, match=r"pool: standardise: private: .* expected a pool with public, stated or no"):
        open_subject(read_served(path))


def test_a_ledger_is_not_continued_with_another_black_box(opened, tmp_path):
    opened().explainer.ledger.close()
    box = tmp_path / "box.py"
    box.write_text(box.read_text().replace("np.tanh", "-np.tanh"))
    with pytest.raises(UserError, match="created with other black_box"):
        opened()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("values = 3\n", "box.py has no function 'values'"),
        ("def values(records):\n    return records[:, :1] * 100\n", "is outside \\[−1, 1\\]"),
        ("def values(records):\n    return 1 / 0\n", "box.py, line 2: ZeroDivisionError"),
    ],
)
def test_a_black_box_that_has_no_values_is_refused(files, tmp_path, text, words):
    path, _ = files()
    (tmp_path / "box.py").write_text(text)
    with pytest.raises(UserError, match=words):
        subject = open_subject(read_served(path))
        query = subject.explainer.explained.records[:1]
        subject.explainer.answer(query, subject.black_box(query))


def test_a_finished_model_is_served_and_a_card_that_is_none_is_refused(opened, table, tmp_path):
    labels = (table.black_box(table.records)[:, 0] > 0).astype(np.int64)
    estimator = LogisticRegression().fit(table.records, labels)
    folder = tmp_path / "model"
    folder.mkdir()
    save_estimator(estimator, folder)
    architecture = {"learner": "estimator", "model": "sklearn.linear_model:LogisticRegression", "arguments": {}}
    (tmp_path / "architecture.json").write_text(json.dumps(architecture | {"outputs": "probabilities", "votes": 0}))
    changes = {"black_box": "", "model": str(folder), "architecture": str(tmp_path / "architecture.json")}
    subject = opened(**changes)
    expected = of_estimator(estimator)(table.records[:3])
    np.testing.assert_allclose(subject.black_box(table.records[:3]), expected, atol=1e-6)
    assert subject.card is None
    subject.explainer.ledger.close()
    card = {
        "kind": "mia-audit model card",
        "format": 1,
        "id": "1",
        "guarantee": "none",
        "privacy": dict.fromkeys(FACTS),
    }
    for centre, refused in (([0.0] * 4, True), (None, False)):
        scaled = {"preprocessing": {"centre": centre} if centre else {}}
        (folder / "card.json").write_text(json.dumps(card | {"data": scaled}))
        with pytest.raises(UserError, match=r"preprocessing\.centre is not the pool's") if refused else nullcontext():
            opened(**changes | {"ledger": str(tmp_path / f"with-{centre}")}).explainer.ledger.close()
    (folder / "card.json").write_text("{}")
    with pytest.raises(UserError, match=r"card\.json: expected the card.json of a release"):
        opened(**changes | {"ledger": str(tmp_path / "other")})
