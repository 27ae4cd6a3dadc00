"""Results are used by versions that can read them, and refused with one line by others."""

import json
from pathlib import Path

import pytest

from mia_audit.errors import UserError
from mia_audit.runtime.versions import refuse_other_version


@pytest.mark.parametrize("known", ["1.0.0", "1.2.9", "1.0.0rc1", None, 3, "?", ""])
def test_results_that_are_read_and_continued(known: object, tmp_path: Path) -> None:
    (tmp_path / "provenance.json").write_text(json.dumps({"versions": {"mia-audit": known}}))
    refuse_other_version(tmp_path, "1.2.3")


@pytest.mark.parametrize("known", ["0.1.0", "2.0.0", "1.3.0"])
def test_results_of_another_version(known: str, tmp_path: Path) -> None:
    (tmp_path / "provenance.json").write_text(json.dumps({"versions": {"mia-audit": known}}))
    with pytest.raises(UserError, match=rf"results of mia-audit {known}, which 1\.2\.3 neither reads nor continues"):
        refuse_other_version(tmp_path, "1.2.3")


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"versions": []}'])
def test_results_without_a_version(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "provenance.json").write_text(text)
    refuse_other_version(tmp_path, "1.2.3")
