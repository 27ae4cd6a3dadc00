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

    with suppress(OSError, RuntimeError):
        return _kept().read_text(encoding="utf-8")
    script: str = vl_convert.javascript_bundle(SNIPPET)
    with suppress(OSError, RuntimeError, UserError):
        write_text(_kept(), script)
    return script


def _kept() -> Path:
    """Name the file in the cache; RuntimeError for a user without a home."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    which = f"{version('vl-convert-python')}-{hashlib.sha256(SNIPPET.encode()).hexdigest()[:8]}"
    return cache / "mia-audit" / f"vega-{which}.js"
