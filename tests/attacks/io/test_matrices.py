"""Matrices in every kind of file, and what is said of those that are not right, all numbers in range or not."""

from contextlib import nullcontext

import numpy as np
import polars as pl
import pytest

from mia_audit.attacks.io.matrices import MatrixFiles, parse_signal_file, read_matrix, read_membership
from mia_audit.attacks.io.parquet import check_coins, check_loss, check_orientation
from mia_audit.errors import UserError
from mia_audit.signals.families import confidence_from_loss

from ...builders import halves

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
        header = {
            "csv-header": "a,b,c,d,e",
            "csv-numbers": "0,1,2,3,4",
            "csv-index": ",0,1,2,3,4",
            "csv-record": "record,a,b,c,d,e",
            "csv-some": '"","1","3","4","7","8"',
        }.get(kind)
        rows = [header] if header else []
        separator = ";" if kind == "csv-semicolon" else " " if kind == "csv-spaces" else ","
        for number, row in enumerate(MATRIX):
            cells = [repr(float(value)) for value in row]
            indexed = kind in ("csv-index", "csv-record", "csv-some")
            rows.append(separator.join([str(number), *cells] if indexed else cells))
        path = tmp_path / "matrix.csv"
        path.write_text("\n".join(rows) + "\n", encoding="utf-8-sig" if kind == "csv-mark" else "utf-8")
    return str(path)


@pytest.mark.parametrize(
    "kind",
    [
        "npy", "npz", "parquet", "csv-bare", "csv-header", "csv-numbers", "csv-index", "csv-record", "csv-some",
        "csv-semicolon", "csv-spaces", "csv-mark",
    ],
)  # fmt: skip
def test_every_kind_of_file_is_read(tmp_path, kind):
    np.testing.assert_array_equal(read_matrix(write(tmp_path, kind))[0], MATRIX)


@pytest.mark.parametrize("first", ["0.5,NA,2,3,4", ",1,0,0,1", "#0.5,1,2,3,4", "record,1,0,0,1"])
def test_a_damaged_first_record_is_no_header(tmp_path, first):
    (tmp_path / "matrix.csv").write_text(f"{first}\n0.1,0.2,0.3,0.4,0.5\n")
    with pytest.raises(UserError, match=r"matrix\.csv: not a matrix of numbers"):
        read_matrix(str(tmp_path / "matrix.csv"))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_that_stand_for_other_records_are_named(tmp_path, kind):
    member = pl.DataFrame(np.random.default_rng(0).random((30, 4)) < 0.5, schema=list("abcd")).with_row_index("record")
    loss = pl.DataFrame(np.random.default_rng(1).random((30, 4)), schema=list("abcd")).with_row_index("record")
    member.write_csv(tmp_path / "member.csv")
    source = MatrixFiles(str(tmp_path / "member.csv"), [parse_signal_file(f"loss={tmp_path}/loss.{kind}")])
    for order, same in ((range(30), True), ([1, 0, *range(2, 30)], False)):
        table = loss[list(order)]
        table.write_csv(tmp_path / "loss.csv") if kind == "csv" else table.write_parquet(tmp_path / "loss.parquet")
        if same:
            np.testing.assert_array_equal(source.read(source.signals[0])[0], loss.drop("record").to_numpy())
        else:
            with pytest.raises(UserError, match=r"record '1' in row 0 where .*member\.csv has '0'"):
                source.read(source.signals[0])


def given(tmp_path, **columns):
    """Write a membership, losses and confidences as CSV, each with the ids given for it in a column `record`."""
    random = np.random.default_rng(0)
    tables = {"member": random.random((30, 4)) < 0.5, **{name: random.random((30, 4)) for name in ("loss", "gap_l1")}}
    for name, matrix in tables.items():
        table = pl.DataFrame(matrix, schema=list("abcd"))
        if name in columns:
            table = table.insert_column(0, pl.Series("record", columns[name]))
        table.write_csv(tmp_path / f"{name}.csv")
    return [parse_signal_file(f"{name}={tmp_path}/{name}.csv") for name in ("loss", "gap_l1")]


REVERSED = list(range(29, -1, -1))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"loss": range(30), "gap_l1": REVERSED}, r"gap_l1\.csv: record '29' in row 0 where .*loss\.csv has '0'"),
        ({"loss": REVERSED}, r"loss\.csv: record '29' in row 0, but .*member\.csv has no column `record`"),
        ({"member": REVERSED}, r"member\.csv: record '29' in row 0, but .*loss\.csv has no column `record`"),
        ({"loss": [0, *range(29)]}, r"loss\.csv: record '0' has several rows"),
        ({"member": [0, *range(29)]}, r"member\.csv: record '0' has several rows"),
        ({"loss": range(30)}, None),
        (dict.fromkeys(("member", "loss", "gap_l1"), REVERSED), None),
    ],
)
def test_ids_of_records_agree_whichever_files_have_them(tmp_path, columns, message):
    signals = given(tmp_path, **columns)
    with pytest.raises(UserError, match=message) if message else nullcontext():
        source = MatrixFiles(str(tmp_path / "member.csv"), signals)
        for signal in source.signals:
            source.read(signal)


