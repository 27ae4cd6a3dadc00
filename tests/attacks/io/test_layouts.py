"""Files as other tools write them, byte for byte: arrays of numpy.save, pickles of pickle.dump, frames as CSV and Parquet."""

import pickle
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from mia_audit.attacks.io.layouts import LAYOUTS, from_logits, oriented
from mia_audit.cli import main
from mia_audit.errors import UserError

RECORDS, MODELS, CLASSES = 60, 6, 4


class Drawn:
    """Logits of models that know their members a little, and what follows from them by definition."""

    def __init__(self, queries=1):
        random = np.random.default_rng(0)
        self.member = np.stack([random.permutation(RECORDS) < RECORDS // 2 for _ in range(MODELS)], axis=1)
        self.labels = random.integers(0, CLASSES, RECORDS)
        logits = random.normal(size=(RECORDS, MODELS, queries, CLASSES))
        logits[np.arange(RECORDS), :, :, self.labels] += 1 + self.member[:, :, None]
        self.logits = logits.astype(np.float32)
        exact = self.logits.astype(np.float64)
        p = np.exp(exact) / np.exp(exact).sum(axis=-1, keepdims=True)
        self.probability = p[np.arange(RECORDS), :, :, self.labels]
        self.confidence = np.log(self.probability) - np.log1p(-self.probability)


def agrees(published, drawn, rows=slice(None)):
    np.testing.assert_array_equal(published.member, drawn.member[rows])
    for query in range(drawn.confidence.shape[2]):
        name = f"@{query + 1}" if query else ""
        np.testing.assert_allclose(published.signals[f"confidence{name}"], drawn.confidence[rows, :, query], rtol=1e-6)
        np.testing.assert_allclose(
            published.signals[f"loss{name}"], -np.log(drawn.probability[rows, :, query]), rtol=1e-5
        )


def write_carlini(root, drawn, kind="logits"):
    """train.py's and inference.py's files, and those of score.py."""
    root.mkdir()
    np.save(root / "y_train.npy", drawn.labels)
    for model in range(MODELS):
        folder = root / f"experiment-{model}_{MODELS}"
        (folder / kind).mkdir(parents=True)
        np.save(folder / "keep.npy", drawn.member[:, model])
        (folder / "hparams.json").write_text("{}")
        values = drawn.logits[:, model] if kind == "logits" else drawn.confidence[:, model]
        np.save(folder / kind / "0000000010.npy", values * 0)
        np.save(folder / kind / "0000000100.npy", values)


def write_privacy_meter(root, drawn, algorithm="rmia"):
    """run_mia.py's log_dir: the membership of the models, and signals of records × models."""
    (root / "models").mkdir(parents=True)
    (root / "signals").mkdir()
    np.save(root / "models" / "memberships.npy", drawn.member.T)
    values = drawn.probability[:, :, 0] if algorithm == "rmia" else -np.log(drawn.probability[:, :, 0])
    np.save(root / "signals" / f"{algorithm}_signals.npy", values)
    np.save(root / "signals" / f"{algorithm}_signals_pop.npy", values[:5])  # its population, which is not read


def write_leakpro(root, drawn):
    """Logits in the order of the target's train_indices and test_indices, and pickled metadata."""
    (root / "attack_cache").mkdir(parents=True)
    (root / "attack_objects" / "shadow_model").mkdir(parents=True)
    train, test = (np.flatnonzero(side) for side in (drawn.member[:, 0], ~drawn.member[:, 0]))
    rows = np.concatenate([train, test])
    with (root / "model_metadata.pkl").open("wb") as file:
        pickle.dump(SimpleNamespace(train_indices=train.tolist(), test_indices=test.tolist(), epochs=3), file)
    for model in range(MODELS):
        name = f"sm_{model - 1}" if model else "target"
        np.save(root / "attack_cache" / f"{name}_logits.npy", drawn.logits[rows, model, 0])
        if model:
            path = root / "attack_objects" / "shadow_model" / f"metadata_{model - 1}.pkl"
            given = {"init_params": {"width": 3}, "train_indices": np.flatnonzero(drawn.member[:, model]), "epochs": 3}
            with path.open("wb") as file:
                pickle.dump(SimpleNamespace(**given), file)
    return rows


def write_privacyguard(root, drawn, kind):
    """df_train_merge and df_test_merge as RmiaAttack takes them."""
    root.mkdir()
    for name, side in (("df_train_merge", drawn.member[:, 0]), ("df_test_merge", ~drawn.member[:, 0])):
        values = drawn.probability[side, :, 0]
        frame = pl.DataFrame({"user_id": np.flatnonzero(side), "score_orig": values[:, 0]}).with_columns(
            *(pl.Series(f"score_ref_{k - 1}", values[:, k]) for k in range(1, MODELS)),
            *(pl.Series(f"member_ref_{k - 1}", drawn.member[side, k].astype(int)) for k in range(1, MODELS)),
        )
        frame.write_csv(root / f"{name}.csv") if kind == "csv" else frame.write_parquet(root / f"{name}.parquet")
    return np.concatenate([np.flatnonzero(drawn.member[:, 0]), np.flatnonzero(~drawn.member[:, 0])])


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("kind", ["logits", "scores"])
def test_carlini(tmp_path, kind, queries):
    drawn = Drawn(queries)
    write_carlini(tmp_path / "exp", drawn, kind)
    agrees(LAYOUTS["carlini"](tmp_path / "exp", {}, None), drawn)


def test_carlini_averages_probabilities_over_shifts(tmp_path):
    drawn = Drawn(4)
    shifted = Drawn(4)
    shifted.logits = drawn.logits[:, :, :, None]  # records × models × shifts × queries × classes
    write_carlini(tmp_path / "exp", shifted)
    found = LAYOUTS["carlini"](tmp_path / "exp", {}, None).signals["confidence"]
    mean = drawn.probability.mean(axis=2)
    np.testing.assert_allclose(found, np.log(mean) - np.log1p(-mean), rtol=1e-6)


@pytest.mark.parametrize("algorithm", ["rmia", "loss"])
def test_privacy_meter(tmp_path, algorithm):
    drawn = Drawn()
    write_privacy_meter(tmp_path / "log", drawn, algorithm)
    published = LAYOUTS["privacy-meter"](tmp_path / "log", {}, None)
    agrees(published, drawn)


def test_leakpro_by_the_lines_of_the_docs(tmp_path, monkeypatch):
    drawn = Drawn()
    rows = write_leakpro(tmp_path / "leakpro_output", drawn)
    np.save(tmp_path / "population_labels.npy", drawn.labels)
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[3] / "docs" / "reference" / "data.md").read_text(encoding="utf-8")
    (block,) = [one for one in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "leakpro_output" in one]
    exec(block, {})
    files = (Path(f"{name}.npy") for name in ("logits", "labels", "membership"))
    agrees(from_logits(*files), drawn, rows)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_privacyguard(tmp_path, kind):
    drawn = Drawn()
    rows = write_privacyguard(tmp_path / "frames", drawn, kind)
    agrees(LAYOUTS["privacyguard"](tmp_path / "frames", {}, None), drawn, rows)


@pytest.mark.parametrize("turned", ["neither", "logits", "both"])
@pytest.mark.parametrize("queries", [1, 2])
def test_logits_in_either_orientation(tmp_path, turned, queries):
    drawn = Drawn(queries)
    logits = drawn.logits if queries > 1 else drawn.logits[:, :, 0]
    np.save(tmp_path / "logits.npy", logits if turned == "neither" else np.swapaxes(logits, 0, 1))
    np.save(tmp_path / "member.npy", drawn.member.T if turned == "both" else drawn.member)
    np.save(tmp_path / "labels.npy", drawn.labels)
    agrees(from_logits(tmp_path / "logits.npy", tmp_path / "labels.npy", tmp_path / "member.npy"), drawn)


WRITERS = {
    "carlini": lambda root, drawn: write_carlini(root, drawn),
    "privacy-meter": lambda root, drawn: write_privacy_meter(root, drawn),
    "privacyguard": lambda root, drawn: write_privacyguard(root, drawn, "parquet"),
}


@pytest.mark.usefixtures("without_figures")
def test_a_layout_goes_from_its_files_to_the_report(tmp_path):
    write_privacy_meter(tmp_path / "in", Drawn())
    signals, out = tmp_path / "signals.parquet", tmp_path / "out"
    assert main(["import", str(tmp_path / "in"), "--layout", "privacy-meter", "--out", str(signals)]) == 0
    more = ["--attacks", "loss-lira", "rmia", "--likelihoods", "pooled", "--fprs", "0.1", "--threads", "1"]
    assert main(["audit", "--table", str(signals), "--out", str(out), *more]) == 0
    metrics = pl.read_parquet(out / "metrics.parquet").filter(~pl.col("null_control"))
    assert metrics["auc"].mean() > 0.6 and set(metrics["attack"]) == {"loss-lira", "rmia"}
    assert "loss-lira" in (out / "report.html").read_text()


@pytest.mark.parametrize("layout", WRITERS)
def test_an_empty_folder_is_one_line(tmp_path, layout):
    with pytest.raises(UserError, match=r"expected|attacks need"):
        LAYOUTS[layout](tmp_path, {}, None)


def test_what_does_not_fit_is_named(tmp_path):
    drawn = Drawn()
    np.save(tmp_path / "logits.npy", drawn.logits[:, :, 0])
    np.save(tmp_path / "member.npy", drawn.member[:-1])
    np.save(tmp_path / "labels.npy", drawn.labels)
    with pytest.raises(UserError, match="expected the same records × models"):
        from_logits(tmp_path / "logits.npy", tmp_path / "labels.npy", tmp_path / "member.npy")
    np.save(tmp_path / "member.npy", drawn.member)
    np.save(tmp_path / "labels.npy", drawn.labels + 1)
    with pytest.raises(UserError, match="4 classes, but a label is 4; expected labels from 0 to 3"):
        from_logits(tmp_path / "logits.npy", tmp_path / "labels.npy", tmp_path / "member.npy")
    with pytest.raises(UserError, match="one row per model, or per record"):
        oriented(drawn.member, (5, 5), "m.npy")


def write_logits(root, drawn):
    """Logits, labels and membership, as from_logits takes them."""
    root.mkdir()
    files = [root / f"{name}.npy" for name in ("logits", "labels", "membership")]
    for file, values in zip(files, (drawn.logits[:, :, 0], drawn.labels, drawn.member), strict=True):
        np.save(file, values)
    return files


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (lambda labels: np.eye(CLASSES)[labels], "60 × 4 labels; expected one whole number per record"),
        (lambda labels: np.tile(labels, (MODELS, 1)), "6 × 60 labels; expected one whole number per record"),
        (lambda labels: np.append(labels, 0), "61 labels for 60 records"),
        (lambda labels: labels[:-1], "59 labels for 60 records"),
    ],
)
def test_labels_are_one_number_per_record(tmp_path, labels, message):
    drawn = Drawn()
    files = write_logits(tmp_path / "logits", drawn)
    np.save(files[1], labels(drawn.labels))
    with pytest.raises(UserError, match=message):
        from_logits(*files)
    write_carlini(tmp_path / "exp", drawn)
    with pytest.raises(UserError, match=message):
        LAYOUTS["carlini"](tmp_path / "exp", {}, files[1])


