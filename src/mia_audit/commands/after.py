"""Commands after an audit: print its answer, check it against a policy, and check that no file was changed."""

import argparse
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.errors import UserError
from mia_audit.sanitise import visible

if TYPE_CHECKING:
    from mia_audit.report.gate import Judged


def answer_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, help="folder of the audit's results")


def run_answer(options: argparse.Namespace) -> None:
    """Print the opening sentences of the report, its table of settings and the path of the page."""
    from mia_audit.report.answer import answer_text

    print(answer_text(options.results))


def gate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, help="folder of the finished audit's results")
    parser.add_argument("--policy", required=True, type=Path, metavar="FILE", help="the policy, a YAML file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts as JSON")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the verdicts as JUnit XML")


def run_gate(options: argparse.Namespace) -> int:
    """Print a line per criterion; return 0 if all pass, 3 if one fails, and 4 if one is inconclusive and none fails."""
    from mia_audit.config.load import load_policy
    from mia_audit.report.gate import EXIT_CODES, as_json, as_junit, judge, lines, overall
    from mia_audit.report.opened import PROVENANCE, finished, read_provenance
    from mia_audit.report.provenance import TRAINED
    from mia_audit.storage import sha256, write_json, write_text
    from mia_audit.storage.digests import audit_id, provenance_differences

    policy = load_policy(options.policy)
    results = finished(options.results)
    for out in (options.json, options.junit):
        if out and out.resolve().is_relative_to(options.results.resolve()):
            raise UserError(f"{out}: inside the results, whose files are listed in SHA256SUMS; choose another place")
    sources = read_provenance(options.results)
    files = ((path, path.relative_to(options.results).as_posix()) for path in results.inputs())
    added = (f"{path}: not in provenance.json" for path, name in files if name not in sources["inputs_sha256"])
    if stale := next(chain(provenance_differences(options.results), added), ""):
        raise UserError(f"{stale}: the report is about other files than these: run the audit to its end")
    judged = [*judge(results, policy), *([_digests(options.results)] if policy.digests else [])]
    for line in lines(judged):
        print(line)
    if options.json:
        trained = {
            one["path"]: one.get(TRAINED, "")
            for one in sources["settings"]
            if not policy.settings or one["path"] in policy.settings
        }
        known = {
            "audit": results.spec.audit,
            "audit_id": audit_id(options.results),
            "training_sha256": trained,
            "provenance_sha256": sha256(options.results / PROVENANCE),
            "policy": policy.model_dump(mode="json"),
            "policy_sha256": sha256(options.policy),
        }
        write_json(options.json, as_json(judged, **known))
    if options.junit:
        write_text(options.junit, as_junit(judged, f"policy of {results.spec.audit}"))
    return EXIT_CODES[overall(judged)]


def _digests(results: Path) -> "Judged":
    from mia_audit.report.gate import Judged, Verdict, judge_digests
    from mia_audit.storage.digests import MANIFEST
    from mia_audit.training.verification import complaints

    if not (results / MANIFEST).exists():
        note = f"no {MANIFEST}: the audit has not ended, or the list was removed"
        return Judged(
            criterion="digests",
            setting="",
            verdict=Verdict.CANNOT_TELL,
            value="unknown",
            limit="none differs",
            note=note,
        )
    return judge_digests(complaints(results))


def verify_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, help="folder of the audit's results")
    parser.add_argument(
        "--unfinished",
        action="store_true",
        help="check the existing files of an audit that has not ended; such an audit has no list of files",
    )


def run_verify(options: argparse.Namespace) -> None:
    """Compare all files with digests, provenance and SHA256SUMS; print the root hash, or a line for each file that differs."""
    from mia_audit.storage.digests import MANIFEST, read_manifest, root_hash
    from mia_audit.training.verification import complaints, damages, files_with_digests

    results = options.results
    count = len(files_with_digests(results))
    if options.unfinished:
        _refuse(list(damages(results)))
        print(f"{count} files of {results} match their digests; without a list, missing files are not noticed")
        return
    if not (results / MANIFEST).exists():
        raise UserError(
            f"{results}: no {MANIFEST}, which lists the files of a finished audit: the audit has not ended, or the list was"
            " removed. --unfinished checks the existing files"
        )
    _refuse(list(complaints(results)))
    listed = len(read_manifest(results / MANIFEST))
    print(
        f"{listed} files of {results} match {MANIFEST}"
        + (f", and {count} the digest that they contain" if count else "")
    )
    print(
        f"root hash {root_hash(results)}; whoever forges files can forge this list too, so compare the root hash or check a signature"
    )


def _refuse(differences: list[str]) -> None:
    """Raise the first complaint as a UserError, after printing a line for each of the others."""
    if differences:
        more = [f"; {len(differences) - 1} more above"] if len(differences) > 1 else []
        for complaint in differences[1:]:
            print(visible(complaint))
        raise UserError("".join([differences[0], *more]))
