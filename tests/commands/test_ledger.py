"""`mia-audit ledger add`: noise beyond what accountants compute is one line, and nothing is charged."""

from pathlib import Path

import pytest

from mia_audit.cli import main
from mia_audit.privacy import ledger


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--noise-multiplier", "1e200", "between 1e-06 and 1e+09"),
        ("--noise-multiplier", "1e-200", "between 1e-06 and 1e+09"),
        ("--mu", "1e-200", "between 1e-09 and 1e+06"),
        ("--mu", "1e200", "between 1e-09 and 1e+06"),
    ],
)
def test_noise_beyond_the_range_is_one_line(
    option: str, value: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.ledger"
    ledger.charge(path, ledger.LedgerTerms("rows", "record", 10.0, 1e-5), [])
    words = ["ledger", "add", str(path), "--unit", "record", "--adjacency", "add-remove", option, value]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert f"{option} " in told and message in told and told.count("\n") == 1
    assert not ledger.read_ledger(path)[1]