def test_labels_of_a_larger_data_set_have_further_records_at_the_end(tmp_path):
    drawn = Drawn()
    write_carlini(tmp_path / "exp", drawn)
    np.save(tmp_path / "exp" / "y_train.npy", np.append(drawn.labels, [0, 1]))  # inference.py with --dataset_size
    agrees(LAYOUTS["carlini"](tmp_path / "exp", {}, None), drawn)


def softmax(logits):
    p = np.exp(logits.astype(np.float64))
    return (p / p.sum(axis=-1, keepdims=True)).astype(np.float16)


def test_probabilities_given_as_logits_are_recognised(tmp_path):
    drawn = Drawn()
    files = write_logits(tmp_path / "logits", drawn)
    np.save(files[0], softmax(drawn.logits[:, :, 0]))
    with pytest.raises(UserError, match="they are probabilities, not logits"):
        from_logits(*files)
    np.save(files[0], np.log(softmax(drawn.logits[:, :, 0])))
    np.testing.assert_allclose(from_logits(*files).signals["loss"], -np.log(drawn.probability[:, :, 0]), atol=2e-2)
    drawn.logits = softmax(drawn.logits)[:, :, None]
    write_carlini(tmp_path / "exp", drawn)
    with pytest.raises(UserError, match=r"0000000100\.npy: .*they are probabilities, not logits"):
        LAYOUTS["carlini"](tmp_path / "exp", {}, None)


