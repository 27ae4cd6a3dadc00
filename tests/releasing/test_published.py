"""Games about what a release publishes beside the weights: two pools that differ in one record, and somebody who reads everything."""

import json
import re
from pathlib import Path

import pytest
import yaml
from safetensors import safe_open

from mia_audit.cli import main
from mia_audit.errors import UserError
from mia_audit.learners.protocol import Compute
from mia_audit.models.architecture import construct
from mia_audit.models.weights import save_weights
from mia_audit.registry import file_digest
from mia_audit.releasing.release import release

from .conftest import RECORDS, ROWS, config
from .test_release import LEDGER, MECHANISM, NONCES, SCRIPT

TABLE = {"source": "table", "path": "data/table.csv", "take": "first", "classes": [0, 1]}
STATED = {"categories": {"diagnosis": ["cold", "flu"]}, "other": "another"}


def published(prepared, capsys):
    """Release a setting; return everything that is written or printed, except the values of weights and nonces."""
    capsys.readouterr()
    release(prepared, "0" * 64, Path("out"), Compute())
    with safe_open(Path("out", "weights.safetensors"), framework="np") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 -- not a mapping
    files = [Path("out", name).read_text() for name in ("card.json", "card.md")]
    return [NONCES.sub("-", text) for text in [*files, *capsys.readouterr()]], shapes


def test_a_value_of_one_record_is_not_published(recipe, capsys):
    one, other = (
        published(recipe(where=where, swapped=swapped, datasets={"rows": TABLE | STATED}), capsys)
        for where, swapped in (("one", False), ("other", True))
    )
    assert one == other
    assert "diagnosis=another" in one[0][0] and "family" not in one[0][0]


@pytest.mark.parametrize(
    ("section", "line"),
    [
        (TABLE, 'categories: {"diagnosis": ["a rare disease of one family", "cold", "flu"]}'),
        (TABLE | STATED | {"classes": []}, 'classes: ["0", "1"]'),
        (ROWS | {"classes": []}, 'classes: ["0", "1"]'),
    ],
)
def test_what_was_collected_from_the_records_is_refused_with_the_lines_to_paste(recipe, section, line):
    with pytest.raises(UserError) as caught:
        recipe(swapped=True, datasets={"rows": section})
    assert line in str(caught.value) and "\n" not in str(caught.value)
    assert recipe("rows/mlp/none-epsinf", datasets={"rows": section}).promise == "none"


