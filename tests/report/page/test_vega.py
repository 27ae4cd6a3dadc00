"""The script of the report's charts is made once on a machine, and each time where nothing can be kept."""

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
    monkeypatch.setattr(Path, "home", homeless)
    (tmp_path / "taken").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache) if cache else "")
    assert [vega.bundle(), vega.bundle()] == ["a script"] * 2 and made == [vega.SNIPPET] * times
