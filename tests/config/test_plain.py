"""A config is values: nothing that is run while it is read, no more than a config holds, and no traceback for any text."""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mia_audit import cli, registry
from mia_audit.config.load import MOST_BYTES, check_audit, code_named, load_audit
from mia_audit.config.schema import Audit
from mia_audit.errors import UserError

AUDIT = "audit: a\ndatasets: {digits: {}}\narchitectures: {mlp: {}}\nmechanisms: {none: {}}\n"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{one}: &{one} [{', '.join([f'*{before}'] * 9)}]\n" for before, one in zip("abcdefgh", "bcdefghi", strict=True)
)
SWEPT = "{" + ", ".join(f"p{key}: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]" for key in range(7)) + "}"
REFUSED = {
    "yte": (
        "__use_yte__: true\n__definitions__:\n  - open('ran', 'w')\n" + AUDIT,
        "__use_yte__.* is code that Snakemake would run",
    ),
    "expression": (AUDIT + "seed: ?open('ran', 'w')\n", r"seed: '\?open.* is code that Snakemake would run"),
    "merged": ("<<: {__use_yte__: true}\n" + AUDIT, "is code that Snakemake would run"),
    "object": ("audit: !!python/object/apply:os.system [id]\n", r"line 1, column 8: the tag '!!python/object"),
    "date": ("audit: 2024-99-99\n", "line 1, column 8: '2024-99-99' is a timestamp"),
    "set": (AUDIT + "explainers: {methods: !!set {'mine.py:boom': null}}\n", "line 5, column 23: the tag '!!set'"),
    "bytes": (AUDIT + "attacks: {methods: [!!binary bWluZS5weTpib29t]}\n", "line 5, column 21: the tag '!!binary'"),
    "own tag": (AUDIT + "seed: !x 1\n", "line 5, column 7: the tag '!x'"),
    "bare tag": (AUDIT + "seed: ! 1\n", "line 5, column 7: the tag '!'"),
    "date as a key": (AUDIT.replace("digits:", "2024-01-01:"), "line 2, column 12: the key '2024-01-01' is no text"),
    "boolean as a key": (AUDIT.replace("digits:", "yes:"), "line 2, column 12: the key 'yes' is no text"),
    "list as a key": ("? [a, b]\n: 1\n", "line 1, column 3: the key .* is no text"),
    "digits": ("seed: " + "9" * 5000, "not YAML: Exceeds the limit"),
    "hexadecimal": (AUDIT + "seed: 0x" + "f" * 9000, "seed: input should be less than .*, got a very long int"),
    "brackets": ("audit: " + "[" * 3000, "nested too deep"),
    "deep": ("audit: " + "[" * 60 + "]" * 60, "nested too deep"),
    "aliases": (BOMB, "more than 100,000 values"),
    "itself": ("audit: &a [*a]\n", "contains itself"),
    "null byte": ("audit: \0a\n", "not YAML: unacceptable character"),
    "models": (AUDIT + "membership: {models: 1000000000}\n", "membership.models: .* 10000, got 1000000000"),
    "jobs": (
        AUDIT.replace("none: {}", f"dp-sgd: {{epsilon: [{', '.join(str(one + 1) for one in range(150))}]}}")
        + "membership: {models: 10000}\ncompute: {shadows_per_job: 1}\n",
        "membership.models.* blocks; expected at most 200,000: use fewer settings",
    ),
    "sweep": (AUDIT.replace("mlp: {}", f"mlp: {{sweep: {SWEPT}}}"), "mlp.sweep: 10,000,000 combinations"),
    "braces": (
        AUDIT.replace("digits: {}", "d: {source: table, path: '{x}.csv'}"),
        "datasets.d.path: '{' is not allowed in a path",
    ),
    "long": (AUDIT + "#" * MOST_BYTES, "bytes; a config has at most"),
    "name": (
        AUDIT.replace("audit: a", "audit: " + "a" * 300),
        "audit: 'aaa.*' becomes the name of a folder: expected at most 100",
    ),
    "infinity": (AUDIT + "training: {learning_rate: 1e400}\n", "training.learning_rate: .*finite"),
    "boolean tag": (AUDIT + "seed: !!bool x\n", "the tag '!!bool'"),
    "date tag": (AUDIT + "seed: !!timestamp x\n", "the tag '!!timestamp'"),
    "repeated": (AUDIT + "mechanisms: {dp-sgd: {epsilon: 8}}\n", "line 5: the key 'mechanisms' is given twice"),
    "repeated inside": ("audit: a\nmechanisms: [{none: {}, none: {}}]\n", "line 2: the key 'none' is given twice"),
    "latin": (AUDIT.encode() + b"# \xff", "not YAML"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_plain_config_is_one_line(tmp_path, monkeypatch, capsys, name):
    text, words = REFUSED[name]
    path = tmp_path / "audit.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=words) as caught:
        load_audit(path)
    assert len(str(caught.value)) < 1000
    assert cli.main(["check", str(path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert [one.name for one in tmp_path.iterdir()] == ["audit.yaml"]


def test_values_that_snakemake_read_are_bounded_as_well():
    many = ["x"] * 9
    for _ in range(8):
        many = [many] * 9
    with pytest.raises(UserError, match="more than 100,000 values"):
        check_audit({"audit": many}, "config")


@pytest.mark.parametrize("value", [{"mine.py:boom"}, b"mine.py:boom", date(2024, 1, 1), {b"mine.py": None}])
def test_values_that_json_does_not_have_are_refused_whoever_read_them(value):
    with pytest.raises(UserError, match=r"config: explainers.methods: "):
        check_audit({"audit": "a", "explainers": {"methods": value}}, "config")


@pytest.mark.parametrize("path", [".", "nowhere.yaml", "a\0b"])
def test_a_config_that_is_no_file_is_one_line(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"no such file|cannot be read"):
        load_audit(tmp_path / path)


def test_check_runs_no_code_that_a_config_names(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("open('ran', 'w')\n")
    (tmp_path / "audit.yaml").write_text(AUDIT.replace("digits: {}", "d: {source: 'mine.py:pool'}"))
    assert cli.main(["check", "audit.yaml"]) == 0
    out = capsys.readouterr().out
    digest = hashlib.sha256((tmp_path / "mine.py").read_bytes()).hexdigest()
    assert f"audit.yaml: names code: mine.py (SHA-256 {digest})" in out
    assert "--with-code" in out
    assert not (tmp_path / "ran").exists()
    assert cli.main(["check", "audit.yaml", "--with-code"]) == 2
    assert (tmp_path / "ran").exists()


def test_check_of_a_script_checks_the_rest(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("open('ran', 'w')\ndef train(task): ...\n")
    text = AUDIT.replace("mlp: {}", "own: {model: mine.py}").replace("digits: {}", "digits: {records: 50}")
    (tmp_path / "audit.yaml").write_text(text)
    assert cli.main(["check", "audit.yaml"]) == 0
    assert "--with-code" in capsys.readouterr().out
    (tmp_path / "audit.yaml").write_text(text.replace("records: 50", "groups: [gender]"))
    assert cli.main(["check", "audit.yaml"]) == 2
    assert "datasets.digits.groups: " in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_check_names_classes(tmp_path, capsys):
    path = tmp_path / "audit.yaml"
    path.write_text(AUDIT.replace("mlp: {}", "k: {model: 'a.b:C'}"))
    assert cli.main(["check", str(path)]) == 0
    assert "names code: a.b:C" in capsys.readouterr().out


def _places(schema: dict[str, Any], root: dict[str, Any], seen: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every key of a schema, with `*` for the name of a section."""
    if reference := schema.get("$ref"):
        if reference not in seen:
            yield from _places(root["$defs"][reference.rpartition("/")[2]], root, (*seen, reference))
        return
    for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _places(one, root, seen)
    inner = dict(schema.get("properties", {}))
    if isinstance(more := schema.get("additionalProperties"), dict):
        inner["*"] = more
    for key, below in inner.items():
        yield (key,)
        yield from ((key, *rest) for rest in _places(below, root, seen))


SCHEMA = Audit.model_json_schema()
PLACES = sorted(set(_places(SCHEMA, SCHEMA)))
CODE = ("mine.py", "mine.py:boom", "mine.py:boom:loss", "mine:Boom")


def _with(place: tuple[str, ...], value: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "audit": "a",
        "datasets": {"digits": {}},
        "architectures": {"mlp": {}},
        "mechanisms": {"none": {}},
    }
    names = {"datasets": "digits", "architectures": "mlp", "mechanisms": "none"}
    keys = [names.get(place[0], "x") if key == "*" else key for key in place]
    section = values
    for key in keys[:-1]:
        section[key] = section = dict(section.get(key, {}))
    section[keys[-1]] = value
    return values


SHAPES: dict[str, Callable[[str], Any]] = {
    "value": lambda code: code,
    "list": lambda code: [code],
    "name of a section": lambda code: {code: {}},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_code_in_any_place_of_a_config_is_listed_before_it_is_loaded(tmp_path, monkeypatch, shape):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("raise ValueError\n")
    loaded = []
    monkeypatch.setattr(registry, "load_file", lambda path, where: loaded.append(str(path)) or ModuleType("mine"))
    monkeypatch.setattr(registry, "load_class", lambda text, where: loaded.append(text) or object)
    assert len(PLACES) > 150
    for place in PLACES:
        for code in CODE:
            values, known = _with(place, SHAPES[shape](code)), len(loaded)
            listed = code_named(values)
            assert [one for one in listed if one.startswith("mine")], (place, code)
            with suppress(UserError):
                check_audit(values, "config")
            assert set(loaded[known:]) <= set(listed), (place, code)
    assert loaded or shape == "name of a section"


def test_the_name_of_a_section_is_listed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("open('ran', 'w')\ndef train(task): ...\ndef predict(model, records): ...\n")
    Path("audit.yaml").write_text(AUDIT.replace("mlp: {}", "mine.py: {outputs: logits}"))
    assert cli.main(["check", "audit.yaml"]) == 0
    assert "names code: mine.py" in capsys.readouterr().out
    assert not Path("ran").exists()


def test_code_is_loaded_in_one_module():
    """Others import their own modules by name, or the types of a stored estimator (skops)."""
    loading = re.compile(r"import_module\(|spec_from_file_location|exec_module|__import__\(|runpy|\b(?:eval|exec)\(")
    root = Path(cli.__file__).parent
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if loading.search(_without_eval_mode(path))}
    own = {"__init__.py", "cli.py", "runtime/warm.py", "learners/protocol.py"}
    assert found - own == {"registry.py", "learners/estimators.py"}


def _without_eval_mode(path: Path) -> str:
    return path.read_text().replace(".eval()", "")


def test_check_names_files_that_are_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "audit.yaml").write_text(AUDIT.replace("digits: {}", "d: {source: table, path: records.csv}"))
    assert cli.main(["check", "audit.yaml"]) == 2
    assert "datasets.d.path: no such file: records" in capsys.readouterr().err
    (tmp_path / "records.csv").write_text("x,label\n" + "1,0\n2,1\n" * 100)
    assert cli.main(["check", "audit.yaml"]) == 0
    assert "its file or folder exists" in capsys.readouterr().out


def test_check_reads_imported_signals(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("audit.yaml").write_text("audit: a\nimported: {theirs: {signals: s.parquet}}\n")
    Path("s.parquet").write_text("no table")
    assert cli.main(["check", "audit.yaml"]) == 2
    assert "audit.yaml: s.parquet: " in capsys.readouterr().err
    member = np.arange(6)[:, None] % 2 == np.arange(4) % 2
    columns = {"shadow": np.repeat(np.arange(4), 6), "record": np.tile(np.arange(6), 4), "member": member.T.ravel()}
    pl.DataFrame(columns | {"loss": np.arange(24.0)}).write_parquet("s.parquet")
    assert cli.main(["check", "audit.yaml"]) == 0
    assert "its file or folder exists" in capsys.readouterr().out


TEXTS = st.text(max_size=80) | st.text("audit:{}[]&*!?<>|-#'\"%@` \n\t0123456789.eExX_", max_size=80)


@given(TEXTS)
def test_no_text_is_a_traceback(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(UserError) as caught:
        load_audit(path)
    assert len(str(caught.value)) < 2000
