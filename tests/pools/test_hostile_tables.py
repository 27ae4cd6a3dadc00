"""Tables from others that would end the process instead of in one line."""

import pytest

from mia_audit.config.load import parse
from mia_audit.errors import UserError
from mia_audit.pools.section import Dataset
from mia_audit.pools.sources.files import table
from mia_audit.pools.tables import MOST_COLUMNS


def test_more_columns_than_polars_survives_are_refused_by_the_header(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(",".join(["y", *("a" * MOST_COLUMNS)]) + "\n")
    with pytest.raises(UserError, match="50,001 columns; expected at most 50,000"):
        table(parse(Dataset, {"source": "table", "path": str(path), "label": "y"}, "test"), "datasets.d")
