"""Commands before an audit: write a config, check it, plan it and run it; the ε of a noise multiplier."""

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit import SNAKEFILE
from mia_audit.config.load import folder_of, in_folder_of, load_audit, read_plain
from mia_audit.errors import Mistakes, UserError, few
from mia_audit.host_memory import available_memory
from mia_audit.sanitise import announce, console

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.config.schema import Audit
    from mia_audit.planning.check import Checked
    from mia_audit.planning.first_config import Looked
    from mia_audit.planning.machine import CheckResult
    from mia_audit.planning.plan import Plan
    from mia_audit.planning.sizes import Size


def init_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="a table (.csv, .parquet, .xlsx), or a folder of images or arrays")
    parser.add_argument("--name", default="", help="name of the audit and of its file (the name of the data)")
    parser.add_argument("--label", default="", help="the table's column that holds the class")
    parser.add_argument(
        "--drop", nargs="*", action="extend", default=[], metavar="COLUMN", help="columns to leave out, such as ids"
    )
    parser.add_argument(
        "--keep",
        nargs="*",
        action="extend",
        default=[],
        metavar="COLUMN",
        help="columns to keep as features although they look like ids",
    )
    parser.add_argument("--person", default="", metavar="COLUMN", help="the table's column of every record's person")
    parser.add_argument(
        "--impute",
        nargs="*",
        action="extend",
        default=[],
        metavar="COLUMN=CONSTANT",
        help="the constant that replaces missing values of a column",
    )
    parser.add_argument(
        "--public",
        default="",
        metavar="FILE",
        help="a table of public records, which scale the columns of built-in models",
    )
    parser.add_argument("--model", default="", help="train.py, package.module:Class or any small built-in model")
    parser.add_argument(
        "--outputs", choices=["logits", "probabilities", "labels"], default="", help="what the script's predict returns"
    )
    parser.add_argument("--no-estimate", action="store_true", help="do not time the built-in models")


def run_init(options: argparse.Namespace) -> None:
    """Write NAME.yaml."""
    from mia_audit.planning.first_config import architecture_of, config_path, first_config, name_of
    from mia_audit.storage import write_text

    name = options.name or name_of(options.data)
    path = config_path(name, Path())
    given = vars(options).copy()
    try:
        looked = _look(options)
        architecture = architecture_of(looked, options.model, options.outputs)
        write_text(path, first_config(name, looked, architecture, public=options.public))
        audit = load_audit(path)
        checked = _checked(path, audit)
        if not options.no_estimate:
            write_text(path, first_config(name, looked, architecture, _estimate(audit, checked), options.public))
    except UserError as error:
        path.unlink(missing_ok=True)
        if vars(options) == given:
            raise
        raise UserError(f"{error}. With your answers: {_again(options)}") from None
    print(f"{path}: {looked.size}, {looked.classes} classes; next: mia-audit run {path}")


def _again(options: argparse.Namespace) -> str:
    """Return the command with the answers that were given at the terminal."""
    words = ["mia-audit", "init", str(options.data)]
    for key in ("name", "label", "person", "drop", "keep", "impute", "public", "model", "outputs"):
        values = getattr(options, key)
        if values:
            words += [f"--{key}", *([values] if isinstance(values, str) else values)]
    return shlex.join(words)


def _look(options: argparse.Namespace) -> "Looked":
    """Inspect the data; what is asked at the terminal is added to the options."""
    from mia_audit.planning.first_config import columns_of, label_of, look_at_folder, look_at_table

    if not options.data.exists():
        raise UserError(f"{options.data}: no such file or folder; expected a table, or a folder of images or arrays")
    announce(f"reading {options.data}")
    if options.data.is_dir():
        return look_at_folder(options.data)
    frame = columns_of(options.data)
    open_questions = list[str]()
    try:
        label = label_of(frame, options.label or _asked_label(frame.columns))
    except UserError as error:
        label, open_questions = "", [str(error)]
    if sys.stdin.isatty():
        options.label = label
    named = [*options.drop, *options.keep, *(_constant(text)[0] for text in options.impute)]
    if unknown := [name for name in [*named, options.person] if name and name not in frame.columns]:
        raise UserError(f"{options.data}: no column '{unknown[0]}'; it has {few(frame.columns)}")
    if len(frame) and (label or not sys.stdin.isatty()):
        open_questions += _ask_roles(frame, label, options)
    if open_questions:
        raise Mistakes(open_questions)
    said = dict.fromkeys(options.drop, "drop") | dict.fromkeys(options.keep, "feature")
    more = {"person": options.person, "impute": dict(_constant(text) for text in options.impute)}
    return look_at_table(options.data, frame, label, said, {key: value for key, value in more.items() if value})


