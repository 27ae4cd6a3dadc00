"""The script of the report's charts is made once on a machine, and each time where nothing can be kept."""

import hashlib
import os
from importlib.metadata import version
from pathlib import Path

import pytest
import vl_convert

from mia_audit.report.page import vega


def homeless():
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.parametrize(("cache", "times"), [("new", 1), ("taken", 2), ("", 2)])
def test_the_script_is_made_once_where_it_can_be_kept(tmp_path, monkeypatch, cache, times):
    made = []
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: made.append(snippet) or "a script")
    monkeypatch.setattr(vega, "PINNED", {version("vl-convert-python"): hashlib.sha256(b"a script").hexdigest()})
    monkeypatch.setattr(Path, "home", homeless)
    (tmp_path / "taken").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache) if cache else "")
    assert [vega.bundle(), vega.bundle()] == ["a script"] * 2 and made == [vega.SNIPPET] * times


def test_a_poisoned_cache_is_not_used_and_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: "a script")
    monkeypatch.setattr(vega, "PINNED", {version("vl-convert-python"): hashlib.sha256(b"a script").hexdigest()})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert vega.bundle() == "a script"
    (kept,) = (tmp_path / "mia-audit").iterdir()
    kept.write_text("stolen()")
    assert vega.bundle() == "a script"
    assert kept.read_text() == "a script"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_in_the_cache_is_not_waited_for(tmp_path, monkeypatch, make):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    vega._kept().parent.mkdir(parents=True)
    make(vega._kept())
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda _: "made anew")
    assert vega.bundle() == "made anew"


def test_nothing_is_kept_of_a_version_without_a_digest(tmp_path, monkeypatch):
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: "another script")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for pinned in ({}, {version("vl-convert-python"): "0" * 64}):
        monkeypatch.setattr(vega, "PINNED", pinned)
        assert vega.bundle() == "another script"
    assert not (tmp_path / "mia-audit").exists()


def test_the_digest_of_the_locked_version_is_pinned(monkeypatch):
    assert version("vl-convert-python") in vega.PINNED
    assert hashlib.sha256(vega.bundle().encode()).hexdigest() == vega.PINNED[version("vl-convert-python")]