def test_a_frame_whose_types_depend_on_all_records_is_refused(recipe, tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.py").write_text(SCRIPT)
    own = {"architectures": {"mine": {"model": "mine.py"}}, "mechanisms": {"own": {"epsilon": [2]}, "none": {}}}
    changes = own | {"explainers": {"methods": []}, "datasets": {"rows": TABLE | STATED | {"frame": True}}}
    with pytest.raises(UserError, match="set frame: false"):
        recipe("rows/mine/own-eps2", **changes)
    assert recipe("rows/mine/none-epsinf", **changes).promise == "none"


READER = """
import numpy as np
from mia_audit.pools.section import Header, Source, pool


@pool("mine", header=Header("table"))
def mine(dataset, where):
    words = ["flu", "cold"] * 40
    known = sorted({*words})
    rows = np.array([[word == one for one in known] for word in words], dtype=np.float32)
    rows = np.hstack([rows, np.arange(80, dtype=np.float32)[:, None]])
    return Source("table", rows, np.arange(80) % 2, ["0", "1"], [*known, "age"], collected=COLLECTED)
"""


@pytest.mark.parametrize("collected", ["{}", '{"words": known}'])
def test_what_a_source_of_the_users_own_collected_is_refused_or_assumed_away(recipe, tmp_path, collected):
    (tmp_path / "mine.py").write_text(READER.replace("COLLECTED", collected))
    rows = {"source": f"{tmp_path}/mine.py:mine", "classes": [0, 1]}
    if collected == "{}":
        card = release(recipe(datasets={"rows": rows}), "0" * 64, Path("out"), Compute())
        assert [one for one in card["assumptions"] if "own code that reads the records" in one]
    else:
        with pytest.raises(UserError, match=r"were collected from the records.*mine\.py:mine take only"):
            recipe(datasets={"rows": rows})


@pytest.mark.parametrize("trainable", ["all", "head"])
def test_no_value_of_a_record_is_in_exit_codes_or_messages(audited, capsys, trainable):
    training = {"epochs": 2, "batch": 10, "trainable": trainable}
    seen = set()
    for size in (False, 1.0, 1e-44, 1e38):
        audited(f"of {size}", size, training=training)
        Path("config.yaml").write_text(yaml.safe_dump(config(training=training)))
        capsys.readouterr()
        code = main(["release", "config.yaml", "--setting", "rows/mlp/dp-sgd-eps4", "--out", "out"])
        seen.add((code, *(NONCES.sub("-", text) for text in capsys.readouterr())))
        assert code == 0
    assert len(seen) == 1


NET = """
import torch
from mia_audit.models.catalogue import architecture

@architecture("net")
def net(shape, classes, words=""):
    return torch.nn.Sequential(torch.nn.Linear(shape[0], 8), torch.nn.ReLU(), torch.nn.Linear(8, classes))
"""


def test_a_card_names_no_folder_of_a_path(recipe, tmp_path):
    folder = tmp_path / "of Maria Huber" / "huber"
    folder.mkdir(parents=True)
    (folder / "net.py").write_text(NET)
    (folder / "reader.py").write_text(READER.replace("COLLECTED", "{}"))
    (folder / "noise.py").write_text(MECHANISM.format(more=0))
    start = Path("results", "tiny", "rows", "net", "start.safetensors")
    changes = {
        "datasets": {"rows": {"source": f"{folder}/reader.py:mine", "classes": [0, 1]}},
        "architectures": {"net": {"model": f"{folder}/net.py:net", "parameters": {"words": "huber/words.txt"}}},
        "mechanisms": {"own": {"mechanism": f"{folder}/noise.py:Mine", "epsilon": [4]}},
    }
    built = construct(recipe("rows/net/own-eps4", **changes).architecture, 0)
    save_weights(built, folder / "w.safetensors")
    changes["architectures"]["net"]["pretrained"] = str(folder / "w.safetensors")
    prepared = recipe("rows/net/own-eps4", **changes)
    start.write_bytes((folder / "w.safetensors").read_bytes())
    about = {"pretrained": str(folder / "w.safetensors"), "file": file_digest(folder / "w.safetensors")}
    start.with_suffix(".json").write_text(json.dumps(about))
    model = release(prepared, "0" * 64, Path("out"), Compute())["model"]
    assert (model["model"], model["pretrained"], model["arguments"]["words"]) == (
        "net.py:net",
        "w.safetensors",
        "words.txt",
    )
    for path in Path("out").iterdir():
        assert b"huber" not in path.read_bytes().lower()


def test_every_field_of_a_card_is_in_the_list_of_what_is_published(recipe):
    card = release(recipe(privacy=LEDGER), "0" * 64, Path("out"), Compute())
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "release.md").read_text(encoding="utf-8")
    listed = page.partition("## What a release publishes")[2].partition("\n## ")[0]
    words = {word.lstrip(".").rpartition(".")[2] for word in re.findall(r"`([^`]+)`", listed)}
    nested = [key for one in ("audit", "setting", "privacy", "ledger", "model", "data") for key in card[one]]
    assert {*card, *nested} - words == {"data", "privacy", "audit", "config"}


@pytest.mark.parametrize("swapped", [False, True])
def test_records_drawn_as_public_are_refused(recipe, swapped):
    section = {"standardise": "public"}
    for more in ({}, {"label_noise": 0.1, "public": 0}, section):
        with pytest.raises(UserError, match=r"label_noise" if "label_noise" in more else r"public: \{path: FILE\}"):
            recipe(swapped=swapped, datasets={"rows": ROWS | more}, privacy={"acknowledge": []})
    assert recipe("rows/mlp/none-epsinf", privacy={"acknowledge": []}).promise == "none"


def test_public_records_of_a_file_are_those_that_are_published(recipe, tmp_path, capsys):
    text = "age,diagnosis,label\n1,flu,0\n2,cold,1\n4,flu,1\n"
    section = TABLE | STATED | {"public": {"path": str(tmp_path / "public.csv")}, "standardise": "public"}
    (tmp_path / "public.csv").write_text(text)
    prepared = (
        recipe(where=where, swapped=swapped, datasets={"rows": section}, privacy={"acknowledge": []})
        for where, swapped in (("one", False), ("other", True))
    )
    one, other = (published(each, capsys) for each in prepared)
    assert one == other
    data = json.loads(Path("out", "card.json").read_text())["data"]
    assert (data["units"], data["preprocessing"]["centre"][0]) == (RECORDS, pytest.approx(7 / 3))
