"""A config is values: nothing that is run while it is read, no more than a config holds, and no traceback for any text."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mia_audit import cli
from mia_audit.config.load import MOST_BYTES, check_audit, load_audit
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
    "object": ("audit: !!python/object/apply:os.system [id]\n", "not YAML: could not determine a constructor"),
    "date": ("audit: 2024-99-99\n", "not YAML: month must be in"),
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
    "boolean tag": (AUDIT + "seed: !!bool x\n", "not YAML: a tag such as !!bool"),
    "date tag": (AUDIT + "seed: !!timestamp x\n", "not YAML: a tag such as !!bool"),
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
    assert f"audit.yaml: runs mine.py (SHA-256 {digest})" in out
    assert "--with-code" in out
    assert not (tmp_path / "ran").exists()
    assert cli.main(["check", "audit.yaml", "--with-code"]) == 2
    assert (tmp_path / "ran").exists()


def test_check_names_classes(tmp_path, capsys):
    path = tmp_path / "audit.yaml"
    path.write_text(AUDIT.replace("mlp: {}", "k: {model: 'a.b:C'}"))
    assert cli.main(["check", str(path)]) == 0
    assert "runs a.b:C" in capsys.readouterr().out


def test_check_names_files_that_are_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "audit.yaml").write_text(AUDIT.replace("digits: {}", "d: {source: table, path: records.csv}"))
    assert cli.main(["check", "audit.yaml"]) == 2
    assert "datasets.d.path: no such file: records.csv" in capsys.readouterr().err
    (tmp_path / "records.csv").touch()
    assert cli.main(["check", "audit.yaml"]) == 0
    assert "its file or folder exists" in capsys.readouterr().out


TEXTS = st.one_of(
    st.text(max_size=80),
    st.text("audit:{}[]&*!?<>|-#'\"%@` \n\t0123456789.eExX_", max_size=80),
    st.sampled_from([str(text) for text, _ in REFUSED.values() if len(text) < 3000]),
)


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_no_text_is_a_traceback(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(UserError) as caught:
        load_audit(path)
    assert len(str(caught.value)) < 2000