def test_ids_of_records_are_in_the_order_of_the_logits(tmp_path):
    drawn = Drawn()
    logits, labels, member = write_logits(tmp_path / "logits", drawn)
    for name, columns in (("member", drawn.member), ("labels", drawn.labels[:, None])):
        table = pl.DataFrame(columns, schema=[f"c{k}" for k in range(columns.shape[1])]).with_row_index("record")
        table.write_csv(tmp_path / f"{name}.csv")
        table.reverse().write_csv(tmp_path / f"{name}_reversed.csv")
    agrees(from_logits(logits, tmp_path / "labels.csv", tmp_path / "member.csv"), drawn)
    for given in ((tmp_path / "labels_reversed.csv", member), (labels, tmp_path / "member_reversed.csv")):
        with pytest.raises(
            UserError, match=r"_reversed\.csv: record '59' in row 0, but .* ids; expected records 0, 1, 2"
        ):
            from_logits(logits, *given)
    turned = pl.DataFrame(drawn.member.T.astype(int), schema=[f"r{k}" for k in range(RECORDS)])
    turned.insert_column(0, pl.Series("", [f"model {k}" for k in range(MODELS)])).write_csv(tmp_path / "turned.csv")
    agrees(from_logits(logits, labels, tmp_path / "turned.csv"), drawn)


