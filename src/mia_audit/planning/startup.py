"""Is a job worth starting? How much of a block's job is its start-up, and which size of block would make that a tenth."""

from collections.abc import Iterator, Mapping
from math import ceil

from mia_audit.config.schema import Audit
from mia_audit.planning.estimate import LIGHT, START_UP, Plan

MOST = 0.1
"""Share of a job that its start-up should take at most."""

CUT_BY = {"train": "shadows_per_job", "signals": "blocks_explained_per_job"}
"""Rules that are cut into blocks, and the key of `compute` that sizes them."""


def advice(plan: Plan, audit: Audit, jobs: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence for every rule whose jobs take more than `MOST` of their time to start, and the size that mends it."""
    for rule, key in CUT_BY.items():
        work = sum(seconds for stage, seconds in plan.seconds.items() if stage.startswith(rule))
        start = START_UP.get(rule, LIGHT) * jobs.get(rule, 0)
        if not work or start <= MOST * (start + work):
            continue
        size = getattr(audit.compute, key)
        wanted = ceil(size * start * (1 - MOST) / MOST / work)
        per_block = 1 if rule == "train" else audit.compute.shadows_per_job
        most = ceil(audit.membership.models / per_block)
        told = f"{start / (start + work):.0%} of a {rule} job is start-up: "
        told += f"compute.{key}: {min(wanted, most)}" + (
            " makes it a tenth" if wanted <= most else " is as large as it gets"
        )
        if size < most:
            yield told + ", if so few jobs keep the machines busy"
