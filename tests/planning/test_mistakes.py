"""What somebody gets wrong in the first hour, and the one line that each mistake gets before any model is trained."""

import gzip
import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from PIL import Image

from mia_audit.cli import main
from mia_audit.config.load import check_audit, load_audit
from mia_audit.errors import UserError
from mia_audit.planning.check import check

VIT = "{img_size: 8, patch_size: 4, embed_dim: 8, depth: 1, num_heads: 2}"
IMAGES = f"""
datasets: {{digits: {{}}}}
architectures: {{vision_transformer: {{parameters: {VIT}}}}}
"""
TABLE = """
datasets: {breast_cancer: {}}
architectures: {mlp: {}}
"""

CONFIGS = {
    # what the config alone decides
    "a misspelled section": ("mechanism: {}", "unknown key 'mechanism': did you mean 'mechanisms'?"),
    "a misspelled key": ("training: {epoch: 3}", "unknown key 'training.epoch': did you mean 'epochs'?"),
    "a word for a number": ("training: {epochs: many}", "training.epochs: input should be a valid integer"),
    "no epochs": ("training: {epochs: 0}", "training.epochs: input should be greater than 0, got 0"),
    "a learning rate below 0": ("training: {learning_rate: -1}", "learning_rate: input should be greater than 0"),
    "an optimizer of another library": ("training: {optimizer: lion}", "input should be 'adamw', 'adam' or 'sgd'"),
    "a comparison with itself": ("report: {compare: [none, none]}", "report.compare: none, none: name two or more"),
    "a comparison with a stranger": ("report: {compare: [ixg, none]}", "report.compare: name either data sets, or"),
    "a comparison of an unknown name": ("report: {compare: [none, dpsgd]}", "report.compare: 'dpsgd' is no data set"),
    "a seed twice": ("seeds: [1, 1]", "seeds: the same seed is given twice"),
    "a seed and seeds": ("{seed: 0, seeds: [1, 2]}", "seed: given together with seeds"),
    "seeds below 0": ("seeds: [-1]", "seeds.0: input should be greater than or equal to 0, got -1"),
    "seeds of models trained once": (
        "{seeds: [0, 1], imported: {elsewhere: {signals: signals.parquet}}}",
        "seeds: models in imported were trained once and cannot be repeated; give one seed",
    ),
    "three models": ("membership: {models: 3}", "membership.models: input should be greater than or equal to 4, got 3"),
    "a share of another design": ("membership: {share: 0.8}", "share: only for design split, but design is half"),
    "dp-sgd without ε": ("mechanisms: {dp-sgd: {}}", "mechanisms.dp-sgd.epsilon: missing; list the privacy budgets"),
    "ε of training without privacy": ("mechanisms: {none: {epsilon: 8}}", "mechanism 'none' has no budget"),
    "ε of 0": ("mechanisms: {dp-sgd: {epsilon: 0}}", "expected a positive number or inf as ε, got '0'"),
    "a tiny ε": ("mechanisms: {dp-sgd: {epsilon: 1.0e-7}}", "mechanisms.dp-sgd.epsilon: 1e-07 is below 0.001"),
    "an infinite ε": ("mechanisms: {dp-sgd: {epsilon: .inf}}", "use the mechanism 'none'"),
    "an ε given twice": ("mechanisms: {dp-sgd: {epsilon: [8, 8]}}", "dp-sgd.epsilon: the same ε is given twice"),
    "δ of 1": ("mechanisms: {dp-sgd: {epsilon: 8, delta: 1}}", "mechanisms.dp-sgd.delta: input should be less than 1"),
    "a mechanism that is none": ("mechanisms: {laplace: {epsilon: 1}}", "unknown mechanism 'laplace': known: dp-sgd"),
    "persons without names": ("mechanisms: {dp-sgd: {epsilon: 8, unit: person}}", "unit: person requires the person"),
    "an explainer that is none": ("explainers: {methods: [shapley]}", "unknown explainer 'shapley': "),
    "a wrapper without a method": (
        "explainers: {methods: ['captum:NoiseTunnel']}",
        "write the wrapper (NoiseTunnel) first",
    ),
    "a quantity that is none": ("explainers: {explain: [softmax]}", "explainers.explain.0: input should be 'logit', "),
    "an attack that is none": ("attacks: {methods: [lira]}", "unknown attack 'lira': did you mean 'loss-lira'?"),
    "a label of nothing": (
        "report: {labels: {settings: {dp-sgd-eps4: ours}}}",
        "report.labels.settings.dp-sgd-eps4: unknown: known: none, none-epsinf",
    ),
    "a colour of nothing": (
        "report: {figures: {colours: {saliencey: '#000000'}}}",
        "report.figures.colours.saliencey: unknown: ",
    ),
    "a label twice": (
        "mechanisms: {dp-sgd: {epsilon: [2, 8]}}\nreport: {labels: {settings: {dp-sgd-eps2: ours, dp-sgd-eps8: ours}}}",
        "report.labels.settings: 'ours' is given twice",
    ),
    "a likelihood that is none": (
        "attacks: {likelihoods: [gaussian]}",
        "attacks.likelihoods.0: input should be 'blend'",
    ),
    "an FPR in percent": ("evaluation: {fprs: [1]}", "FPRs are fractions, so 1 % is written 0.01"),
    "a name with a space": ("audit: my audit", "'my audit' becomes the name of a folder: use letters, digits"),
    "weights of another format": (
        "architectures: {resnet18: {pretrained: weights.h5}}",
        "or a file that ends in .safetensors or .pth, got",
    ),
    "public weights without records": (
        "architectures: {resnet18: {pretrained: public}}",
        "public needs public records, but datasets.digits.public is 0",
    ),
    "an override of no mechanism": (
        "architectures: {resnet18: {mechanisms: {dpsgd: {}}}}",
        "unknown mechanism 'dpsgd': known: none",
    ),
    "a source that is none": ("datasets: {mnits: {}}", "unknown source 'mnits': did you mean 'mnist'?"),
    "a size of digits": ("datasets: {digits: {size: 32}}", "digits.size: pool 'digits' does not read this key"),
    "white without convert": ("datasets: {digits: {white: 4095}}", "white: only for converting 16-bit images"),
    # what the config decides with what is known of its data
    "a batch larger than the training set": (
        "datasets: {digits: {records: 100}}",
        "training.batch: 64 records per step for vision_transformer under none, but a training set of datasets.digits has only 50",
    ),
    "more records than there are": ("datasets: {digits: {records: 5000}}", "'digits' has 1797 records; lower"),
    "more public records than there are": ("datasets: {digits: {public: 5000}}", "'digits' has 1797 records, and some"),
    "an image model on a table": (
        "datasets: {breast_cancer: {}}",
        "'vision_transformer' takes images, but datasets.breast_cancer holds rows of a table: choose a model such as 'mlp'",
    ),
    "a last batch of one record": (
        "datasets: {digits: {records: 40}}\narchitectures: {resnet18: {}}\ntraining: {batch: 19}",
        "the last batch of a training set of 20 records has a single one, which BatchNorm cannot normalise",
    ),
    "a BatchNorm under noise": (
        "architectures: {resnet18: {}}\nmechanisms: {dp-sgd: {epsilon: 8, delta: 0.001}}",
        "architectures.resnet18: layer 'bn1' of 'resnet18' (20 in all) is a BatchNorm",
    ),
    "noise by channels on a classifier alone": (
        "datasets: {digits: {public: 100}}\nmechanisms: {fadp: {epsilon: 8}}\ntraining: {trainable: head}",
        "architectures.vision_transformer: mechanism 'fadp' scales the noise of channels, which the classifier has not",
    ),
}

