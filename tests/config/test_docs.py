"""What is generated from the config models is what is committed."""

import json
import re
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
import yaml
from jsonschema import Draft202012Validator

from mia_audit.config.docs import json_schema, key_tables, with_key_tables
from mia_audit.config.load import load_audit
from mia_audit.config.schema import Mechanism
from mia_audit.errors import UserError
from mia_audit.explain.catalogue import Explainers
from mia_audit.sections import fields_of

CONFIG = Path(__file__).parents[2] / "config"


def test_the_committed_schema_is_the_generated_one() -> None:
    assert (CONFIG / "schema.json").read_text() == json_schema(), "run `python -m mia_audit.config.docs`"


def test_the_committed_key_tables_are_the_generated_ones() -> None:
    page = (CONFIG / "README.md").read_text()
    assert page == with_key_tables(page), "run `python -m mia_audit.config.docs`"


def test_every_value_that_a_member_takes_is_in_its_row() -> None:
    rows = key_tables().splitlines()
    assert [row for row in rows if row.startswith(" ")] == []  # Markdown would show it as code
    for section in (Mechanism, Explainers):
        for member, options in section.members().items():
            for key, field in fields_of(options).items():
                meaning = " ".join((field.description or "").split())
                (row,) = (row for row in rows if row.startswith(f"| `{key}` ") and row.endswith(f": {meaning} |"))
                values = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
                assert [value for value in (member, *values) if f"`{value}`" not in row] == []


def test_every_config_is_on_the_page() -> None:
    page = (CONFIG / "README.md").read_text()
    named = set(re.findall(r"\]\(([\w./-]+)\)", page))
    paths = {path.relative_to(CONFIG) for path in CONFIG.glob("**/*.yaml")}
    assert [path for path in paths if not named & {str(path), str(path.parent)}] == []


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(UserError, match="keys: generated"):
        with_key_tables("# nothing here")


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    """The generated schema, which takes longer to make than to ask."""
    return Draft202012Validator(json.loads(json_schema()))


@pytest.mark.parametrize("path", sorted(CONFIG.glob("**/*.yaml")), ids=lambda path: path.name)
def test_every_config_is_valid_and_opens_with_what_it_does(path: Path, schema: Draft202012Validator) -> None:
    audit = load_audit(path)
    assert audit.audit in (
        path.stem,
        f"{path.parent.name}_{path.stem}",
    )  # a folder of configs may share names with others
    assert path.read_text().startswith("# ")
    assert f"--configfile config/{path.relative_to(CONFIG)}" in path.read_text()
    schema.validate(yaml.safe_load(path.read_text()))
