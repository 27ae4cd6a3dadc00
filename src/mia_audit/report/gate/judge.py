"""Hold the settings of an audit to a policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mia_audit.errors import UserError, suggest
from mia_audit.evaluation.summary import of_drawn_unit
from mia_audit.report.data.find import find
from mia_audit.report.data.findings import Findings
from mia_audit.report.data.results import Results
from mia_audit.report.gate.criteria import CRITERIA, Case
from mia_audit.report.gate.policy import Policy
from mia_audit.report.gate.verdicts import Judged, Verdict


def judge(results: Results, policy: Policy, findings: Findings | None = None) -> list[Judged]:
    """Return a verdict per criterion and setting, setting by setting; `findings` are used if they have the policy's level.

    All criteria are undecided for a setting of which too many models diverged. Raises UserError for a setting that the
    audit does not have.
    """
    lost = {gap.setting.path: gap for gap in results.spec.gaps if not gap.attacked}
    known = [*(setting.path for setting in results.spec.settings), *lost]
    for name in policy.settings:
        if name not in known:
            raise UserError(f"policy: settings: '{name}' is not a setting of this audit: {suggest(name, known)}")
    chosen = policy.settings or tuple(known)
    if findings is None or findings.confidence != policy.confidence:
        results = Results(results.root, replace(results.spec, confidence=policy.confidence))
        findings = find(results)
    judged = []
    for finding, metrics in zip(findings.settings, results.metrics, strict=True):
        if finding.setting.path in chosen:
            case = Case(policy, results, finding, of_drawn_unit(metrics), metrics)
            judged += [one for criterion in CRITERIA for one in criterion(case)]
    return [*judged, *(_lost(name) for name in chosen if name in lost)]


def _lost(name: str) -> Judged:
    note = "too many of its models diverged for an attack"
    return Judged("all criteria", name, Verdict.CANNOT_TELL, "unknown", "", note)


def judge_digests(complaints: Iterator[str]) -> Judged:
    """Return the verdict on the files of an audit, given a line for every file that differs from its digest."""
    differences = list(complaints)
    value = f"{len(differences)} differ" if differences else "all as written"
    verdict = Verdict.FAIL if differences else Verdict.PASS
    return Judged("digests", "", verdict, value, "none differs", differences[0] if differences else "")
