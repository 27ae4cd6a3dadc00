"""What is generated from the config models is what is committed."""

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from mia_audit.config.docs import json_schema, with_key_tables
from mia_audit.config.load import load_audit
from mia_audit.errors import UserError

CONFIG = Path(__file__).parents[2] / "config"


def test_the_committed_schema_is_the_generated_one() -> None:
    assert (CONFIG / "schema.json").read_text() == json_schema(), "run `python -m mia_audit.config.docs`"


def test_the_committed_key_tables_are_the_generated_ones() -> None:
    page = (CONFIG / "README.md").read_text()
    assert page == with_key_tables(page), "run `python -m mia_audit.config.docs`"


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
