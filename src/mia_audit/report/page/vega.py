"""Vega, Vega-Lite and Vega-Embed as one script, kept in the user's cache, because generating it takes longer than the page.

Every report embeds that script, so a cached copy is used only if its SHA-256 is the one pinned here for its version.
"""

import hashlib
import os
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from mia_audit.errors import UserError
from mia_audit.regular_files import open_regular
from mia_audit.storage import write_text

SNIPPET = "window.vegaEmbed = vegaEmbed;"
MOST_BYTES = 8_000_000
"""Largest number of bytes read from a cached script."""
PINNED = {"1.9.0.post1": "373b1f84072b31010f15ceb787be6b415c53936411aae267c8c2b2b6ccde46e7"}
"""The SHA-256 of the script, by the version of vl-convert-python that generates it; scripts of other versions are not cached."""

DRAW = """\
const charts = JSON.parse(document.getElementById("charts").textContent);
const config = {legend: {columns: innerWidth < 480 ? 1 : innerWidth < 760 ? 2 : 4}};
const options = {actions: false, renderer: "svg", config, ast: true, defaultStyle: false, tooltip: {disableDefaultStyle: true}};
for (const [id, chart] of Object.entries(charts)) {
  vegaEmbed("#" + id, chart, options).catch(error => {
    document.getElementById(id).textContent = "This chart could not be drawn: " + error.message;
  });
}
"""
"""Draws the charts. `ast`: expressions are interpreted, because the content security policy does not allow compiling them."""


def bundle() -> str:
    """Return the script; it is generated anew if the cache is unusable, or the cached script has another digest."""
    import vl_convert

    pinned = PINNED.get(version("vl-convert-python"))
    if pinned:
        with suppress(OSError, RuntimeError, UnicodeDecodeError, UserError):
            with os.fdopen(open_regular(_kept(), os.O_RDONLY), "rb") as file:
                content = file.read(MOST_BYTES)
            if _digest(kept := content.decode()) == pinned:
                return kept
    script: str = vl_convert.javascript_bundle(SNIPPET)
    if pinned == _digest(script):
        with suppress(OSError, RuntimeError, UserError):
            write_text(_kept(), script)
    return script


def _digest(script: str) -> str:
    return hashlib.sha256(script.encode()).hexdigest()


def _kept() -> Path:
    """Name the file in the cache; RuntimeError for a user without a home."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    which = f"{version('vl-convert-python')}-{hashlib.sha256(SNIPPET.encode()).hexdigest()[:8]}"
    return cache / "mia-audit" / f"vega-{which}.js"