@pytest.mark.parametrize("value", [0.5, np.nan, 7, -1])
@pytest.mark.parametrize("layout", ["logits", "carlini", "privacy-meter", "privacyguard"])
def test_membership_other_than_0_and_1_is_named(tmp_path, layout, value):
    drawn, root = Drawn(), tmp_path / "in"
    wrong = drawn.member.astype(float)
    wrong[3, 2] = value
    if layout == "logits":
        files = write_logits(root, drawn)
        np.save(files[2], wrong)
    else:
        WRITERS[layout](root, drawn)
    at = {"carlini": "experiment-2_6/keep.npy: .* at record 3;", "privacyguard": "df_train_merge.* at record 3;"}
    if layout == "carlini":
        np.save(root / "experiment-2_6" / "keep.npy", wrong[:, 2])
    elif layout == "privacy-meter":
        np.save(root / "models" / "memberships.npy", wrong.T)
    elif layout == "privacyguard":
        path = root / "df_train_merge.parquet"
        frame = pl.read_parquet(path).with_columns(pl.col("member_ref_1").cast(float))
        frame[3, "member_ref_1"] = value
        frame.write_parquet(path)
    with pytest.raises(UserError, match=at.get(layout, "at model 2, record 3;") + " membership is 0 or 1"):
        from_logits(*files) if layout == "logits" else LAYOUTS[layout](root, {}, None)


def test_the_last_epoch_is_the_largest_number(tmp_path):
    drawn = Drawn()
    write_carlini(tmp_path / "exp", drawn)
    for folder in (tmp_path / "exp").glob("*/logits"):
        for name in ("10", "100"):
            (folder / f"{int(name):010d}.npy").rename(folder / f"{name}.npy")
        np.save(folder / "20.npy", np.load(folder / "10.npy"))
    agrees(LAYOUTS["carlini"](tmp_path / "exp", {}, None), drawn)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("score_orig", ["0.5"] * 29 + ["high"], "column 'score_orig' holds string; expected numbers"),
        ("member_ref_1", [1] * 29 + [None], "column 'member_ref_1' holds 1 empty cells; expected numbers"),
    ],
)
def test_a_frame_s_columns_are_numbers(tmp_path, kind, name, values, message):
    write_privacyguard(tmp_path / "frames", Drawn(), kind)
    path = tmp_path / "frames" / f"df_test_merge.{kind}"
    frame = (pl.read_csv(path) if kind == "csv" else pl.read_parquet(path)).with_columns(pl.Series(name, values))
    frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
    with pytest.raises(UserError, match=rf"df_test_merge\.{kind}: {message}"):
        LAYOUTS["privacyguard"](tmp_path / "frames", {}, None)


