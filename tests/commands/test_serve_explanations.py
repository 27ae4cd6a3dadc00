import builtins
import socket

import pytest
import yaml

from mia_audit.cli import main
from mia_audit.serving.keys import read_keys

SERVICE = {"pool": "pool", "black_box": "box.py:values", "ledger": "ledger", "callers": {"alice": 1}}
SERVICE |= {"budget": 2, "epsilon": 0.5, "delta": 1e-6}


@pytest.fixture
def service(tmp_path):
    path = tmp_path / "service.yaml"
    path.write_text(yaml.safe_dump(SERVICE | {"keys": str(tmp_path / "keys")}))
    return path


def test_a_new_key_is_printed_once(service, tmp_path, capsys):
    assert main(["serve-explanations", str(service), "--new-key", "alice"]) == 0
    key = capsys.readouterr().out.strip()
    assert read_keys(tmp_path / "keys", ["alice"]).caller_of(key) == "alice"
    assert main(["serve-explanations", str(service), "--new-key", "alice"]) == 2
    assert main(["serve-explanations", str(service), "--new-key", "mallory"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert "'alice' has a key already" in errors[0] and "not a caller of" in errors[1]


def test_without_keys_or_with_a_port_in_use_nothing_is_served(service, capsys):
    assert main(["serve-explanations", str(service)]) == 2
    assert "no key of caller 'alice'; create one with --new-key alice" in capsys.readouterr().err
    main(["serve-explanations", str(service), "--new-key", "alice"])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve-explanations", str(service), "--port", str(taken.getsockname()[1])]) == 2
    assert "give another --host or --port" in capsys.readouterr().err


def test_what_is_missing_is_named(service, capsys, monkeypatch):
    main(["serve-explanations", str(service), "--new-key", "alice"])
    honest = builtins.__import__

    def without(name, *rest):
        if name.startswith("mia_audit.serving.app"):
            raise ModuleNotFoundError("No module named 'fastapi'", name="fastapi")
        return honest(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert main(["serve-explanations", str(service)]) == 2
    assert "fastapi is missing, and serving explanations needs it; install it with: pip install 'mia-audit[serve]'" in (
        capsys.readouterr().err
    )
