"""JSON of others ends in a value or in one line, however it is nested."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from mia_audit.config.schema import Compute
from mia_audit.config.specs import ReportSpec
from mia_audit.errors import UserError
from mia_audit.foreign_json import parse_json, parse_object, read_object
from mia_audit.learners.protocol import open_learner
from mia_audit.models.architecture import read_architecture
from mia_audit.models.weights import WRITTEN, read_weights
from mia_audit.storage import read_frame, table_metadata
from mia_audit.storage.tables import diverged_models
from mia_audit.storage.unpacked import read_foreign

DEEP = "[" * 100_000
METRICS = {"attack": ["a"], "signal": ["loss"], "likelihood": ["none"], "null_control": [False], "target": [0]}
METRICS |= {"members": [5], "non_members": [5], "auc": [0.5]}
READERS = {
    "specification": ReportSpec.read,
    "learner": lambda path: open_learner(path, Compute()),
    "architecture": read_architecture,
}


def test_what_is_no_json_or_no_object_is_a_value_error():
    assert parse_json("[1]") == [1] and parse_object("{}") == {}
    for text in (DEEP, '{"a":' * 50_000, "9" * 5000, ""):
        with pytest.raises(ValueError):
            parse_json(text)
    for text in ("[]", "null", "3"):
        with pytest.raises(ValueError, match="not an object"):
            parse_object(text)


def test_a_file_that_holds_no_object_is_named_with_what_was_expected(tmp_path):
    path = tmp_path / "card.json"
    for content, problem in (
        (None, "no such file"),
        (b"[]", "damaged (not an object with keys)"),
        (b"\xff", "damaged"),
    ):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(UserError) as caught:
            read_object(path, "a card")
        assert str(caught.value).startswith(f"{path}: {problem}") and str(caught.value).endswith("; expected a card")
    with pytest.raises(UserError, match=r"cannot be read \(Is a directory\); expected a card"):
        read_object(tmp_path, "a card")
    path.write_text('{"kind": 1}')
    assert read_object(path, "a card") == {"kind": 1}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "text", [DEEP, '{"code": 3, "learner": "x"}', '{"learner": []}', '{"learner": "x", "code": [1]}']
)
def test_a_file_of_others_is_one_line(tmp_path, name, text):
    (tmp_path / "it.json").write_text(text)
    with pytest.raises(UserError, match=r"it\.json") as caught:
        READERS[name](tmp_path / "it.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", [DEEP, "[]", "{", "3"], ids=["deep", "list", "cut", "number"])
def test_metadata_of_tables_and_weights_are_one_line(tmp_path, text):
    table = pa.table(METRICS).replace_schema_metadata({"mia_audit.metadata": text})
    pq.write_table(table, tmp_path / "metrics.parquet")
    with pytest.raises(UserError, match=r"metrics\.parquet: damaged"):
        table_metadata(tmp_path / "metrics.parquet", "metrics")
    save_file({"w": np.zeros(2)}, tmp_path / "w.safetensors", {WRITTEN: text})
    with pytest.raises(UserError, match=r"w\.safetensors: truncated or not safetensors"):
        read_weights(tmp_path / "w.safetensors")


def test_metadata_that_is_no_text_is_no_traceback(tmp_path):
    strange = {b"mia_audit.kind": b"\xff", b"pandas": b"\xfe", b"\xff": b"x"}
    pq.write_table(pa.table(METRICS).replace_schema_metadata(strange), tmp_path / "metrics.parquet")
    assert len(read_foreign(tmp_path / "metrics.parquet")) == 1
    with pytest.raises(UserError, match=r"metrics\.parquet"):
        read_frame(tmp_path / "metrics.parquet", "metrics")


@pytest.mark.parametrize("listed", [3, ["a"], {"x": "why"}, {"1": 2}, {"9" * 5000: "why"}, {"²": "why"}])
def test_reasons_of_diverged_models_are_texts_by_number(tmp_path, listed):
    metadata = {"mia_audit.metadata": json.dumps({"diverged": listed})}
    pq.write_table(pa.table(METRICS).replace_schema_metadata(metadata), tmp_path / "metrics.parquet")
    with pytest.raises(UserError, match="expected the reason for each diverged model, by its number"):
        diverged_models(tmp_path / "metrics.parquet", "metrics")
