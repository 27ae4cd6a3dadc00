"""Sizes of pools: given, read, or published."""

from pathlib import Path
from typing import Any

import pytest

from mia_audit.config.load import parse
from mia_audit.config.schema import Audit
from mia_audit.errors import UserError
from mia_audit.planning.check import check
from mia_audit.planning.sizes import SOURCES, Size, parse_size, selected
from mia_audit.pools import pools


def audit(**dataset: Any) -> Audit:
    parts = {"architectures": {"mlp": {}}, "mechanisms": {"none": {}}}
    return parse(Audit, {"audit": "tiny", "datasets": {"digits": dataset}} | parts, "tiny.yaml")


def size_of(audit: Audit) -> Size:
    section = audit.datasets["digits"]
    return selected(SOURCES[section.source], section)


def test_a_known_source_needs_no_pool() -> None:
    assert size_of(audit(public=97)) == Size(1700, 97, (1, 8, 8), 10)
    assert size_of(audit(public=97, records=200)) == Size(200, 97, (1, 8, 8), 10)
    assert size_of(audit(public=97, records=200)).bytes == 297 * 64


def test_where_the_unit_is_the_person_records_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "table", Size(20_190, 0, (24,), 3, persons=5_912))
    size = size_of(audit(source="table", person="zper", records=1478, public=100))
    assert (size.records, size.public) == (round(1478 * 20_190 / 5_912), round(100 * 20_190 / 5_912))
    assert size.persons == 1478
    by_row = audit(source="table", person="zper", unit="record", public=100)
    assert size_of(by_row).persons == 0


def test_every_bundled_or_published_source_is_known() -> None:
    of_files = {"arrays", "idx", "images", "table"}  # the user's own
    assert set(SOURCES) | of_files == set(pools)


def test_images_are_stored_at_the_size_that_is_asked_for() -> None:
    assert size_of(audit(size=16, source="cifar10", path=".")).shape == (3, 16, 16)


def test_a_given_size_goes_first() -> None:
    one = audit(source="table", path="elsewhere.csv", public=3)
    name, size = parse_size("digits=20000,24,10", one)
    checked = check(one, {name: size})
    assert checked.sizes == {"digits": Size(20000, 3, (24,), 10)} and not checked.mistakes


def test_a_table_of_ones_own_is_read(tmp_path: Path) -> None:
    rows = [f"{k / 7},{'ab'[k % 2]},{k % 2},p{k % 10}" for k in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["age,code,label,who", *rows]))
    section = {"source": "table", "path": str(tmp_path / "t.csv"), "person": "who"}
    checked = check(audit(**section, public=2, columns={"age": "feature"}))
    assert checked.sizes == {"digits": Size(24, 6, (3,), 2, persons=8)}


@pytest.mark.parametrize("text", ["digits", "digits=5", "digits=5,3x3", "digits=5,3xa,2", "digits=0,3,2", "=5,3,2"])
def test_a_size_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="expected NAME=RECORDS,SHAPE,CLASSES"):
        parse_size(text, audit())


def test_a_size_of_no_data_set_is_refused() -> None:
    with pytest.raises(UserError, match="no data set 'faces'; it has digits"):
        parse_size("faces=5,3,2", audit())
