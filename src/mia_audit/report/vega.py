"""Vega, Vega-Lite and Vega-Embed as one script, kept in the user's cache: making it takes longer than the page it is for."""

import hashlib
import os
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from mia_audit.errors import UserError
from mia_audit.storage import write_text

SNIPPET = "window.vegaEmbed = vegaEmbed;"


def bundle() -> str:
    """Return the script; where nothing can be kept it is made each time."""
    import vl_convert

    kept = _cache() / f"vega-{version('vl-convert-python')}-{hashlib.sha256(SNIPPET.encode()).hexdigest()[:8]}.js"
    with suppress(OSError):
        return kept.read_text(encoding="utf-8")
    script: str = vl_convert.javascript_bundle(SNIPPET)
    with suppress(OSError, UserError):
        write_text(kept, script)
    return script


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mia-audit"
