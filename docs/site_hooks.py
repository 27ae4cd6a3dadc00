"""What mkdocs does for the site beyond rendering docs/: the pages at the root of the project, and the API pages."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
ROOT_PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "config/README.md")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
EXTERNAL = re.compile(r"""<(?:script|img|iframe|link(?=[^>]*stylesheet))[^>]*(?:src|href)="https?://[^"]*""")
PACKAGE = ROOT / "src" / "mia_audit"


def on_files(files: Any, config: Any) -> Any:
    """Add the pages at the root, and a page of API documentation for every package."""
    for name in ROOT_PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    packages = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    for name in packages:
        files.append(File.generated(config, f"api/{name}.md", content=_api_page(name)))
    lines = [f"- [`mia_audit.{name}`]({name}.md): {_purpose(PACKAGE / name / '__init__.py')}" for name in packages]
    files.append(File.generated(config, "api/index.md", content="# API\n\n" + "\n".join(lines) + "\n"))
    return files


def on_nav(nav: Any, config: Any, files: Any) -> Any:
    """Leave the API's pages to the list of them."""
    for file in files.documentation_pages():
        if file.src_uri.startswith("api/"):
            file.inclusion = file.inclusion.__class__.NOT_IN_NAV
    return nav


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links between files of the project into links of the site; one to a file that is not on it becomes its text."""
    uri = page.file.src_uri
    if uri.startswith("api/"):
        return markdown
    place = uri if uri in ROOT_PAGES else f"docs/{uri}"

    def linked(match: re.Match[str]) -> str:
        mark, text, target = match.groups()
        path, _, anchor = target.partition("#")
        if "://" in target or not path:
            return match[0]
        found = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
        on_site = found if found in ROOT_PAGES else found.removeprefix("docs/") if found.startswith("docs/") else None
        if on_site is None or files.get_file_from_path(on_site) is None:
            return text
        relative = posixpath.relpath(on_site, posixpath.dirname(uri) or ".")
        return f"{mark}[{text}]({relative}{'#' + anchor if anchor else ''})"

    return LINK.sub(linked, markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Refuse a page that loads anything from elsewhere."""
    if loaded := EXTERNAL.search(output):
        raise PluginError(f"{page.file.src_uri} loads {loaded[0]}: the site has to work without a network")
    return output


def _api_page(name: str) -> str:
    folder = PACKAGE / name
    modules = sorted(path for path in folder.rglob("*.py") if not path.stem.startswith("__"))
    names = [".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in modules]
    sections = "\n".join(f"::: mia_audit.{module}\n" for module in names)
    return f"# `mia_audit.{name}`\n\n{_purpose(folder / '__init__.py')}\n\n{sections}"


def _purpose(module: Path) -> str:
    """Return the first line of a module's docstring."""
    return module.read_text(encoding="utf-8").splitlines()[0].strip('"')
