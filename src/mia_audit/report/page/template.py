"""Pages that load nothing: their templates, their style, and the content security policy that enforces it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
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


def policy(css: str) -> str:
    """Return a policy that allows this style and no script (Content Security Policy Level 3, 2.3.1)."""
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
