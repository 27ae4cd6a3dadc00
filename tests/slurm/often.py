"""Snakemake's command, asking for the states of SLURM's jobs every two seconds.

The executor otherwise waits ten seconds longer after every answer without a finished job, and half of the tests' time passes between a
job's end and the next question.
"""

from snakemake.cli import main
from snakemake_executor_plugin_slurm import Executor

SECONDS = 2.0

if __name__ == "__main__":
    Executor.next_seconds_between_status_checks = property(lambda executor: SECONDS, lambda executor, seconds: None)
    main()
