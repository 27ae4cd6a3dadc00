"""`--logger mia-audit` in the real Snakemake, and the answer at the end of a run."""

import re
from collections.abc import Callable
from typing import Any

LOGGER = ("--logger", "mia-audit")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def test_the_end_of_a_run_is_the_answer_of_its_report(finished: Any) -> None:
    said = finished.log.read_text()
    conclusion = re.search(r'<p class="conclusion">(.*?)</p>', (finished.results / "report.html").read_text(), re.S)
    assert conclusion
    plain = conclusion[1].replace("&#39;", "'").replace("\u00a0", " ")
    assert plain[:60] in " ".join(said.replace("\u00a0", " ").split())
    assert "Report: results/tiny/report.html (beside" in said


def test_a_finished_audit_has_nothing_to_do_and_prints_its_answer_again(
    copy_of_finished: Callable[[dict[str, Any]], Any], tiny: dict[str, Any]
) -> None:
    copy = copy_of_finished(tiny)
    before = {path: path.stat().st_mtime_ns for path in copy.results.rglob("*")}
    result = copy.run(*LOGGER)
    assert result.returncode == 0
    assert before == {path: path.stat().st_mtime_ns for path in copy.results.rglob("*")}
    assert "Audit tiny: results go to results/tiny" in result.stdout
    assert "Nothing to do: every file" in result.stdout
    assert "Report: results/tiny/report.html (beside" in result.stdout.rstrip().splitlines()[-1]
    assert not CONTROL.search(result.stdout)


def test_a_dry_run_counts_jobs_by_stage(
    copy_of_finished: Callable[[dict[str, Any]], Any], tiny: dict[str, Any]
) -> None:
    attacks = {"methods": ["threshold", "loss-lira"], "likelihoods": ["pooled"]}
    result = copy_of_finished(tiny | {"attacks": attacks}).run(*LOGGER, "--dry-run")
    assert result.returncode == 0
    assert "  Attacks: attack 2, evaluate 2" in result.stdout
    assert "Training" not in result.stdout
    assert "report.html" not in result.stdout


def test_a_failed_job_shows_rule_reason_and_log(
    copy_of_finished: Callable[[dict[str, Any]], Any], tiny: dict[str, Any]
) -> None:
    result = copy_of_finished(tiny | {"architectures": {"other": {"model": "vision_transfomer"}}}).run(*LOGGER)
    assert result.returncode == 1
    log = "results/tiny/logs/architecture/digits-other.log"
    lines = result.stdout.splitlines()
    failed = lines.index("FAILED: architecture (dataset digits, architecture other)")
    assert lines[failed + 1].startswith("  mia-audit: architectures.other: unknown")
    assert lines[failed + 2] == f"  log: {log}"
    assert "Traceback" not in result.stdout and not CONTROL.search(result.stdout)
