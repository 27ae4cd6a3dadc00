"""The documentation: short lines, links that lead somewhere, and no name, key or command left out."""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from mia_audit.attacks import attacks
from mia_audit.cli import COMMANDS
from mia_audit.config.schema import Audit
from mia_audit.explain import explainers
from mia_audit.explain.black_boxes import black_boxes
from mia_audit.explain.private_local.terms import kernels
from mia_audit.explanation_metrics import measures
from mia_audit.models.catalogue import architectures
from mia_audit.pools import pools
from mia_audit.privacy.catalogue import mechanisms

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), ROOT / "config" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CONFIGS = sorted((ROOT / "config").rglob("*.yaml"))
LONGEST = 120
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.+)$", re.MULTILINE)
TWO_SENTENCES = re.compile(r"[^.:,\s]{2,}[.?!]\)? [A-Z][a-z]+ ")
ABBREVIATED = re.compile(r"\b(al|e\.g|i\.e|vs|no|cf)\.$")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are neither of a table, nor of code, nor generated."""
    fenced = generated = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        generated = (generated or line.startswith("<!-- keys")) and not line.startswith("<!-- end of keys")
        if not (fenced or generated or line.startswith(("|", "    ", "```", "!["))):
            yield number, line


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as mkdocs makes them."""
    from markdown.extensions.toc import slugify

    return {
        slugify(re.sub(r"`|\*|\[([^\]]*)\]\([^)]*\)", r"\1", title), "-")
        for title in HEADING.findall(page.read_text(encoding="utf-8"))
    }


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_prose_has_one_sentence_a_line_and_short_lines(page: Path) -> None:
    lines = list(prose(page))
    assert [
        number for number, line in lines if len(line) > LONGEST and not line.startswith(("<!-- numbers", "Source: ["))
    ] == []
    sentences = [
        f"{name(page)}:{number}: {line}"
        for number, line in lines
        if (match := TWO_SENTENCES.search(line)) and not ABBREVIATED.search(match[0].split(" ")[0])
    ]
    assert sentences == []


WORDS = 30
"""Most words of a sentence outside tables."""
NUMBER = re.compile(r"(?<![\w.^-])\d[\d,.]*\b(?![\w`])")


def sentences(page: Path) -> list[str]:
    """Return the sentences of a page's prose, without code and the targets of links; an item of a list ends one."""
    text = "\n".join("" if line.lstrip().startswith(("#", "|")) else line for _, line in prose(page))
    text = re.sub(r"<!--.*?-->", "", re.sub(r"\]\([^)]*\)", "]", text), flags=re.DOTALL)
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|(?<=[.!?:])[)*]*\s+(?=[A-Z`*\[(\d])|(?<=:)\s", text)
    return [" ".join(part.split()) for part in parts if part.strip()]


def test_sentences_are_counted(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# 1 title 2\n\nOne sentence.\nAnother [of 3](4.md), with `5`\ncode.\n\n- an item\n- one: it\n\n| 6 |\n"
    )
    found = sentences(page)
    assert found == ["One sentence.", "Another [of 3], with `5` code.", "- an item", "- one:", "it"]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent.parent == ROOT / "docs" and page.parent.name != "results"], ids=name
)
def test_sentences_are_short_and_numbers_are_with_the_results(page: Path) -> None:
    found = sentences(page)
    assert [sentence for sentence in found if len(sentence.split()) > WORDS] == []
    numbers = sum(len(NUMBER.findall(re.sub(r"`[^`]*`", "", sentence))) for sentence in found)
    assert numbers <= len(found) / 3


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = (page.parent / path) if path else page
        assert file.exists(), f"{name(page)}: {target}"
        if anchor:
            assert anchor in anchors(file), f"{name(page)}: {target}, but there are {sorted(anchors(file))}"


@pytest.mark.parametrize("page", [*PAGES, *CONFIGS], ids=name)
def test_files_of_the_project_that_are_named_exist(page: Path) -> None:
    named = re.findall(r"\b(?:tests|benchmarks|docs|src|workflow)/[\w/.-]+\.(?:py|md|smk|yaml)\b", page.read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_tests_that_are_named_exist() -> None:
    defined = {
        test for file in (ROOT / "tests").rglob("test_*.py") for test in re.findall(r"def (test_\w+)", file.read_text())
    }
    named = {test for page in PAGES for test in re.findall(r"(?:`|::)(test(?:_[a-z0-9]+){3,})`", page.read_text())}
    assert named and named - defined == set()


def test_pages_are_all_on_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES:
        assert name(page).removeprefix("docs/") in site


def every_key() -> set[str]:
    schema = Audit.model_json_schema()
    return {key for section in (schema, *schema["$defs"].values()) for key in section.get("properties", {})}


def documented(words: Iterable[str]) -> list[str]:
    """Return the words that stand nowhere as code in the pages for users."""
    pages = [page for page in PAGES if page.parent != ROOT]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    code = " ".join([*re.findall(r"`([^`\n]+)`", text), *re.findall(r"```.*?```", text, re.DOTALL)])
    return [word for word in words if not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", code)]


@pytest.mark.parametrize(
    "registry",
    [attacks, explainers, mechanisms, pools, architectures, measures, black_boxes, kernels],
    ids=lambda registry: str(registry.kind),
)
def test_every_registered_name_is_documented(registry: Iterable[str]) -> None:
    assert list(registry)
    assert documented(sorted(registry)) == []


def test_every_config_key_is_documented() -> None:
    assert documented(sorted(every_key())) == []


def test_every_command_is_documented() -> None:
    page = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
    assert [
        command for command in COMMANDS if not re.search(rf"^\| `mia-audit {command}[ `]", page, re.MULTILINE)
    ] == []


def test_a_name_that_is_missing_is_noticed() -> None:
    assert documented(["mia-audit no-such-command", "mia-audit plan"]) == ["mia-audit no-such-command"]


def test_the_page_of_agreement_is_in_step() -> None:
    """It is generated, and refuses to be where a number that is to agree does not."""
    command = [sys.executable, str(ROOT / "benchmarks" / "agreement.py"), "--check"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