def test_a_frame_s_numbers_may_get_decimals_after_hundreds_of_whole_ones_and_its_folder_brackets(tmp_path):
    drawn = Drawn()
    root = tmp_path / "[frames]"
    rows = write_privacyguard(root, drawn, "csv")
    for name in ("df_train_merge", "df_test_merge"):
        frame = pl.read_csv(root / f"{name}.csv", glob=False)
        frame = pl.concat([frame.with_columns(pl.lit(0).cast(float).alias("score_ref_0"))] * 5 + [frame])
        text = frame.write_csv().replace(",0.0,", ",0,")
        (root / f"{name}.csv").write_text(text)
    assert len(LAYOUTS["privacyguard"](root, {}, None).member) == 6 * len(rows)


def imported(capsys, out, *words):
    """Return the line that an import is refused with."""
    assert main(["import", *map(str, words), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def as_options(files):
    return [
        word
        for name, file in zip(("logits", "labels", "membership"), files, strict=True)
        for word in (f"--{name}", file)
    ]


@pytest.mark.parametrize("factor", [1e200, 1e39])
def test_signals_beyond_single_precision_are_refused(tmp_path, capsys, factor):
    drawn = Drawn()
    files = write_logits(tmp_path / "in", drawn)
    np.save(files[0], drawn.logits[:, :, 0].astype(float) * factor)
    error = imported(capsys, tmp_path / "s.parquet", *as_options(files))
    assert "logits.npy: loss: " in error and "single precision" in error and not (tmp_path / "s.parquet").exists()


def test_an_import_keeps_its_input(tmp_path, capsys):
    drawn = Drawn()
    files = write_logits(tmp_path / "in", drawn)
    write_privacyguard(tmp_path / "frames", drawn, "parquet")
    write_carlini(tmp_path / "exp", drawn)
    labels, frame = tmp_path / "exp" / "y_train.npy", tmp_path / "frames" / "df_test_merge.parquet"
    before = [file.read_bytes() for file in (*files, labels, frame)]
    for file in files:
        assert "would overwrite a file that is read" in imported(capsys, file, *as_options(files))
    scores = (tmp_path / "exp", "--layout", "carlini", "--labels", labels)
    assert "would overwrite a file that is read" in imported(capsys, labels, *scores)
    guard = (tmp_path / "frames", "--layout", "privacyguard")
    assert "overwrite a file of the folder that is" in imported(capsys, frame, *guard)
    assert "cannot be written: a folder" in imported(capsys, tmp_path, *guard)
    assert [file.read_bytes() for file in (*files, labels, frame)] == before
    for _ in range(2):  # its own table is written anew
        assert main(["import", *map(str, guard), "--out", str(tmp_path / "frames" / "signals.parquet")]) == 0


@pytest.mark.parametrize(
    ("layout", "option"),
    [
        *((layout, ("--where", "mode=eps8")) for layout in ("carlini", "privacy-meter", "privacyguard", None)),
        *((layout, ("--labels", "l.npy")) for layout in ("privacy-meter", "privacyguard", "per-model-csv")),
        *((layout, ("--membership", "m.npy")) for layout in LAYOUTS),
    ],
)
def test_options_that_a_layout_does_not_read_are_refused(tmp_path, capsys, layout, option):
    words = [tmp_path, "--layout", layout] if layout else as_options(write_logits(tmp_path / "in", Drawn()))
    error = imported(capsys, tmp_path / "s.parquet", *words, *option)
    assert f"{option[0]}: " in error and "leave it out" in error


def test_scores_of_carlini_need_no_labels(tmp_path, capsys):
    drawn = Drawn()
    write_carlini(tmp_path / "exp", drawn, "scores")
    given = (tmp_path / "exp", "--layout", "carlini", "--labels", tmp_path / "exp" / "y_train.npy")
    assert "has scores, which need no labels" in imported(capsys, tmp_path / "s.parquet", *given)


def test_the_command_says_what_belongs_together(tmp_path, capsys):
    out = ["--out", str(tmp_path / "s.parquet")]
    for wrong in (["--logits", "l.npy"], [str(tmp_path)], []):
        assert main(["import", *wrong, *out]) == 2
        assert capsys.readouterr().err.count("\n") == 1
