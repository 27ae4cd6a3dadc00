"""How far a run is, from the jobs that have started and ended."""

import re
from pathlib import Path

import pytest

from snakemake_logger_plugin_mia_audit.display import clock, read_logs, state
from snakemake_logger_plugin_mia_audit.stages import STAGES, Progress, stage_of

RULES = Path(__file__).parents[2] / "workflow" / "rules"
JOBS = {"all": 1, "report": 1, "train": 4, "preflight": 2, "pool": 1, "total": 9}


def test_every_rule_of_the_workflow_has_a_stage_and_every_stage_has_rules_of_it() -> None:
    rules = {
        name
        for path in RULES.glob("*.smk")
        for name in re.findall(r"^(?:use rule \w+ as|rule) (\w+)(?::| with:)", path.read_text(), re.M)
    }
    assert rules
    assert rules == {rule for known in STAGES.values() for rule in known}


def test_stages_come_in_the_order_of_the_audit_and_count_their_jobs() -> None:
    progress = Progress(JOBS)
    assert {name: stage.jobs for name, stage in progress.stages.items()} == {"Data": 1, "Training": 6, "Report": 1}
    assert stage_of("a_rule_of_your_own") == "a_rule_of_your_own"


def test_the_time_left_follows_from_the_jobs_so_far_and_how_many_run_at_a_time() -> None:
    progress = Progress(JOBS)
    training = progress.stages["Training"]
    assert state(progress, training, 0.0) == "waiting, 6 jobs"
    progress.start(1, "train", 0.0)
    progress.start(2, "train", 0.0)
    assert progress.seconds_left(training, 5.0) is None
    assert progress.finish(1, 10.0) is training
    # a job took 10 s, three are left, two run at a time
    assert progress.seconds_left(training, 10.0) == pytest.approx(15.0)
    assert state(progress, training, 10.0) == "1 of 6 jobs, about 0:15 left"


def test_short_jobs_that_ended_do_not_stand_for_the_long_ones() -> None:
    progress = Progress({"architecture": 1, "pretrain": 1})
    stage = progress.stages["Start models"]
    progress.start(1, "architecture", 0.0)
    progress.finish(1, 2.0)
    progress.start(2, "pretrain", 2.0)
    assert state(progress, stage, 30.0) == "1 of 2 jobs"
    progress.finish(2, 62.0)
    assert state(progress, stage, 99.0) == "done, 2 jobs in 1:02"


def test_a_failed_job_is_not_done_and_may_start_again() -> None:
    progress = Progress({"pool": 1})
    progress.start(1, "pool", 0.0)
    progress.fail(1)
    assert progress.finish(1, 1.0) is None
    progress.start(2, "pool", 2.0)
    stage = progress.finish(2, 3.0)
    assert stage is not None and stage.finished == 1


def test_a_running_job_counts_for_the_models_that_its_log_names(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("shadow 0 of 000-003: train accuracy 1.000\nshadow 1 of 000-003: epoch 3 of 20\n")
    progress = Progress({"train": 2})
    progress.start(1, "train", 0.0, models=4, log=str(log))
    progress.start(2, "train", 0.0, models=4, log=str(tmp_path / "not-there.log"))
    read_logs(progress)
    stage = progress.stages["Training"]
    assert progress.fraction(stage) == pytest.approx(0.25 / 2)
    assert progress.seconds_left(stage, 10.0) == pytest.approx((2 - 0.25) * 40.0 / 2)


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (59.7, "1:00"), (754, "12:34"), (3723, "1:02:03")])
def test_times_are_written_as_a_clock_does(seconds: float, text: str) -> None:
    assert clock(seconds) == text
