"""`mia-audit plan`: estimate the cost of an audit, before anything is trained."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.config.load import load_audit
from mia_audit.errors import UserError
from mia_audit.sanitise import console

if TYPE_CHECKING:
    from mia_audit.planning.estimate import Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("config", type=Path, help="the audit's YAML file")
    parser.add_argument(
        "--records-per-second",
        type=float,
        help="records per second of one forward and one backward pass on the machine for the audit (timed here if left out)",
    )
    parser.add_argument(
        "--pool",
        action="append",
        default=[],
        metavar="NAME=RECORDS,SHAPE,CLASSES",
        help="size of a pool that is not built yet, such as faces=20000,3x224x224,10",
    )
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="cores for the audit (those of this machine)")
    parser.add_argument("--checkout", type=Path, default=Path(), help="folder of the workflow and of its results (.)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> None:
    """Print models, jobs, hours, disk and memory, and the longest stage."""
    if options.records_per_second is not None and not 0 < options.records_per_second < float("inf"):
        raise UserError(f"--records-per-second: a positive number was expected, not {options.records_per_second:g}")
    if options.cores < 1:
        raise UserError(f"--cores: a positive number was expected, not {options.cores}")
    audit = load_audit(options.config)
    from mia_audit.planning.jobs import advice, count_jobs
    from mia_audit.planning.sizes import parse_size, size_of

    given = dict(parse_size(text, audit) for text in options.pool)
    results = options.checkout / "results" / audit.audit
    sizes = {name: size_of(audit, name, results, given) for name in audit.datasets}
    import torch

    from mia_audit.planning import packing
    from mia_audit.planning.costs import Costs
    from mia_audit.planning.estimate import estimate, models_of
    from mia_audit.runtime.device import device_for

    rate, wanted = options.records_per_second or 0.0, audit.compute.device
    here = "cpu" if rate or not torch.cuda.is_available() else wanted
    device = device_for(audit.compute.threads, here)
    models = models_of(audit, sizes)
    costs = Costs(audit.compute.micro_batch, device, rate)
    changes = {}
    if audit.compute.shadows_per_job == packing.AUTO:
        number = packing.kept(audit, results) or packing.models_per_job(audit, sizes, models, costs)
        changes["compute"] = audit.model_dump(mode="json", exclude_unset=True)["compute"] | {"shadows_per_job": number}
        audit = packing.with_number(audit, number)
    jobs = count_jobs(options.config, options.checkout, changes=changes)
    plan = estimate(audit, sizes, models, costs, jobs)
    source = f"{rate:g} records/s, as given" if rate else f"timed on this machine ({device})"
    found = _metadata(
        plan,
        jobs,
        source,
        device == "cuda" or wanted.startswith("cuda"),
        max(1, options.cores // audit.compute.threads),
    )
    if options.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        _print(plan, jobs, f"{audit.audit}: {source}", found, list(advice(plan, audit, jobs)))


def _metadata(plan: "Plan", jobs: dict[str, int], source: str, gpu: bool, slots: int) -> dict[str, Any]:
    """Return a plan as JSON; `slots` jobs run at a time, but one at a time on a GPU."""
    on_gpu = plan.on_gpu if gpu else 0.0
    return {
        "models": plan.models,
        "jobs": jobs,
        "costs": source,
        "hours": {stage: seconds / 3600 for stage, seconds in plan.seconds.items()},
        "total_hours": plan.total / 3600,
        "gpu_hours": on_gpu / 3600 if gpu else None,
        "wall_hours": (on_gpu + (plan.total - on_gpu) / slots) / 3600,
        "jobs_at_a_time": slots,
        "dominant": plan.dominant,
        "disk_bytes": plan.disk,
        "memory_bytes": plan.memory,
        "untimed": plan.untimed,
    }


def _print(plan: "Plan", jobs: dict[str, int], title: str, found: dict[str, Any], advice: list[str]) -> None:
    from rich.table import Table

    from mia_audit.planning.sizes import human

    display = console(sys.stdout)
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("stage", "hours", "share"):
        table.add_column(column, justify="left" if column == "stage" else "right")
    for stage, seconds in plan.seconds.items():
        table.add_row(stage, _hours(seconds), f"{seconds / plan.total:.0%}")
    table.add_row("all, on one process", _hours(plan.total), "", style="bold")
    display.print(table)
    rules = ", ".join(f"{count:,} {rule}" for rule, count in jobs.items())
    display.print(f"{plan.models:,} models; {sum(jobs.values()):,} jobs: {rules}", highlight=False)
    for what, sizes in (("disk", plan.disk), ("memory of a job", plan.memory)):
        parts = ", ".join(f"{kind} {human(size)}" for kind, size in sizes.items())
        whole = f"{human(sum(sizes.values()))}: " if what == "disk" else ""
        display.print(f"{what}: {whole}{parts}", highlight=False)
    wall, slots = _hours(3600 * found["wall_hours"]), found["jobs_at_a_time"]
    display.print(f"{plan.dominant} takes longest; with {slots} jobs at a time: about {wall}", highlight=False)
    if found["gpu_hours"] is not None:
        display.print(f"of which on a GPU: {_hours(3600 * found['gpu_hours'])}", highlight=False)
    if plan.untimed:
        display.print(f"not counted: {'; '.join(plan.untimed)}", highlight=False)
    for sentence in advice:
        display.print(sentence, highlight=False)


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f} h" if seconds >= 3600 else f"{seconds:,.0f} s"
