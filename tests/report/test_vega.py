"""The script of the report's charts is made once on a machine, and again where nothing can be kept."""

import vl_convert

from mia_audit.report import vega


def test_the_script_is_made_once(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: made.append(snippet) or "a script")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert [vega.bundle(), vega.bundle()] == ["a script"] * 2 and made == [vega.SNIPPET]
    (tmp_path / "taken").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "taken"))
    assert [vega.bundle(), vega.bundle()] == ["a script"] * 2 and len(made) == 3