def _ask_roles(frame: "pl.DataFrame", label: str, options: argparse.Namespace) -> list[str]:
    """Ask for the role of columns that look like identifiers or hold no words, and for constants; without a terminal, return the questions."""
    from mia_audit.pools.scaling import identifiers, no_words

    open_questions = []
    odd = identifiers(frame, {label, options.person, *options.drop, *options.keep})
    for column, why in odd.items():
        repeats = frame[column].n_unique() < len(frame)
        if sys.stdin.isatty():
            _ask_identifier(column, why, repeats and not options.person, options)
            continue
        person = f"--person {column} if it names the record's person"
        choices = [person, f"--drop {column}"] if repeats and not options.person else [f"--drop {column}", person]
        open_questions.append(
            f"column '{column}' looks like an identifier, by {why}: give {', '.join(choices)}, or --keep {column} to train on it"
        )
    done, filled = {label, options.person, *options.drop}, {_constant(text)[0] for text in options.impute}
    for series in frame:
        name, missing = series.name, series.null_count()
        if name in done:
            continue
        if name not in odd and (found := no_words(series)):
            held, correct = found
            if not sys.stdin.isatty():
                open_questions.append(f"column '{name}' holds {held}: {correct}, or give --drop {name}")
            elif input(f"Column '{name}' holds {held}. Drop it? [Y/n] ").strip().lower() not in ("n", "no"):
                _answer(options, "drop", name)
        elif missing and name not in filled and sys.stdin.isatty():
            answer = input(f"{missing} values are missing in '{name}'. A constant for them (Enter drops the column): ")
            _answer(options, *(("impute", f"{name}={answer.strip()}") if answer.strip() else ("drop", name)))
        elif missing and name not in filled:
            open_questions.append(
                f"column '{name}': {missing} values are missing: give --impute {name}=CONSTANT, or --drop {name}"
            )
    return open_questions


def _ask_identifier(column: str, why: str, person: bool, options: argparse.Namespace) -> None:
    """Ask for the role of a column; `person` proposes that it names the person of every record."""
    looks = f"Column '{column}' looks like an identifier, by {why}"
    if person:
        answer = input(
            f"{looks}, and repeats. If it names the person of every record, all records of a person are in a training set together."
            " Otherwise each counts as another person. Person, drop or keep as a feature? [P/d/k] "
        )
        if answer.strip().lower()[:1] in ("", "p", "y"):
            options.person = column
        else:
            _answer(options, "keep" if answer.strip().lower().startswith("k") else "drop", column)
        return
    answer = input(f"{looks}. Drop it? [Y/n] ")
    _answer(options, "keep" if answer.strip().lower() in ("n", "no") else "drop", column)


def _answer(options: argparse.Namespace, key: str, value: str) -> None:
    setattr(options, key, [*getattr(options, key), value])


