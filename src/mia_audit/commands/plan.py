"""`mia-audit plan`: estimate the cost of an audit, before anything is trained."""

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.config.load import load_audit
from mia_audit.errors import UserError
from mia_audit.sanitise import console

if TYPE_CHECKING:
    from mia_audit.planning.costs import Costs
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
    parser.add_argument("--checkout", type=Path, default=Path(), help="folder of the workflow and of its results (.)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> None:
    """Print models, jobs, hours, disk and memory, and the longest stage."""
    if options.records_per_second is not None and not 0 < options.records_per_second < float("inf"):
        raise UserError(f"--records-per-second: a positive number was expected, not {options.records_per_second:g}")
    audit = load_audit(options.config)
    from mia_audit.planning.jobs import advice, count_jobs
    from mia_audit.planning.sizes import parse_size, size_of

    given = dict(parse_size(text, audit) for text in options.pool)
    results = options.checkout / "results" / audit.audit
    sizes = {name: size_of(audit, name, results, given) for name in audit.datasets}
    from mia_audit.planning import packing
    from mia_audit.planning.attacks import attack_seconds, attacked
    from mia_audit.planning.costs import RateCosts
    from mia_audit.planning.estimate import estimate, models_of
    from mia_audit.planning.timing import Measured
    from mia_audit.runtime.device import device_for

    rate = options.records_per_second
    undecided = audit.compute.shadows_per_job == packing.AUTO
    counting = partial(count_jobs, options.config, options.checkout)
    counted = (
        None if undecided else ThreadPoolExecutor(1).submit(counting)
    )  # counting runs snakemake in a separate process
    device = device_for(audit.compute.threads, "cpu" if rate else audit.compute.device)
    models = models_of(audit, sizes)
    jobs = counted.result() if counted else {}
    with ProcessPoolExecutor(1, get_context("spawn")) as aside:  # attacks do not need PyTorch
        timed = aside.submit(attack_seconds, list(attacked(audit, sizes)), audit.evaluation.fprs)

        def attacks(*_: object) -> float:
            return timed.result()

        costs: Costs = RateCosts(rate, attacks) if rate else Measured(audit.compute.micro_batch, device, attacks)
        if undecided:
            number = packing.kept(audit, results) or packing.models_per_job(audit, sizes, models, costs)
            compute = audit.model_dump(mode="json", exclude_unset=True)["compute"] | {"shadows_per_job": number}
            audit = packing.with_number(audit, number)
            jobs = counting(changes={"compute": compute})
        plan = estimate(audit, sizes, models, costs, jobs)
    source = f"{rate:g} records/s, as given" if rate else f"timed on this machine ({device})"
    if options.json:
        print(json.dumps(_metadata(plan, jobs, source), indent=2, ensure_ascii=False))
    else:
        _print(plan, jobs, f"{audit.audit}: {source}", list(advice(plan, audit, jobs)))


def _metadata(plan: "Plan", jobs: dict[str, int], source: str) -> dict[str, Any]:
    return {
        "models": plan.models,
        "jobs": jobs,
        "costs": source,
        "hours": {stage: seconds / 3600 for stage, seconds in plan.seconds.items()},
        "total_hours": plan.total / 3600,
        "dominant": plan.dominant,
        "disk_bytes": plan.disk,
        "memory_bytes": plan.memory,
        "untimed": plan.untimed,
    }


def _print(plan: "Plan", jobs: dict[str, int], title: str, advice: list[str]) -> None:
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
    display.print(f"{plan.dominant} takes longest; n jobs at a time divide the hours by n", highlight=False)
    if plan.untimed:
        display.print(
            f"not timed, because they are not trained by the built-in loop: {', '.join(plan.untimed)}", highlight=False
        )
    for sentence in advice:
        display.print(sentence, highlight=False)


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f} h" if seconds >= 3600 else f"{seconds:,.0f} s"
