"""Records are named as their owner knows them: by a row of the user's table or an image's file, in original units."""

import numpy as np
import pyarrow as pa
import pytest

from mia_audit.config.load import check_audit
from mia_audit.config.specs import ReportSpec
from mia_audit.report.page.exposed import in_original_units
from mia_audit.storage import write_table

RECORDS = 300


@pytest.mark.parametrize(
    ("columns", "section", "named"),
    [
        ({"source": range(7, RECORDS + 7)}, {"source": "table", "path": "data/people.csv"}, "row 11 of people.csv"),
        ({"file": [f"cat/{k}.png" for k in range(RECORDS)]}, {"source": "images", "path": "photos"}, "cat/3.png"),
        ({"source": range(RECORDS)}, {"source": "digits"}, ""),
    ],
)
def test_a_record_is_named_by_what_its_owner_has(written, columns, section, named):
    small = written({("none", "inf"): 1.0}, pool=True)
    path = small.root / "pools" / "toy" / "records.parquet"
    table = {"record": pa.array(range(RECORDS), pa.int32()), "label": pa.array([0, 1] * (RECORDS // 2), pa.int32())}
    table |= {name: pa.array(list(values)) for name, values in columns.items()}
    write_table(path, pa.table(table), "records", RECORDS, {"kind": "table", "shape": [2], "classes": ["a", "b"]})
    results = small.results(config={"audit": "toy", "datasets": {"toy": section}})
    assert results.origins("toy")(3) == named
    assert results.origins("elsewhere")(3) == ""


def test_values_are_shown_in_the_units_of_the_table():
    shown = in_original_units(np.array([-1.0, 2.0]), {"centre": [40.0, 0.0], "scale": [15.0, 1.0]})
    assert shown.tolist() == [25.0, 2.0]
    assert in_original_units(np.array([3.0]), {}).tolist() == [3.0]


def test_one_key_makes_a_page_without_records():
    values = {"audit": "a", "datasets": {"digits": {}}, "architectures": {"cnn": {}}, "mechanisms": {"none": {}}}
    shown, hidden = (
        ReportSpec.from_audit(check_audit(values | {"report": report}, "a.yaml"))
        for report in ({}, {"show_records": False})
    )
    assert (shown.exposed, shown.explanation_maps) == (8, True)
    assert (hidden.exposed, hidden.explanation_maps) == (0, False)
