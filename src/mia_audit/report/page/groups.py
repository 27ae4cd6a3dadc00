"""The page's section on membership risk by group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mia_audit.report.data.groups import groups_of, strongest_only
from mia_audit.report.tables.groups import groups_layout
from mia_audit.report.text.groups import risk_sentences, small_sentence

if TYPE_CHECKING:
    from mia_audit.report.data.findings import Findings
    from mia_audit.report.data.results import Results


def bearers(results: Results, findings: Findings) -> Iterator[dict[str, Any]]:
    """Yield the risk of every group, for each data set and architecture with results by group."""
    grouped = strongest_only(groups_of(results, findings))
    for place in dict.fromkeys(one.finding.setting.group for one in grouped):
        alike = [one for one in grouped if one.finding.setting.group == place]
        yield {
            "name": ", ".join(place),
            "sentences": [risk_sentences(one, findings.confidence) for one in alike],
            "small": small_sentence(alike),
            "table": groups_layout(alike, findings.confidence),
        }
