"""One absurd cell, or one model of another scale, in matrices that are otherwise ordinary."""

from pathlib import Path

import numpy as np
import pytest

import mia_audit as mia
from mia_audit.attacks.io.outliers import Outliers
from mia_audit.errors import UserError
from mia_audit.signals.name import read_signal

RECORDS, MODELS = 120, 8
RANDOM = np.random.default_rng(0)
MEMBER = np.stack([RANDOM.permutation(RECORDS) < RECORDS // 2 for _ in range(MODELS)], axis=1)
CONFIDENCE = 2 + 2 * RANDOM.normal(size=(RECORDS, 1)) + MEMBER + RANDOM.normal(size=MEMBER.shape)
SIGNALS = {"loss": np.logaddexp(0, -CONFIDENCE), "confidence": CONFIDENCE, "ixg_l1": np.exp(-CONFIDENCE / 4)}
LIKELIHOODS = ("hierarchical", "blend", "pooled")


def aucs(**signals: np.ndarray) -> dict[tuple[str, ...], float]:
    rows = mia.audit(MEMBER, signals, likelihoods=LIKELIHOODS).summary.filter(null_control=False)
    return {
        (attack, likelihood): auc for attack, likelihood, auc in rows.select("attack", "likelihood", "auc_mean").rows()
    }


@pytest.mark.parametrize(("name", "value"), [("loss", 1e6), ("confidence", -1e6), ("confidence", 1e6), ("ixg_l1", 1e6)])
def test_one_absurd_cell_moves_no_auc(name: str, value: float, capsys: pytest.CaptureFixture[str]) -> None:
    changed = SIGNALS[name].copy()
    changed[7, 3] = value
    ordinary, odd = aucs(**{name: SIGNALS[name]}), aucs(**{name: changed})
    assert odd == pytest.approx(ordinary, abs=0.005)
    assert "at model 3, record 7 is far from all" in capsys.readouterr().err


def test_absurd_cells_in_every_model_are_named_and_read_as_their_records_medians() -> None:
    """Several of one model lie beyond the distance that 1 % of its records exceed."""
    cells = [(5 * cell % RECORDS, cell % MODELS) for cell in range(3 * MODELS)]
    records, models = np.transpose(cells)
    changed = CONFIDENCE.copy()
    changed[records, models] = -1e6
    outliers = Outliers()
    (values,) = outliers.replaced(read_signal("confidence"), [changed], range(MODELS))
    expected = CONFIDENCE.copy()
    expected[records, models] = np.median(changed, axis=1)[records]
    assert np.array_equal(values, expected)
    (sentence,) = outliers.sentences["confidence"]
    assert "-1e+06 at model 0, record 0, " in sentence
    assert f"and {len(cells) - 10} more is far from all" in sentence


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("absurd", [MODELS // 2, 6, MODELS])
def test_a_record_that_is_absurd_in_many_models_has_their_farthest_ordinary_values(absurd: int, sign: int) -> None:
    confidence = CONFIDENCE.copy()
    confidence[9, :absurd] = sign * 1e6
    outliers = Outliers()
    (values,) = outliers.replaced(read_signal("confidence"), [confidence], range(MODELS))
    expected = CONFIDENCE.copy()
    others = np.delete(CONFIDENCE, 9, axis=0)[:, :absurd]
    expected[9, :absurd] = others.max(axis=0) if sign > 0 else others.min(axis=0)
    np.testing.assert_array_equal(values, expected)
    (sentence,) = outliers.sentences["confidence"]
    assert f"{sign * 1e6:g} at model 0, record 9, " in sentence
    assert "farthest ordinary value" in sentence
    changed, plain = (mia.audit(MEMBER, {"confidence": one}).summary["auc_mean"] for one in (confidence, CONFIDENCE))
    np.testing.assert_allclose(changed, plain, atol=2 / RECORDS)  # what one record weighs


@pytest.mark.parametrize("constant", [0, 0.7])
def test_constant_attributions_are_said_and_no_sentence_is_built_on_them(
    constant: float, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    audit = mia.audit(MEMBER, {"loss": SIGNALS["loss"], "ixg_l1": np.full(MEMBER.shape, constant)})
    said = f"ixg_l1: every value is {constant}, for every model and record, so that nothing can be read from it"
    assert said in capsys.readouterr().err
    page = audit.report(tmp_path / "report.html").read_text()
    assert said in page
    assert "norms did better" not in page and "explanations leak" not in page


@pytest.mark.parametrize("name", SIGNALS)
def test_ordinary_signals_stay_as_they_are(name: str) -> None:
    outliers = Outliers()
    for _ in range(2):
        (values,) = outliers.replaced(read_signal(name), [SIGNALS[name]], range(MODELS))
        assert values is SIGNALS[name]
    assert not outliers.sentences


def test_what_is_replaced_is_replaced_in_every_reading() -> None:
    odd, outliers = SIGNALS["loss"].copy(), Outliers()
    odd[7, 3] = 1e6
    first, again = (outliers.replaced(read_signal("loss"), [odd], range(MODELS))[0] for _ in range(2))
    assert np.array_equal(first, again) and first[7, 3] < 1e6 == odd[7, 3]


def test_rare_wrong_answers_of_a_model_that_knows_no_doubt_are_ordinary() -> None:
    """Trees and nearest neighbours have only the probabilities 0 and 1."""
    confidence = np.full((1000, MODELS), 36.0)
    confidence[RANDOM.integers(0, 1000, MODELS), np.arange(MODELS)] = -36.0
    (values,) = Outliers().replaced(read_signal("confidence"), [confidence], range(MODELS))
    assert values is confidence


@pytest.mark.parametrize("name", SIGNALS)
def test_a_model_that_was_given_twice_or_in_another_order_is_named(name: str) -> None:
    changed = SIGNALS[name].copy()
    changed[:, 3] = changed[:, 2]
    changed[:, 6] = changed[::-1, 6]
    outliers = Outliers()
    outliers.replaced(read_signal(name), [changed], range(MODELS))
    twice, *astray = outliers.sentences[name]
    assert twice.startswith(f"{name}: models 2, 3 have the same value in every record")
    named = f"{name}: model 6 does not rank records as the other models do"
    assert [sentence.startswith(named) for sentence in astray] == ([] if name == "ixg_l1" else [True])


def test_norms_of_explanations_may_differ_between_models_of_one_recipe() -> None:
    """In rank, and in size where those of a model hardly differ: a global explanation has a few values."""
    few = np.exp(RANDOM.integers(0, 10, (RECORDS, 1)) / 300 + RANDOM.normal(scale=0.05, size=(1, MODELS)))
    few[:, 2], few[:, 6] = 1.4, few[::-1, 6]
    outliers = Outliers()
    outliers.replaced(read_signal("ixg_l1"), [few * np.exp(RANDOM.normal(scale=1e-4, size=few.shape))], range(MODELS))
    assert not outliers.sentences


def test_models_that_know_no_doubt_are_no_copies() -> None:
    outliers = Outliers()
    outliers.replaced(
        read_signal("confidence"), [np.where(MEMBER, 36.0, 36.0 * (CONFIDENCE[:, :1] > 0))], range(MODELS)
    )
    outliers.replaced(
        read_signal("confidence"), [36.0 * np.repeat(CONFIDENCE[:, :1] > 0, MODELS, axis=1)], range(MODELS)
    )
    assert not outliers.sentences


def test_a_model_of_another_scale_is_named_and_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    loss = SIGNALS["loss"].copy()
    loss[:, 5] *= 1000
    audit = mia.audit(MEMBER, {"loss": loss})
    assert "confidence: the values of model 5 are" in capsys.readouterr().err
    assert set(audit.metrics["target"]) == set(range(MODELS))
    left = mia.audit(MEMBER, {"loss": loss}, leave_out=[5])
    assert set(left.metrics["target"]) == set(range(MODELS)) - {5}
    assert not capsys.readouterr().err
    for odd, said in (
        ((5, 6), "models 5, 6 are on another scale"),
        (range(4), "the models' values are on different scales"),
    ):
        outliers = Outliers()
        changed = CONFIDENCE * np.where(np.isin(range(MODELS), odd), 1000, 1)
        outliers.replaced(read_signal("confidence"), [changed], range(MODELS))
        (sentence,) = outliers.sentences["confidence"]
        assert said in sentence
    kept = [model for model in range(MODELS) if model != 5]
    alone = mia.audit(MEMBER[:, kept], {"loss": loss[:, kept]})
    ours, theirs = (one.summary.filter(null_control=False)["auc_mean"] for one in (left, alone))
    np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(UserError, match="leave_out: no model 8"):
        mia.audit(MEMBER, {"loss": loss}, leave_out=[8])