TABLES = {
    "noise by channels that a model lacks": (
        "mechanisms: {fadp: {epsilon: 8, importance: past}}",
        "architectures.mlp: mechanism 'fadp' reads the channels of a model's last convolution or transformer block, but",
    ),
    "standardising by no public records": (
        "datasets: {breast_cancer: {standardise: public}}",
        "standardise: public needs public records, but public is 0",
    ),
    "stated without constants": (
        "datasets: {breast_cancer: {standardise: stated}}",
        "standardise: stated and constants require each other",
    ),
    "an estimator with a dot": (
        "architectures: {forest: {model: sklearn.ensemble.RandomForestClassifier}}",
        "architectures.forest: unknown model 'sklearn.ensemble.RandomForestClassifier': an estimator is named"
        " package.module:Class, such as sklearn.ensemble:RandomForestClassifier",
    ),
    "an estimator's short name": (
        "architectures: {random_forest: {}}",
        "unknown model 'random_forest': an estimator is named package.module:Class, such as sklearn.ensemble:RandomForest",
    ),
    "a short name in capitals": (
        "architectures: {a: {model: XGBClassifier}}",
        "unknown model 'XGBClassifier': an estimator is named package.module:Class, such as xgboost:XGBClassifier",
    ),
    "a package without a class": (
        "architectures: {a: {model: 'sklearn.ensemble:RandomForrestClassifier'}}",
        "sklearn.ensemble has no class 'RandomForrestClassifier'",
    ),
    "a class that is no classifier": (
        "architectures: {a: {model: 'sklearn.linear_model:LinearRegression'}}",
        "the estimator has no predict_proba",
    ),
    "a misspelt parameter": (
        "architectures: {mlp: {parameters: {widht: 8}}}",
        "architectures.mlp: model 'mlp' has no parameter 'widht': did you mean 'width'?",
    ),
    "an estimator's misspelt parameter": (
        "architectures: {a: {model: 'sklearn.ensemble:RandomForestClassifier', parameters: {n_estimator: 8}}}",
        "parameters.n_estimator: did you mean 'n_estimators'?",
    ),
    "groups by no column": (
        "datasets: {breast_cancer: {groups: [gender]}}",
        "datasets.breast_cancer.groups: the source has no column 'gender': known: area error, class",
    ),
    "a font that is not installed": ("report: {figures: {font: Helvetcia}}", "figures.font: no font 'Helvetcia' is"),
    "a target that is missing": (
        "targets: {ours: {architecture: mlp, model: ours.safetensors, members: ours.txt}}",
        "targets.ours.members: no such file: ours.txt in ",
    ),
    "a target of another architecture": (
        "targets: {ours: {architecture: mpl, model: ours.safetensors, members: ours.txt}}",
        "targets.ours.architecture: unknown architecture 'mpl': did you mean 'mlp'?",
    ),
    "a policy that is missing": ("report: {policy: limits.yaml}", "report.policy: no such file: limits.yaml in "),
    "weights that are missing": (
        "architectures: {mlp: {pretrained: start.safetensors}}",
        "architectures.mlp.pretrained: no such file: start.safetensors in ",
    ),
    "frames for the built-in loop": (
        "datasets: {mine: {source: table, path: mine.csv, frame: true}}",
        "datasets.mine.frame: architectures.mlp reads arrays of numbers, and frames are for estimators and scripts",
    ),
    "frames with scaled columns": (
        "datasets: {mine: {source: table, path: mine.csv, frame: true, public: 9, standardise: public}}",
        "standardise: a frame has the file's values; scale them in the model",
    ),
    "frames of a published data set": (
        "{datasets: {breast_cancer: {frame: true}}, architectures: {mine: {model: 'sklearn.svm:SVC'}}}",
        "datasets.breast_cancer.frame: pool 'breast_cancer' does not read this key",
    ),
    "a table without a path": ("datasets: {mine: {source: table}}", "datasets.mine.path: missing; state where"),
}


