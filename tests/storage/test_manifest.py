"""What provenance.json states, against the files of the results."""

import json
from pathlib import Path

from mia_audit.storage.digests import provenance_differences


def test_a_name_longer_than_any_file_has_is_a_missing_file(tmp_path: Path) -> None:
    name = "report.html" + 300 * "9"
    stated = {"inputs_sha256": {}, "page_sha256": {name: "0"}}
    (tmp_path / "provenance.json").write_text(json.dumps(stated))
    (line,) = provenance_differences(tmp_path)
    assert line.endswith("missing, but provenance.json names it")
