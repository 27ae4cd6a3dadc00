"""Games about what a release publishes beside the weights: two pools that differ in one record, and somebody who reads everything."""

from pathlib import Path

import pytest
from safetensors import safe_open

from mia_audit.errors import UserError
from mia_audit.learners import Compute
from mia_audit.releasing.release import release

from .conftest import ROWS
from .test_release import NONCES

TABLE = {"source": "table", "path": "data/table.csv", "take": "first", "classes": [0, 1]}
STATED = {"categories": {"diagnosis": ["cold", "flu"]}, "other": "another"}


def published(prepared, capsys):
    """Release a setting; return everything that is written or printed, except the values of weights and nonces."""
    capsys.readouterr()
    release(prepared, "0" * 64, Path("out"), Compute())
    with safe_open(Path("out", "weights.safetensors"), framework="np") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 -- not a mapping
    files = [Path("out", name).read_text() for name in ("card.json", "card.md")]
    return [NONCES.sub("-", text) for text in [*files, *capsys.readouterr()]], shapes


def test_a_value_of_one_record_is_not_published(recipe, capsys):
    one, other = (
        published(recipe(where=where, swapped=swapped, datasets={"rows": TABLE | STATED}), capsys)
        for where, swapped in (("one", False), ("other", True))
    )
    assert one == other
    assert "diagnosis=another" in one[0][0] and "family" not in one[0][0]


@pytest.mark.parametrize(
    ("section", "line"),
    [
        (TABLE, 'categories: {"diagnosis": ["a rare disease of one family", "cold", "flu"]}'),
        (TABLE | STATED | {"classes": []}, 'classes: ["0", "1"]'),
        (ROWS | {"classes": []}, 'classes: ["0", "1"]'),
    ],
)
def test_what_was_collected_from_the_records_is_refused_with_the_lines_to_paste(recipe, section, line):
    with pytest.raises(UserError) as caught:
        recipe(swapped=True, datasets={"rows": section})
    assert line in str(caught.value) and "\n" not in str(caught.value)
    assert recipe("rows/mlp/none-epsinf", datasets={"rows": section}).promise == "none"