def config(base: str, change: str) -> dict[str, Any]:
    """Return a small config with sections changed, written as a user writes them."""
    whole: dict[str, Any] = {"audit": "mine", "mechanisms": {"none": {}}, **yaml.safe_load(base)}
    return whole | yaml.safe_load(change)


def one_line(words: str, mistake: Callable[[], object]) -> None:
    with pytest.raises(UserError) as caught:
        mistake()
    message = str(caught.value)
    assert words in message
    assert "\n" not in message


def found(words: str, values: dict[str, Any]) -> None:
    """Assert that a check finds a mistake in a config, its data or its models, in one line."""
    try:
        mistakes = check(check_audit(values, "mine.yaml")).mistakes
    except UserError as error:
        mistakes = [str(error)]
    assert any(words in one for one in mistakes), mistakes
    assert not any("\n" in one for one in mistakes)


@pytest.mark.parametrize(
    ("base", "change", "words"),
    [(base, *case) for base, cases in ((IMAGES, CONFIGS), (TABLE, TABLES)) for case in cases.values()],
    ids=[name for cases in (CONFIGS, TABLES) for name in cases],
)
def test_a_mistake_in_a_config_is_one_line(base: str, change: str, words: str) -> None:
    found(words, config(base, change))


def test_a_batch_norm_that_is_frozen_is_no_mistake() -> None:
    """A classifier is trained alone on features that are computed in evaluation mode, which mix no records."""
    change = "datasets: {digits: {records: 40}}\narchitectures: {resnet18: {}}\ntraining: {batch: 19, trainable: head}"
    change += "\nmechanisms: {none: {}, dp-sgd: {epsilon: 8, delta: 0.001}}"
    assert not check(check_audit(config(IMAGES, change), "mine.yaml")).mistakes


