"""What training sets and explanation sets differ by: a record, or a person with all of theirs."""

import polars as pl
import pytest

from mia_audit.report.data.findings import Finding, Findings
from mia_audit.report.data.spec import Setting
from mia_audit.report.text.statements import adjacent, explained_adjacency

TRAINED = {
    "epsilon": [8.0], "epsilon_rdp": [9.0], "noise_multiplier": [1.0], "sampling": ["poisson"], "sampling_rate": [0.1],
    "steps": [100], "records": [500], "noise_mask": ["none"], "persons": [100], "records_per_person": [5],
}  # fmt: skip


def finding(unit: str, private: bool = True) -> Finding:
    setting = Setting("d", "mlp", "dp-sgd" if private else "none", "8", private=private, delta=1e-5)
    return Finding(setting, {}, None, None, pl.DataFrame(TRAINED | {"unit": [unit]}), None)


@pytest.mark.parametrize(
    ("units", "words"),
    [
        (["record"], "one record"),
        (["person"], "one person with all of their records"),
        (["record", "person", "record"], "one record or one person with all of their records"),
        ([], ""),
    ],
)
def test_trainings_name_their_units(units: list[str], words: str) -> None:
    settings = [finding("record", private=False), *map(finding, units)]
    assert adjacent(Findings(None, settings)) == words


def test_explanation_sets_name_theirs() -> None:
    records, persons = (explained_adjacency("zero-out", by_person) for by_person in (False, True))
    assert records.startswith("one record's term") and persons.startswith("one person's term")
    assert "the number of persons being public" in persons
