"""Snakemake looks at its waiting jobs once a timespan, however many jobs end."""

import threading
from types import SimpleNamespace

from snakemake.scheduling.job_scheduler import JobScheduler

from mia_audit.runtime.machine import look_once_a_timespan


def test_jobs_that_end_do_not_add_looks(monkeypatch):
    monkeypatch.setattr(JobScheduler, "_schedule_reevalutation", JobScheduler._schedule_reevalutation)
    look_once_a_timespan()
    looks = threading.Semaphore(0)
    scheduler = SimpleNamespace(_open_jobs=looks)
    before = threading.active_count()
    for _ in range(20):
        JobScheduler._schedule_reevalutation(scheduler, 0.05)
    assert threading.active_count() == before + 1
    assert looks.acquire(timeout=10) and not looks.acquire(blocking=False)
    # a look that finds waiting jobs asks for the next one
    JobScheduler._schedule_reevalutation(scheduler, 0.05)
    assert looks.acquire(timeout=10)