def test_an_estimator_is_no_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    estimator = "{architectures: {mine: {model: 'sklearn.linear_model:LogisticRegression'}}, explainers: {methods: []}}"
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config(TABLE, estimator)))
    assert main(["check", str(tmp_path / "mine.yaml")]) == 0
    assert "plain YAML, follows the schema" in capsys.readouterr().out


FILES = {
    "no file": (None, "mine.yaml: no such file; an audit is one YAML file"),
    "YAML that is none": ("audit: mine\ndatasets: {digits: {}\n", "mine.yaml, line 3, column 1: not YAML: "),
    "a tab": ("audit: mine\ndatasets:\n\tdigits: {}\n", "mine.yaml, line 3, column 1: not YAML: found character"),
    "a list": ("- audit: mine\n", "mine.yaml: expected keys and values"),
}


@pytest.mark.parametrize(("text", "words"), FILES.values(), ids=FILES)
def test_a_mistake_in_a_file_is_one_line(text: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    if text is not None:
        path.write_text(text)
    one_line(words, lambda: load_audit(path))


ROWS = 60
PEOPLE = pl.DataFrame(
    {
        "age": [20.5 + k / 3 for k in range(ROWS)],
        "town": [("Bern", "Ulm", "Aix")[k % 3] for k in range(ROWS)],
        "label": ["ill", "well"] * (ROWS // 2),
    }
)


def people(**columns: Any) -> Callable[[Path], None]:
    """Write a table with further columns."""
    return lambda folder: PEOPLE.with_columns(**{k: pl.Series(v) for k, v in columns.items()}).write_csv(
        folder / "t.csv"
    )


def text(content: str) -> Callable[[Path], None]:
    return lambda folder: Path(folder, "t.csv").write_text(content) and None


def pictures(**odd: bytes | None) -> Callable[[Path], None]:
    """Write a folder with two classes of PNGs and files of one's own; a class without a file is None."""

    def write(folder: Path) -> None:
        for number in range(6):
            path = folder / "t" / "ab"[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((8, 8), 40 * number, dtype=np.uint8)).save(path)
        for name, content in odd.items():
            if content is None:
                (folder / "t" / name).mkdir()
            else:
                (folder / "t" / "a" / f"{name}.png").write_bytes(content)

    return write


def png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def packed(folder: Path) -> None:
    """Write files of MNIST's format whose labels are one too few."""
    (folder / "t").mkdir()
    images, labels = np.zeros((4, 8, 8), dtype=np.uint8), bytes(3)
    header = struct.pack(">BBBBIII", 0, 0, 8, 3, *images.shape)
    (folder / "t" / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images.tobytes()))
    (folder / "t" / "train-labels-idx1-ubyte.gz").write_bytes(
        gzip.compress(struct.pack(">BBBBI", 0, 0, 8, 1, 3) + labels)
    )


DEEP = png(Image.fromarray(np.full((8, 8), 4000, dtype=np.uint16)))
DATA: dict[str, tuple[Callable[[Path], None], dict[str, Any], str]] = {
    "a number for every row": (
        people(zper=range(ROWS)),
        {},
        "column 'zper' (a different value in every row) looks like an identifier: declare each one, such as person: zper, or columns: {zper: drop}",
    ),
    "ids in text": (
        people(who=[f"p{k // 2}x" for k in range(ROWS)], patient=[k // 2 for k in range(ROWS)]),
        {},
        "columns 'who' (30 different words in 60 rows), 'patient' (its name, and 30 different values) look like identifiers",
    ),
    "many words": (
        people(code=[f"c{k % 25}" for k in range(ROWS)]),
        {"columns": {"code": "categorical"}},
        "columns.code: input should be 'drop', 'category' or 'feature'",
    ),
    "a dropped column that is none": (people(), {"columns": {"agee": "drop"}}, "datasets.mine.columns: "),
    "the class as a feature": (
        people(),
        {"columns": {"label": "category"}},
        "columns.label: the column holds the class",
    ),
    "missing values": (people(school=[None, 1.5] * 30), {}, "column 'school' (first in row 1, 30 in all)"),
    "a word for missing numbers": (
        people(school=[None, 1.5] * 30),
        {"impute": {"school": "none"}},
        "impute.school: 'none' for a column of numbers",
    ),
    "a slip among numbers": (
        people(school=["12", "?", *["10"] * (ROWS - 2)]),
        {},
        "values are missing or not finite in column 'school' (first in row 2, 1 in all)",
    ),
    "a label that is none": (people(), {"label": "diagnosis"}, "datasets.mine.label: "),
    "a label of fractions": (people(), {"label": "age"}, "holds fractions; expected classes"),
    "a person who is none": (people(), {"person": "who"}, "datasets.mine.person: "),
    "a constant for one column": (
        people(size=[k / 7 for k in range(ROWS)]),
        {"standardise": "stated", "constants": {"age": [40, 15]}},
        "constants: nothing for column 'size': state [centre, scale]",
    ),
    "a constant for no column": (
        people(),
        {"standardise": "stated", "constants": {"aeg": [40, 15]}},
        "constants.aeg: no such column: did you mean 'age'?",
    ),
    "a word among few numbers": (
        people(school=[["12", "none"][k % 3 == 0] for k in range(ROWS)]),
        {},
        "column 'school' holds numbers except for 'none' (first in row 1, 20 in all): correct them, drop the column"
        " (columns: {school: drop}), or say that they are words: columns: {school: category}",
    ),
    "a number among words": (
        people(school=[["none", "12"][k % 3 == 0] for k in range(ROWS)]),
        {},
        "column 'school' holds numbers except for 'none' (first in row 2, 40 in all)",
    ),
    "numbers beside marks of a laboratory": (
        people(crp=["<0.5" if k % 9 == 0 else f"{k / 7:.1f}" for k in range(ROWS)]),
        {},
        "column 'crp' holds numbers except for '<0.5' (first in row 1, 7 in all): correct them, drop the column",
    ),
    "an empty row": (
        lambda folder: (
            PEOPLE.write_csv(folder / "t.csv")
            or (folder / "t.csv").write_text((folder / "t.csv").read_text() + ",,\n\n")
        ),
        {},
        "rows 61, 62 (below the header) have no value at all: remove them",
    ),
    "rows without a class": (
        people(label=["ill", None, "well"] * 20),
        {},
        "in column 'label' (first in row 2, 20 in all); rows count from 1 below the header. Drop the column (columns: drop),"
        " state a constant for it (impute), or leave those rows out; a row without a class ('label') can only be left out",
    ),
    "dates of every visit": (
        people(seen=[f"2001-{k % 12 + 1:02d}-{k % 28 + 1:02d}" for k in range(ROWS)]),
        {},
        "column 'seen' holds dates, such as '2001-01-01', each of which would be a column",
    ),
    "a word for missing values among numbers": (
        people(pay=[-999.0 if k % 9 == 0 else k / 7 for k in range(ROWS)]),
        {},
        "column 'pay' holds -999.0 in 7 rows, and otherwise ",
    ),
    "a row of totals": (
        people(label=[*["1", "0"] * (ROWS // 2 - 1), "1", "29"]),
        {},
        "column 'label' holds '29' in row 60 alone",
    ),
    "German dates": (
        people(born=[f"{k % 20 + 1}.2.2001" for k in range(ROWS)]),
        {},
        "column 'born' holds dates, such as '1.2.2001'",
    ),
    "more than fifty words": (
        lambda folder: (
            pl.concat([PEOPLE] * 3)
            .with_columns(code=pl.Series([f"c{k % 51}" for k in range(180)]))
            .write_csv(folder / "t.csv")
        ),
        {},
        "column 'code' (51 different words) looks like an identifier: declare each one",
    ),
    "codes with leading zeros": (
        people(ward=[f"0{k % 5}" for k in range(ROWS)]),
        {},
        "column 'ward' (numbers with leading zeros) looks like an identifier: declare each one",
    ),
    "an exported index": (
        lambda folder: PEOPLE.with_columns(pl.Series("", range(ROWS))).write_csv(folder / "t.csv"),
        {},
        "column 'unnamed' (a different value in every row) looks like an identifier",
    ),
    "classes that differ by a dot": (
        people(label=[" <=50K", "<=50K."] * 30),
        {},
        "datasets.mine.label: t.csv: column 'label' holds ' <=50K' and '<=50K.', which differ only by blanks, case or a dot",
    ),
    "words that differ by case": (
        people(sex=["f", "F", "m"] * 20),
        {},
        "column 'sex' holds 'F' and 'f', which differ only by blanks, case or a dot: write them alike, or list all in categories.sex",
    ),
    "seconds since 1970": (
        people(seconds=[1_700_000_000 + k for k in range(ROWS)]),
        {"columns": {"seconds": "feature"}},
        "column 'seconds' has 60 different values, but only 1 as numbers of 32 bits",
    ),
    "a first row of data": (
        text("39.5,Bern,label\n" + "1.5,Ulm,a\n2.5,Aix,b\n" * 4),
        {},
        "the first row looks like data ('39.5'): expected the names of columns there; add them",
    ),
    "a header alone": (text("age,label\n"), {}, "t.csv: no rows"),
    "another encoding": (
        lambda folder: Path(folder, "t.csv").write_bytes("age,label\n1,grün\n2,rot\n".encode("latin-1")) and None,
        {},
        "t.csv: not readable as a table: the text is not in UTF-8; save it in UTF-8, for example by: iconv -f LATIN1 -t UTF-8 t.csv > t-utf8.csv",
    ),
    "the encoding of a spreadsheet": (
        lambda folder: Path(folder, "t.csv").write_bytes("age,label\n1,grün\n2,rot\n".encode("utf-16")) and None,
        {},
        "save it in UTF-8, for example by: iconv -f UTF-16 -t UTF-8 t.csv > t-utf8.csv",
    ),
    "folders of parts": (
        pictures(train=None, test=None),
        {"source": "images", "path": "t"},
        "datasets.mine.path: t: test, train are parts of a data set, not classes: give one of them as the path, such as t/test",
    ),
    "a folder of another program": (
        pictures(__MACOSX=None),
        {"source": "images", "path": "t"},
        "datasets.mine.path: t: the folder __MACOSX is left behind by a program, and no class: move it elsewhere",
    ),
    "one class": (people(label=["ill"] * ROWS), {}, "all records have the class 'ill'"),
    "more public rows than rows": (people(), {"public": 100}, "100 public records are requested, but 'table' has 60"),
    "an empty class": (pictures(fox=None), {"source": "images", "path": "t"}, "no images in fox; expected one"),
    "images of 16 bits": (
        pictures(deep=DEEP),
        {"source": "images", "path": "t"},
        "not of 8 bits per channel; convert: grey accepts it",
    ),
    "images of two sizes": (
        pictures(wide=png(Image.new("L", (9, 8)))),
        {"source": "images", "path": "t"},
        "datasets.mine.size: missing; images vary in size",
    ),
    "a colour image": (
        pictures(red=png(Image.new("RGB", (8, 8)))),
        {"source": "images", "path": "t"},
        "1 colour image among grey-scale ones",
    ),
    "labels that are too few": (packed, {"source": "idx", "path": "t"}, "do not match"),
}


@pytest.mark.parametrize(("write", "section", "words"), DATA.values(), ids=DATA)
def test_a_mistake_in_data_is_one_line(
    write: Callable[[Path], None], section: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    values = {"source": "table", "path": "t.csv", **section}
    model = "mlp" if values["source"] == "table" else "cnn"

    change = {"datasets": {"mine": values}, "architectures": {model: {}}, "training": {"batch": 2}}
    found(words, {"audit": "mine", "mechanisms": {"none": {}}, **change})


SCRIPT = "def train(task): ...\ndef predict(model, records): ...\n"


def beside(**files: str | bytes) -> Callable[[Path], None]:
    """Write a table of people and files beside it; `_` in their names stands for a dot."""

    def write(folder: Path) -> None:
        people(who=[f"p{k // 2}" for k in range(ROWS)])(folder)
        for name, content in files.items():
            path = folder / name.replace("_", ".")
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    return write


OURS = {"ours": {"architecture": "mlp", "model": "ours.pkl", "members": "in.txt"}}
FOREST = {"forest": {"model": "sklearn.ensemble:RandomForestClassifier"}}
ANY: dict[str, tuple[Callable[[Path], None], dict[str, Any], str]] = {
    "a pickle as a target": (
        beside(ours_pkl=b"\x80\x04N.", in_txt="p1\n"),
        {"targets": {"ours": OURS["ours"] | {"id": "who"}}},
        "targets.ours.model: ours.pkl: a pickle, which is never opened",
    ),
    "a pickle as an estimator": (
        beside(ours_pkl=b"\x80\x04N.", in_txt="p1\n"),
        {"targets": {"ours": OURS["ours"] | {"id": "who", "architecture": "forest"}}, "architectures": FOREST},
        "targets.ours.model: ours.pkl: a pickle, which is never opened; expected weights",
    ),
    "a pickle for a script": (
        beside(ours_pkl=b"\x80\x04N.", in_txt="p1\n", net_py=SCRIPT),
        {
            "targets": {"ours": OURS["ours"] | {"id": "who", "architecture": "net"}},
            "architectures": {"net": {"model": "net.py", "outputs": "logits"}},
        },
        "targets.ours.model: ours.pkl: a pickle, which is never opened; expected weights",
    ),
    "members of another unit": (
        beside(ours_pkl=b"", in_txt="0\n2\n5\n"),
        {"targets": OURS, "datasets": {"person": "who", "columns": {}}},
        "targets.ours.members: in.txt: only some records of person p0 are training records (1 of 2",
    ),
    "groups by a column that is none": (
        beside(),
        {"datasets": {"groups": ["towm"]}},
        "datasets.mine.groups: t.csv has no column 'towm': did you mean 'town'?",
    ),
    "edges among words": (
        beside(),
        {"datasets": {"groups": [{"town": [1.0, 2.0]}]}},
        "datasets.mine.groups: 'town' holds String, which edges cannot divide",
    ),
    "too many groups": (
        people(who=[f"p{k}" for k in range(ROWS)]),
        {"datasets": {"groups": ["who"]}},
        "datasets.mine.groups: 'who' has 60 different values: expected at most 50 groups",
    ),
    "a script that is no Python": (
        beside(net_py="def train(task:\n"),
        {"architectures": {"net": {"model": "net.py"}}},
        "net.py, line 1: SyntaxError",
    ),
    "a policy that is none": (
        beside(limits_yaml="limit: {auc: 2}\n"),
        {"report": {"policy": "limits.yaml"}},
        "limits.yaml: unknown key 'limit'",
    ),
    "a batch larger than the half of the stated records": (
        beside(),
        {"datasets": {"columns": {"who": "drop"}, "records": 40}, "training": {"batch": 32}},
        "training.batch: 32 records per step for mlp under none, but a training set of datasets.mine has only 20",
    ),
    "a batch larger than the half of the records of persons": (
        beside(),
        {"datasets": {"columns": {}, "person": "who"}, "training": {"batch": 32}},
        "training.batch: 32 records per step for mlp under none, but a training set of datasets.mine has only 30",
    ),
    "a batch larger than the half of the persons": (
        beside(),
        {
            "datasets": {"columns": {}, "person": "who"},
            "training": {"batch": 16},
            "mechanisms": {"dp-sgd": {"epsilon": 8}},
        },
        "training.batch: 16 persons per step for mlp under dp-sgd, but a training set of datasets.mine has only 15",
    ),
}


@pytest.mark.parametrize(("write", "change", "words"), ANY.values(), ids=ANY)
def test_a_mistake_between_a_config_and_its_files_is_one_line(
    write: Callable[[Path], None], change: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    dataset = {"source": "table", "path": "t.csv", "columns": {"who": "drop"}} | change.get("datasets", {})
    if "who" not in (tmp_path / "t.csv").read_text():
        dataset["columns"] = {}
    rest = {"architectures": {"mlp": {}}, "mechanisms": {"none": {}}, "training": {"batch": 2}} | change
    found(words, {"audit": "mine", **rest, "datasets": {"mine": dataset}})


def test_all_mistakes_are_found_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    people()(tmp_path)
    Path("mine.yaml").write_text(
        "audit: mine\ndatasets: {mine: {source: table, path: t.csv, groups: [gender]}, gone: {source: table, path: gone.csv}}\n"
        "architectures: {mlp: {parameters: {widht: 3}}}\nmechanisms: {none: {}}\ntraining: {batch: 4}\n"
        "report: {figures: {font: Helvetcia}}\n"
    )
    for words in (["check", "mine.yaml"], ["run", "mine.yaml", "--cores", "1"], ["plan", "mine.yaml"]):
        assert main(words) == 2
        said = capsys.readouterr().err.splitlines()
        if words[0] == "plan":
            assert "--pool NAME=RECORDS,SHAPE,CLASSES states" in said.pop()
        assert [line.removeprefix("mia-audit: mine.yaml: ").partition(":")[0] for line in said] == [
            "datasets.gone.path",
            "report.figures.font",
            "datasets.mine.groups",
            "architectures.mlp",
        ]


def test_there_are_enough_of_them() -> None:
    assert sum(map(len, (CONFIGS, TABLES, FILES, DATA, ANY))) >= 100
