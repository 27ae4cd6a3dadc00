"""Loss and confidence follow from one another and from the probability of the label, wherever signals enter."""

import numpy as np
import pytest

from mia_audit.attacks.io.matrices import MatrixFiles, parse_signal_file
from mia_audit.attacks.io.parquet import SignalsFile
from mia_audit.errors import UserError
from mia_audit.signals.families import confidence_from_loss, loss_from_confidence, with_derived
from mia_audit.signals.name import read_signal

from ..builders import write_signals


def test_loss_and_confidence_are_each_other_s():
    confidence = np.array([[-800.0, -3.0, 0.0, 4.0, 30.0]])
    loss = loss_from_confidence(confidence)
    np.testing.assert_allclose(loss[0, :4], [800, *np.log1p(np.exp([3, 0, -4]))])
    np.testing.assert_allclose(confidence_from_loss(loss), confidence, rtol=1e-9)
    assert np.isfinite(confidence_from_loss(np.array([[0.0, 1e-9, 2.0]]))).all()


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["loss"], ["loss", "confidence"]),
        (["confidence", "ixg_l1"], ["confidence", "ixg_l1", "loss"]),
        (["probability"], ["confidence", "loss"]),
        (["probability", "loss"], ["loss", "confidence"]),
        (["ixg_l1"], ["ixg_l1"]),
    ],
)
def test_what_follows_from_given_signals_is_read_too(given, read):
    assert [signal.name for signal in with_derived([read_signal(name) for name in given])] == read


@pytest.mark.parametrize("name", ["loss", "confidence", "probability"])
def test_a_table_and_matrices_are_read_alike(tmp_path, name):
    random = np.random.default_rng(0)
    probability = random.random((30, 5))
    values = {
        "probability": probability,
        "loss": -np.log(probability),
        "confidence": np.log(probability) - np.log1p(-probability),
    }[name].astype(np.float32)
    member = random.random((30, 5)) < 0.5
    np.save(tmp_path / "member.npy", member)
    np.save(tmp_path / "values.npy", values)
    write_signals(tmp_path / "signals.parquet", member, **{name: values})
    matrices = MatrixFiles(f"{tmp_path}/member.npy", [parse_signal_file(f"{name}={tmp_path}/values.npy")])
    table = SignalsFile(tmp_path / "signals.parquet")
    assert table.signals == matrices.signals
    assert {signal.name for signal in table.signals} == {"loss", "confidence"}
    for signal in table.signals:
        np.testing.assert_allclose(table.read(signal), matrices.read(signal), rtol=1e-12)


@pytest.mark.parametrize("name", ["captum:DeepLift_l1", "ixg~noisy:2_l1"])
def test_a_colon_in_a_name_begins_no_scale(name):
    assert parse_signal_file(f"{name}=norms.npy").signal == read_signal(name)
    assert parse_signal_file("mine:real:high=norms.npy").signal.members == "high"


def test_a_probability_above_1_in_a_table_is_refused(tmp_path):
    member = np.random.default_rng(0).random((30, 5)) < 0.5
    write_signals(tmp_path / "signals.parquet", member, probability=np.full((30, 5), 1.5))
    file = SignalsFile(tmp_path / "signals.parquet")
    with pytest.raises(UserError, match=r"column 'probability': 1\.5 at model 0, record 0 is not a probability"):
        file.read(read_signal("loss"))