def _constant(text: str) -> tuple[str, float | str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise UserError(f"--impute {text}: expected COLUMN=CONSTANT")
    try:
        return name, float(value)
    except ValueError:
        return name, value


def _asked_label(columns: list[str]) -> str:
    """Ask for the class column if the terminal is interactive and no column has a usual name."""
    from mia_audit.planning.first_config import LABELS

    if not sys.stdin.isatty() or any(name.lower() in LABELS for name in columns):
        return ""
    return input(f"Which column holds the class ({few(columns)})? ").strip()


def _estimate(audit: "Audit", checked: "Checked") -> str:
    """Return a sentence on the cost of an audit on this machine. For the user's own code it states only the number of models to train."""
    from mia_audit.learners.naming import BUILT_IN
    from mia_audit.planning.plan import estimate
    from mia_audit.planning.sizes import human

    if not any(model["learner"] == BUILT_IN for model in checked.models.values()):
        return f"The audit trains your model {audit.membership.models} times, and then queries each trained model on all records."
    from mia_audit.planning.costs import Costs
    from mia_audit.runtime.device import device_for

    announce("timing training on this machine (--no-estimate leaves it out)")
    device = device_for(audit.compute.threads, audit.compute.device)
    plan = estimate(audit, checked.sizes, checked.models, Costs(audit.compute.micro_batch, device), {})
    minutes = round(plan.total / 60)
    time = f"{minutes} minutes" if minutes > 1 else "a minute"
    return f"About {time} of one process on this machine, excluding start-up, and {human(sum(plan.disk.values()))} on disk."


def check_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, help="the audit's YAML file")
    parser.add_argument(
        "--with-code",
        action="store_true",
        help="also load the config's Python files, and try the models that they define on a few records",
    )


def run_check(options: argparse.Namespace) -> None:
    """Check a config, its data and models, and this machine; UserError with a line for every mistake."""
    with in_folder_of(options.config) as config:
        _check_config(config, options.with_code)


def _check_config(config: Path, with_code: bool) -> None:
    from mia_audit.config.load import check_audit, code_named, loads_code
    from mia_audit.planning.check import check, missing, try_code
    from mia_audit.registry import file_digest

    values = read_plain(config)
    code = code_named(values)
    if gone := [name for name in code if name.endswith(".py") and not Path(name).is_file()]:
        raise Mistakes(f"{config}: {missing(Path(name))}" for name in gone)
    for name in code:
        digest = file_digest(name)
        print(f"{config}: names code: {name}" + (f" (SHA-256 {digest})" if digest else ""))
    count = f"{len(code)} piece{'s' * (len(code) > 1)} of code, which will run with your permissions"
    if loads_code(values) and not with_code:
        print(
            f"{config}: plain YAML; it names {count}. Nothing else was checked, because that loads the code: read it, then"
            " give --with-code"
        )
        return
    announce(f"checking {config}, its data and its models")
    audit = check_audit(values, str(config))
    checked = check(audit)
    notes = try_code(checked, audit) if with_code and not checked.mistakes else []
    findings = list(_findings(audit, checked))
    failed = [f"{one.what}: {one.says}" for one in findings if one.verdict == "fail"]
    if checked.mistakes or failed:
        raise Mistakes(f"{config}: {one}" for one in [*checked.mistakes, *failed])
    for note in notes:
        print(f"{config}: warning: {note}")
    for one in findings:
        if one.verdict == "warn":
            print(f"{config}: warning: {one.what}: {one.says}")
    if code and not with_code:
        print(f"{config}: names {count}. Read the code, then try it on a few records with --with-code")
    exist = "its file or folder exists" if checked.files == 1 else f"its {checked.files} files and folders exist"
    print(f"{config}: plain YAML, follows the schema, and {exist if checked.files else 'names no file of data'}")


def _findings(audit: "Audit", checked: "Checked") -> "Iterator[CheckResult]":
    """Check this machine for an audit; disk and memory are those of its plan, where nothing is timed."""
    from mia_audit.planning import machine

    results = Path("results")
    yield from machine.file_system(results)
    profile = machine.slurm_profile(Path())
    yield from machine.slurm(machine.ask, shutil.which, profile)
    import torch

    wanted = audit.compute.device
    yield from machine.gpus(machine.ask, torch.version.cuda, machine.cannot_use_cuda, wanted, profile is not None)
    if checked.mistakes or set(checked.sizes) != set(audit.datasets):
        return
    from mia_audit.planning.plan import estimate

    plan = estimate(audit, checked.sizes, checked.models, None, {})
    yield machine.disk(results, sum(plan.disk.values()))
    stated = audit.compute.memory_mb
    available = stated * 10**6 if stated else available_memory()
    if plan.memory:  # an audit of imported signals alone trains nothing
        yield machine.memory(max(plan.memory.values()), available)


