"""The machine or cluster on which a workflow runs: its GPUs and memory, SLURM, and what an earlier run left behind."""

import gc
from collections.abc import Iterable
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from mia_audit.host_memory import whole_memory
from mia_audit.runtime import warm
from mia_audit.runtime.gpus import usable_gpus
from mia_audit.runtime.locks import release_stale_lock
from mia_audit.runtime.mtimes import clamp_future_mtimes
from mia_audit.runtime.search_path import prepend_environment
from mia_audit.runtime.slurm import EXECUTOR, cancel_jobs_of, node_memory, partition_has_gpus, put_first_on_path

GARBAGE = (1_000_000, 50, 100)
"""Thresholds of garbage collection, which takes a sixth of the time of planning thousands of jobs and frees nothing: a plan stays alive."""


def prepare(workflow: Any, device: str, megabytes: int | None, results: Path) -> "Machine":
    """Prepare this process for a Snakemake workflow, and return the machine of its jobs.

    `device` and `megabytes` are the config's `compute.device` and `compute.memory_mb`. The process that is not a job's
    own also releases the lock of a killed run, puts wrappers of SLURM's programs first on PATH, and sets times of
    results in the future to now. UserError if a lock is a link.
    """
    gc.set_threshold(*GARBAGE)
    prepend_environment()
    machine = Machine(workflow, device, megabytes)
    if workflow.is_main_process:
        release_stale_lock(Path.cwd())
        put_first_on_path(Path(str(workflow.current_basedir)).parent / "profiles" / "slurm" / "bin")
        clamp_future_mtimes(results)
        # no more local jobs start than there are GPUs, because a job that waits for a GPU would hold its cores
        local = workflow.resource_settings.nodes is None
        if local and "gpu" not in workflow.global_resources and machine.local_gpus:
            workflow.register_resource("gpu", len(machine.local_gpus))
    return machine


class Machine:
    """What jobs of a workflow may use."""

    def __init__(self, workflow: Any, device: str, megabytes: int | None) -> None:
        self._workflow, self._device, self._megabytes = workflow, device, megabytes
        self.gpus = cache(self._gpus)
        self._has_gpus = cache(partition_has_gpus)  # SLURM is queried once per partition

    @property
    def slurm(self) -> bool:
        """Whether jobs are submitted to SLURM."""
        plugin = self._workflow.executor_plugin
        return bool(plugin and plugin.name == EXECUTOR)

    @cached_property
    def local_gpus(self) -> list[str]:
        """The GPUs of this machine that jobs may use. The driver is queried once."""
        return usable_gpus(self._device)

    @cached_property
    def memory(self) -> int | None:
        """The largest memory of a job in megabytes; None if unknown. The Snakemake inside a job does not query it."""
        if self._megabytes or self._workflow.dryrun or not self._workflow.is_main_process:
            return self._megabytes
        if self.slurm:
            return node_memory()
        return None if self._workflow.non_local_exec else whole_memory() // 10**6

    def _gpus(self, rule: str) -> int:
        """Return how many GPUs a rule's job requests: one if the config, this machine or SLURM's partition provides one."""
        if not self._workflow.is_main_process:  # inside a job: the value with which it was submitted
            return min(1, self._workflow.global_resources.get("gpu").value or 0)
        if self._device != "auto":
            return int(self._device.startswith("cuda"))
        return int(self._has_gpus(self._partition_of(rule)) if self.slurm else bool(self.local_gpus))

    def _partition_of(self, rule: str) -> str:
        """Return SLURM's partition for a rule as the profile states it; empty for the default one."""
        settings = self._workflow.resource_settings
        for known in (settings.overwrite_resources.get(rule), settings.default_resources):
            if known and "slurm_partition" in known:
                return str(known["slurm_partition"].raw)
        return ""

    def start_worker(self, threads: int, pytorch: bool) -> None:
        """Start the warm worker if jobs run on this machine."""
        if self._workflow.non_local_exec:
            warm.turn_off()
        else:
            warm.start(threads, pytorch=pytorch)

    def cancel_jobs(self, logs: Iterable[str]) -> None:
        """Cancel what a failed run, with these logs of Snakemake, left in SLURM's queue."""
        for path in logs:
            cancel_jobs_of(Path(path), self._workflow.executor_plugin.name)
