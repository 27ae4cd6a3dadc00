"""Matrices in every kind of file, and what is said of those that are not right."""

import numpy as np
import polars as pl
import pytest

from mia_audit.attacks.matrices import (
    MatrixFiles,
    confidence_from_loss,
    loss_from_confidence,
    parse_given,
    read_matrix,
    read_membership,
)
from mia_audit.errors import UserError

MATRIX = np.round(np.random.default_rng(0).random((7, 5)), 6)


def write(tmp_path, kind):
    path = tmp_path / f"matrix.{kind.split('-')[0]}"
    if kind == "npy":
        np.save(path, MATRIX)
    elif kind == "npz":
        np.savez(path, other=MATRIX + 1, losses=MATRIX)
        return f"{path}:losses"
    elif kind == "parquet":
        pl.DataFrame(MATRIX, schema=[str(i) for i in range(5)]).with_row_index("record").write_parquet(path)
    else:
        header = {"csv-header": "a,b,c,d,e", "csv-numbers": "0,1,2,3,4", "csv-index": ",0,1,2,3,4"}.get(kind)
        rows = [header] if header else []
        separator = ";" if kind == "csv-semicolon" else " " if kind == "csv-spaces" else ","
        for number, row in enumerate(MATRIX):
            cells = [repr(float(value)) for value in row]
            rows.append(separator.join([str(number), *cells] if kind == "csv-index" else cells))
        path = tmp_path / "matrix.csv"
        path.write_text("\n".join(rows) + "\n")
    return str(path)


@pytest.mark.parametrize(
    "kind",
    ["npy", "npz", "parquet", "csv-bare", "csv-header", "csv-numbers", "csv-index", "csv-semicolon", "csv-spaces"],
)
def test_every_kind_of_file_is_read(tmp_path, kind):
    np.testing.assert_array_equal(read_matrix(write(tmp_path, kind)), MATRIX)


def test_truth_values_in_words_are_membership(tmp_path):
    member = np.random.default_rng(0).random((9, 4)) < 0.5
    member[0], member[1] = True, False
    path = tmp_path / "member.csv"
    pl.DataFrame(member, schema=["0", "1", "2", "3"]).write_csv(path)
    np.testing.assert_array_equal(read_membership(str(path)), member)


def test_loss_and_confidence_are_each_other_s():
    confidence = np.array([[-800.0, -3.0, 0.0, 4.0, 30.0]])
    loss = loss_from_confidence(confidence)
    np.testing.assert_allclose(loss[0, :4], [800, *np.log1p(np.exp([3, 0, -4]))])
    np.testing.assert_allclose(confidence_from_loss(loss), confidence, rtol=1e-9)
    assert np.isfinite(confidence_from_loss(np.array([[0.0, 1e-9, 2.0]]))).all()


@pytest.mark.parametrize(
    ("text", "scale", "members"),
    [
        ("loss=f", "positive", "low"),
        ("ixg_l1=f", "positive", "low"),
        ("confidence=f", "real", "high"),
        ("gap:real:low=f", "real", "low"),
    ],
)
def test_a_signal_s_name_says_what_it_is(text, scale, members):
    given = parse_given(text)
    assert (given.signal.scale, given.signal.members, given.file) == (scale, members, "f")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loss", "expected NAME=FILE"),
        ("gap=f", "say its scale and where members lie: gap:positive:low"),
        ("gap:positive=f", "expected gap:positive|real:low|high"),
        ("gap:complex:low=f", "expected gap:positive|real:low|high"),
    ],
)
def test_a_signal_that_is_not_named_right_says_how(text, message):
    with pytest.raises(UserError) as error:
        parse_given(text)
    assert message in str(error.value)


def test_three_dimensions_are_queries(tmp_path):
    member = np.random.default_rng(0).random((30, 4)) < 0.5
    queries = np.random.default_rng(1).random((30, 4, 3))
    np.save(tmp_path / "member.npy", member)
    np.save(tmp_path / "loss.npy", queries)
    source = MatrixFiles(str(tmp_path / "member.npy"), [parse_given(f"loss={tmp_path / 'loss.npy'}")])
    assert [signal.name for signal in source.signals] == ["loss", "confidence"]
    for index, values in enumerate(source.read(source.signals[0])):
        np.testing.assert_array_equal(values, queries[:, :, index])
    np.testing.assert_allclose(source.read(source.signals[1])[2], confidence_from_loss(queries[:, :, 2]))