def _checked(config: Path, audit: "Audit", given: "Mapping[str, Size] | None" = None) -> "Checked":
    """Check an audit with its data and models; UserError with a line for every mistake.

    A plan runs the user's own sources and architectures, and has the sizes `given` for some pools.
    """
    from mia_audit.planning.check import check

    announce(f"checking {config}, its data and its models")
    checked = check(audit, given or {}, with_code=given is not None)
    if given is not None and any(".path: no such file" in one for one in checked.mistakes):
        checked.mistakes.append("--pool NAME=RECORDS,SHAPE,CLASSES states the size of data on another machine")
    if checked.mistakes:
        raise Mistakes(f"{config}: {one}" for one in checked.mistakes)
    return checked


def plan_arguments(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument("--gpus", type=int, default=1, help="GPUs for the audit, one a job (1)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_plan(options: argparse.Namespace) -> None:
    """Print models, jobs, hours, disk and memory, and the longest stage."""
    if options.records_per_second is not None and not 0 < options.records_per_second < float("inf"):
        raise UserError(f"--records-per-second: a positive number was expected, not {options.records_per_second:g}")
    for name in ("cores", "gpus"):
        if getattr(options, name) < 1:
            raise UserError(f"--{name}: a positive number was expected, not {getattr(options, name)}")
    with in_folder_of(options.config) as config:
        _plan_config(config, options)


def _plan_config(config: Path, options: argparse.Namespace) -> None:
    from mia_audit.planning.sizes import SOURCES, parse_size, selected
    from mia_audit.pools import pools

    audit = load_audit(config)
    given = {
        name: selected(SOURCES[one.source], one)  # published data need not be here
        for name, one in audit.datasets.items()
        if one.source in SOURCES and "path" in pools[one.source].keys
    }
    given |= dict(parse_size(text, audit) for text in options.pool)
    checked = _checked(config, audit, given)
    import torch

    from mia_audit.planning.costs import Costs
    from mia_audit.planning.plan import advice, count_jobs, estimate
    from mia_audit.runtime.device import device_for

    rate, wanted = options.records_per_second or 0.0, audit.compute.device
    here = "cpu" if rate or not torch.cuda.is_available() else wanted
    device = device_for(audit.compute.threads, here)
    announce("timing training, explanations and attacks on this machine, and counting jobs")
    costs = Costs(audit.compute.micro_batch, device, rate)
    jobs = count_jobs(config)
    plan = estimate(audit, checked.sizes, checked.models, costs, jobs)
    source = f"{rate:g} records/s, as given" if rate else f"timed on this machine ({device})"
    found = _metadata(
        plan,
        jobs,
        source,
        gpu=device == "cuda" or wanted.startswith("cuda"),
        slots=max(1, options.cores // audit.compute.threads),
        gpus=options.gpus,
    )
    if options.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        _print(plan, jobs, f"{audit.audit}: {source}", found, list(advice(plan, audit, jobs)))


def _metadata(plan: "Plan", jobs: dict[str, int], source: str, gpu: bool, slots: int, gpus: int) -> dict[str, Any]:
    """Return a plan as JSON; `slots` jobs run at a time, but one at a time on each GPU."""
    on_gpu = plan.on_gpu if gpu else 0.0
    return {
        "models": plan.models,
        "jobs": jobs,
        "costs": source,
        "hours": {stage: seconds / 3600 for stage, seconds in plan.seconds.items()},
        "total_hours": plan.total / 3600,
        "gpu_hours": on_gpu / 3600 if gpu else None,
        "wall_hours": (on_gpu / gpus + (plan.total - on_gpu) / slots) / 3600,
        "jobs_at_a_time": slots,
        "gpus": gpus if gpu else None,
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
    unit = next(one for one in TIMES if plan.total >= TIMES[one])
    for column in ("stage", unit, "share"):
        table.add_column(column, justify="left" if column == "stage" else "right")
    for stage, seconds in plan.seconds.items():
        table.add_row(stage, _time(seconds, unit), f"{seconds / plan.total:.0%}")
    table.add_row("all, on one process", _time(plan.total, unit), "", style="bold")
    display.print(table)
    rules = ", ".join(f"{count:,} {rule}" for rule, count in jobs.items())
    display.print(f"{plan.models:,} models; {sum(jobs.values()):,} jobs: {rules}", highlight=False)
    for what, sizes in (("disk", plan.disk), ("memory of a job", plan.memory)):
        parts = ", ".join(f"{kind} {human(size)}" for kind, size in sizes.items())
        whole = f"{human(sum(sizes.values()))}: " if what == "disk" else ""
        display.print(f"{what}: {whole}{parts}", highlight=False)
    wall, slots = _hours(3600 * found["wall_hours"]), found["jobs_at_a_time"]
    on_gpus = "" if found["gpus"] is None else f", one on each of {found['gpus']} GPUs"
    counted = "of what is counted, " if plan.untimed else ""
    display.print(
        f"{counted}{plan.dominant} takes longest; with {slots} job{'s' * (slots != 1)} at a time{on_gpus}: about {wall}",
        highlight=False,
    )
    if found["gpu_hours"] is not None:
        display.print(f"GPU time: {_hours(3600 * found['gpu_hours'])}", highlight=False)
    if plan.untimed:
        display.print(f"not counted: {'; '.join(plan.untimed)}", highlight=False)
    for sentence in advice:
        display.print(sentence, highlight=False)


TIMES = {"hours": 3600.0, "minutes": 60.0, "seconds": 0.0}
"""Units of time in which a plan is printed, each from this number of seconds on."""


def _time(seconds: float, unit: str) -> str:
    return f"{seconds / (TIMES[unit] or 1):,.{0 if unit == 'seconds' else 1}f}"


def _hours(seconds: float) -> str:
    unit = next(one for one in TIMES if seconds >= TIMES[one])
    return f"{_time(seconds, unit)} {unit}"


def run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, help="the audit's YAML file")
    parser.add_argument("--cores", help="processor cores (all, or on a cluster those of its jobs)")
    parser.add_argument("-n", "--dry-run", action="store_true", help="only print what would run")
    parser.add_argument("options", nargs="*", metavar="-- …", help="further options for snakemake, after --")


def run_run(options: argparse.Namespace) -> int:
    """Run snakemake on a valid config."""
    plan = ["--dry-run"] if options.dry_run else []
    return start(options.config, options.cores, [*plan, *options.options])


def start(config: Path, cores: str | int | None, options: list[str]) -> int:
    """Run the workflow on a config, in the folder of its audit, and return its exit code; UserError for a mistake in the config."""
    with in_folder_of(config) as path:
        _checked(path, load_audit(path))
        _check_profile(options)
        results = Path("results", str(read_plain(path)["audit"]))
        for folder in (Path(), Path("results"), results):
            if folder.exists() and not os.access(folder, os.W_OK):
                raise UserError(f"{folder.absolute()}: read-only, but results go there; copy the config elsewhere")
        _name_missing(results)
    # the logger comes first, because its option takes all arguments up to the next option, including targets
    words = ["--logger", "mia-audit", "--snakefile", SNAKEFILE, "--directory", folder_of(config)]
    words += ["--configfile", config.absolute(), *(["--cores", cores] if cores else []), *options]
    with _leaving_interrupts_to_the_workflow():
        # files beside the config are not imported in the place of packages, neither here nor in jobs (cli.main)
        command = [sys.executable, "-m", "snakemake", *map(str, words)]
        return subprocess.run(command, check=False, env=os.environ | {"PYTHONSAFEPATH": "1"}).returncode


def _name_missing(root: Path) -> None:
    """Name on stderr the deleted files of a finished audit that no run makes again, because all models would follow."""
    from mia_audit.storage.digests import MANIFEST, read_manifest

    listed: Collection[str] = ()
    with suppress(UserError):  # an audit that was not finished has no list, and a damaged one is written anew
        listed = read_manifest(root / MANIFEST)
    kept = [name for name in listed if name.startswith("pools/") or "/models/" in name]
    if gone := [name for name in kept if not (root / name).exists()]:
        print(
            f"mia-audit: {root}: records and models are missing since the audit was finished: {few(gone)}; they are made again only"
            " by an audit of another name",
            file=sys.stderr,
        )


def _check_profile(options: list[str]) -> None:
    """Raise UserError if SLURM lacks a partition or an account that the run's workflow profile names."""
    from mia_audit.planning import machine

    given = [value for option, value in pairwise(options) if option == "--workflow-profile"]
    given += [one.partition("=")[2] for one in options if one.startswith("--workflow-profile=")]
    for profile in (Path(one, "config.yaml") for one in given):
        if profile.is_file():
            wrong = [one.says for one in machine.slurm(machine.ask, shutil.which, profile) if one.verdict == "fail"]
            if wrong:
                raise Mistakes(wrong)


@contextmanager
def _leaving_interrupts_to_the_workflow() -> Iterator[None]:
    """Let the workflow alone end on Ctrl-C, which cancels its jobs and says so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # a function, because a process that is started inherits signals that are ignored
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


BOTH = ("pld", "rdp")
"""Accountants used if none is named: the default of mechanisms first."""


def epsilon_arguments(parser: argparse.ArgumentParser) -> None:
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--noise-multiplier", type=float, help="noise on the sum, in units of its sensitivity")
    given.add_argument("--target-epsilon", type=float, help="ε to reach")
    parser.add_argument("--batch", type=int, required=True, help="expected number of records per step")
    parser.add_argument("--records", type=int, required=True, help="training set of one model (not the whole pool)")
    parser.add_argument("--epochs", type=int, required=True, help="expected passes over the training set")
    parser.add_argument("--delta", type=float, required=True, help="δ of the budget")
    parser.add_argument(
        "--accountant", action="append", choices=["pld", "prv", "rdp"], help="accountant; may be repeated (pld and rdp)"
    )


def run_epsilon(options: argparse.Namespace) -> None:
    """Print the terms, and ε or the noise multiplier by every accountant."""
    _check(options)
    from mia_audit.privacy.accounting import epsilon_spent, noise_multiplier_for, steps_per_epoch
    from mia_audit.report.formatting import at_most

    rate = options.batch / options.records
    steps = options.epochs * steps_per_epoch(options.records, options.batch)
    print(f"{options.records:,} records, batch {options.batch:,}: Poisson sampling at rate {rate:.6g}, {steps:,} steps")
    print(f"δ = {options.delta:g}, unit: one record, adjacency: added or removed")
    if options.delta >= 1 / options.records:
        print(f"warning: δ is not below 1/records = {1 / options.records:.3g}: one record may be revealed in full")
    print(f"{'accountant':<12}{'noise multiplier':<18}ε")
    for accountant in options.accountant or BOTH:
        multiplier, shown = options.noise_multiplier, str(options.noise_multiplier)
        if multiplier is None:
            try:
                multiplier = noise_multiplier_for(options.target_epsilon, rate, steps, options.delta, accountant)
            except UserError:
                if options.accountant or accountant == BOTH[0]:
                    raise
                print(f"{accountant:<12}{'none':<18}cannot certify an ε this small at this δ")
                continue
            shown = at_most(multiplier, 6)
        epsilon = epsilon_spent(multiplier, rate, steps, options.delta, accountant)
        print(f"{accountant:<12}{shown:<18}{at_most(epsilon, 4)}")


def _check(options: argparse.Namespace) -> None:
    for name in ("batch", "records", "epochs", "noise_multiplier", "target_epsilon"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"--{name.replace('_', '-')}: a positive number was expected, not {value:g}")
    if not 0 < options.delta < 1:
        raise UserError(f"--delta: a number between 0 and 1 was expected, not {options.delta:g}")
    if options.batch > options.records:
        raise UserError(f"--batch: {options.batch} records per step, but there are only {options.records}")
