"""Pages that load nothing: their templates, their style, and the content security policy that enforces it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2


def page_template(package: str, name: str, finalize: Callable[[Any], Any]) -> jinja2.Template:
    """Return a package's template; `finalize` makes every value safe for the page."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader(package, "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
    ).get_template(name)


def style() -> str:
    """Return the style sheet of all pages."""
    return files("mia_audit.report.page").joinpath("templates", "report.css").read_text(encoding="utf-8")


def policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """Return a policy that names the SHA-256 of every script and style element (Content Security Policy Level 3, 2.3.1)."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {_sources(scripts)}",
            f"style-src {_sources(styles)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _sources(elements: Sequence[str]) -> str:
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in elements)
    return " ".join(f"'sha256-{one}'" for one in hashes) or "'none'"
