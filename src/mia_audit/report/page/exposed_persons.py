"""The most exposed persons of an audit, each with their records."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.evaluation.exposure import exposure
from mia_audit.report.data.findings import Finding, Leak
from mia_audit.report.data.origins import origins
from mia_audit.report.page.exposed import Exposed, called_members, class_name
from mia_audit.storage import read_table

if TYPE_CHECKING:
    from mia_audit.evaluation.files import Scored
    from mia_audit.report.data.results import Results

RECORDS = 8
"""Number of records listed for a person: those on whose scores membership has the largest effect."""


def most_exposed_persons(results: Results, finding: Finding, fpr: float | None) -> tuple[Leak, list[Exposed]] | None:
    """List the persons whose score under the setting's strongest attack depends most on their membership; None without attacks."""
    ranked = sorted(finding.strongest.values(), key=lambda leak: -leak.auc.mean())
    if not ranked or not results.spec.exposed:
        return None
    leak = ranked[0]
    scored = results.scored(finding.setting, *leak.key, finding.aggregate)
    assert scored.person is not None  # tables of persons' scores have their ids
    columns = exposure(scored.score, scored.member)
    called = called_members(scored.score, scored.member, fpr) if fpr is not None else np.zeros_like(scored.member)
    order = np.argsort(columns["rank"])[: results.spec.exposed]
    order = order[np.isfinite(columns["gap"][order])]
    of_records = results.scored(finding.setting, *leak.key)
    gaps = exposure(of_records.score, of_records.member)["gap"]
    known = ~np.isnan(scored.score)
    names = _classes(results, finding)
    origin = origins(results, finding.setting.pool)
    return leak, [
        Exposed(
            record=int(i),
            rank=int(columns["rank"][i]),
            gap=float(columns["gap"][i]),
            percentile=float(columns["percentile"][i]),
            recognised=int((called[i] & scored.member[i]).sum()),
            inside=int((scored.member[i] & known[i]).sum()),
            false_alarms=int((called[i] & ~scored.member[i]).sum()),
            outside=int((~scored.member[i] & known[i]).sum()),
            person=str(scored.person[i]),
            theirs=_records_of(scored.person[i], of_records, gaps, lambda number: origin(number) or str(number), names),
        )
        for i in order
    ]


def _records_of(
    person: object, scored: Scored, gaps: np.ndarray, origin: Callable[[int], str], names: Callable[[int], str]
) -> str:
    """Return a person's records in words, the most revealing first."""
    assert scored.person is not None
    places = np.flatnonzero(scored.person == person)
    places = places[np.argsort(np.where(np.isnan(gaps[places]), np.inf, -gaps[places]), kind="stable")]
    listed = [
        f"{origin(number)}{names(number)}" for number in (int(scored.record[place]) for place in places[:RECORDS])
    ]
    more = f" and {len(places) - RECORDS} more" if len(places) > RECORDS else ""
    plural = "Records" if len(places) > 1 else "Record"
    return f"{plural} {', '.join(listed)}{more}"


def _classes(results: Results, finding: Finding) -> Callable[[int], str]:
    """Return a function that names the class of a record, if the audit has its pool."""
    metadata = results.pool_metadata(finding.setting.pool)
    path = results.root / "pools" / finding.setting.pool / "records.parquet"
    if metadata is None or not path.exists():
        return lambda number: ""
    labels = read_table(path, "records", ["label"])["label"].to_numpy()
    return lambda number: f" (class {class_name(metadata, int(labels[number]))})"