def test_truth_values_in_words_are_membership(tmp_path):
    member = np.random.default_rng(0).random((9, 4)) < 0.5
    member[0], member[1] = True, False
    path = tmp_path / "member.csv"
    pl.DataFrame(member, schema=["0", "1", "2", "3"]).write_csv(path)
    np.testing.assert_array_equal(read_membership(str(path))[0], member)


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
    given = parse_signal_file(text)
    assert (given.signal.scale, given.signal.members, given.file) == (scale, members, "f")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loss", "expected NAME=FILE"),
        ("gap=f", "give its scale, and whether members have low or high values: gap:positive:low"),
        ("gap:positive=f", "expected gap:positive|real:low|high"),
        ("gap:complex:low=f", "expected gap:positive|real:low|high"),
        ("loss:real:low=f", "the signal loss is positive and low in members; rename any other signal"),
        ("confidence:real:low=f", "the signal confidence is real and high in members"),
    ],
)
def test_a_signal_that_is_not_named_right_says_how(text, message):
    with pytest.raises(UserError) as error:
        parse_signal_file(text)
    assert message in str(error.value)


def test_three_dimensions_are_queries(tmp_path):
    member = np.random.default_rng(0).random((30, 4)) < 0.5
    queries = np.random.default_rng(1).random((30, 4, 3))
    np.save(tmp_path / "member.npy", member)
    np.save(tmp_path / "loss.npy", queries)
    source = MatrixFiles(str(tmp_path / "member.npy"), [parse_signal_file(f"loss={tmp_path / 'loss.npy'}")])
    assert [signal.name for signal in source.signals] == ["loss", "confidence"]
    for index, values in enumerate(source.read(source.signals[0])):
        np.testing.assert_array_equal(values, queries[:, :, index])
    np.testing.assert_allclose(source.read(source.signals[1])[2], confidence_from_loss(queries[:, :, 2]))


def test_probabilities_give_loss_and_confidence(tmp_path):
    random = np.random.default_rng(0)
    np.save(tmp_path / "member.npy", random.random((60, 5)) < 0.5)
    confidence = 3 * random.normal(size=(60, 5))
    np.save(tmp_path / "p.npy", 1 / (1 + np.exp(-confidence)))
    file = MatrixFiles(f"{tmp_path}/member.npy", [parse_signal_file(f"probability={tmp_path}/p.npy")])
    assert [signal.name for signal in file.signals] == ["confidence", "loss"]
    found, loss = (file.read(signal)[0] for signal in file.signals)
    np.testing.assert_allclose(found, confidence, rtol=1e-9)
    np.testing.assert_allclose(loss, np.logaddexp(0, -confidence), rtol=1e-9)
    assert {path.name for path in file.files} == {"member.npy", "p.npy"}


def test_probabilities_of_0_and_1_have_finite_signals_and_more_than_1_is_refused(tmp_path):
    np.save(tmp_path / "member.npy", np.random.default_rng(0).random((60, 5)) < 0.5)
    values = np.random.default_rng(1).random((60, 5))
    values[0, :2] = 0, 1
    np.save(tmp_path / "p.npy", values)
    file = MatrixFiles(f"{tmp_path}/member.npy", [parse_signal_file(f"probability={tmp_path}/p.npy")])
    assert all(np.isfinite(file.read(signal)[0]).all() for signal in file.signals)
    values[3, 2] = 1.5
    np.save(tmp_path / "p.npy", values)
    with pytest.raises(UserError, match=r"1\.5 at model 2, record 3 is not a probability"):
        file.read(file.signals[0])


@pytest.mark.parametrize("sharp", [0.5, 3.0])
def test_probabilities_are_no_losses(sharp):
    member = halves(np.random.default_rng(0), 400, 8)
    loss = np.random.default_rng(1).exponential(1 / sharp, member.shape) * (1 - 0.4 * member)
    check_loss(loss, member, "loss.npy")
    with pytest.raises(UserError, match="softmax probability, not its loss; give them as probability=FILE"):
        check_loss(np.exp(-loss), member, "loss.npy")


@pytest.mark.parametrize("lowest", [0.0, 0.4])
def test_small_losses_are_losses(lowest):
    """Of a model that fits well, and of one with two classes that hardly learned."""
    member = halves(np.random.default_rng(0), 400, 8)
    loss = lowest + 0.5 * np.random.default_rng(1).random(member.shape) ** 2 * (1 - 0.2 * member)
    check_loss(loss, member, "loss.npy")


def test_a_transposed_membership_is_named(capsys):
    member = halves(np.random.default_rng(0), 200, 12)
    check_orientation(member, "member.npy")
    with pytest.raises(UserError, match=r"read as 12 records of 200 models, but all rows .* transpose it"):
        check_orientation(member.T, "member.npy")
    assert capsys.readouterr().err == ""
    coins = np.random.default_rng(0).random((12, 200)) < 0.5
    check_orientation(coins, "member.npy")
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("records", [2, 100, 1000, 1001, 100_000])
def test_coins_of_one_model_may_come_out_exactly_even(records):
    even = np.random.default_rng(0).permutation(records) < records // 2
    check_coins(even[:, None], "--design bernoulli")


@pytest.mark.parametrize(("records", "models"), [(100, 4), (1000, 4), (20, 16)])
def test_exact_halves_of_several_models_are_no_coins(records, models):
    with pytest.raises(UserError, match="was not drawn by fair coins; expected --design half"):
        check_coins(halves(np.random.default_rng(0), records, models), "--design bernoulli")


def test_halves_and_balanced_designs_are_no_coins():
    random = np.random.default_rng(0)
    check_coins(random.random((400, 8)) < 0.5, "--design bernoulli")
    with pytest.raises(UserError, match="exactly 200 of 400 records, so membership was not drawn by fair coins"):
        check_coins(halves(np.random.default_rng(0), 400, 8), "--design bernoulli")
    with pytest.raises(UserError, match="depend on each other"):
        check_coins(random.random((400, 8)).argsort(axis=1) < 4, "--design bernoulli")
