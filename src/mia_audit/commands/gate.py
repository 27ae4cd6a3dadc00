"""`mia-audit gate`: check a finished audit against a policy."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mia_audit.report.gate.verdicts import Judged


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("results", type=Path, help="folder of the finished audit's results")
    parser.add_argument("--policy", required=True, type=Path, metavar="FILE", help="the policy, a YAML file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts as JSON")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the verdicts as JUnit XML")


def run(options: argparse.Namespace) -> int:
    """Print a line per criterion; return 0 if all pass, 3 if one fails, and 4 if one is inconclusive and none fails."""
    from mia_audit.config.policy import load_policy
    from mia_audit.report.data.opened import finished
    from mia_audit.report.gate.judge import judge
    from mia_audit.report.gate.output import as_json, as_junit, lines
    from mia_audit.report.gate.verdicts import EXIT_CODES, overall
    from mia_audit.storage import sha256, write_json, write_text

    policy = load_policy(options.policy)
    results = finished(options.results)
    judged = [*judge(results, policy), *([_digests(options.results)] if policy.digests else [])]
    for line in lines(judged):
        print(line)
    if options.json:
        known = {
            "audit": results.spec.audit,
            "policy": policy.model_dump(mode="json"),
            "policy_sha256": sha256(options.policy),
        }
        write_json(options.json, as_json(judged, **known))
    if options.junit:
        write_text(options.junit, as_junit(judged, f"policy of {results.spec.audit}"))
    return EXIT_CODES[overall(judged)]


def _digests(results: Path) -> "Judged":
    from mia_audit.report.gate.judge import judge_digests
    from mia_audit.report.gate.verdicts import Judged, Verdict
    from mia_audit.storage.manifest import MANIFEST
    from mia_audit.training.verification import complaints

    if not (results / MANIFEST).exists():
        note = f"no {MANIFEST}: the audit has not ended, or the list was removed"
        return Judged("digests", "", Verdict.CANNOT_TELL, "unknown", "none differs", note)
    return judge_digests(complaints(results))
