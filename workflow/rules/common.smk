import gc
from functools import cache
from pathlib import Path

from mia_audit.config import expand as audits
from mia_audit.config import report_specs, specs
from mia_audit.config.load import check_audit
from mia_audit.config.plain import read_plain
from mia_audit.errors import UserError
from mia_audit.host_memory import whole_memory
from mia_audit.planning import limits, packing, requests
from mia_audit.report.data.spec import parse_spec
from mia_audit.report.figures.catalogue import figure_files
from mia_audit.report.tables.catalogue import table_files
from mia_audit.runtime.gpus import usable_gpus
from mia_audit.runtime.locks import release_stale_lock
from mia_audit.runtime.mtimes import clamp_future_mtimes
from mia_audit.runtime.search_path import prepend_environment
from mia_audit.runtime.slurm import (
    EXECUTOR,
    cancel_jobs_of,
    node_memory,
    partition_has_gpus,
    put_first_on_path,
)
from mia_audit.sanitise import visible

# garbage collection would take a sixth of the time of planning thousands of jobs, and would free nothing, because all
# objects of a plan stay alive
gc.set_threshold(1_000_000, 50, 100)

try:
    for path in workflow.configfiles:
        read_plain(Path(path))  # a repeated key is gone once Snakemake has read it
    AUDIT = check_audit(
        dict(config), ", ".join(map(str, workflow.configfiles)) or "config"
    )
    results = f"results/{AUDIT.audit}"
    if AUDIT.compute.shadows_per_job == packing.AUTO:
        AUDIT = packing.packed(AUDIT, config, Path(results), not workflow.dryrun)
    REPORT = parse_spec(
        report_specs.ReportSpec.with_studies(AUDIT).model_dump(mode="json")
    )
except UserError as error:
    raise WorkflowError(visible(str(error))) from None

LIMITS = f"{results}/specs/{limits.FILE}"
prepend_environment()


@cache
def local_gpus():
    """Return the GPUs of this machine that jobs may use. The driver is queried once."""
    return usable_gpus(AUDIT.compute.device)


has_gpus = cache(partition_has_gpus)  # SLURM is queried once per partition

if workflow.is_main_process:
    try:
        release_stale_lock(Path.cwd())
    except UserError as error:
        raise WorkflowError(visible(str(error))) from None
    put_first_on_path(
        Path(str(workflow.current_basedir)).parent / "profiles" / "slurm" / "bin"
    )
    clamp_future_mtimes(Path(results))
    # no more local jobs start than there are GPUs, because a job that waits for a GPU would hold its cores
    local = workflow.resource_settings.nodes is None
    if local and "gpu" not in workflow.global_resources and local_gpus():
        workflow.register_resource("gpu", len(local_gpus()))

# evaluations wait until the jobs on which others depend have started; at equal priority, those with most input start first
BEFORE_EVALUATION = 1
# if weights are temporary, signals are computed before further models are trained
BEFORE_TRAINING = 50 if AUDIT.compute.weights == "temporary" else BEFORE_EVALUATION
# short jobs that finish a stage run before the long jobs of the next stage
SHORT = 60

SETTINGS = audits.settings(AUDIT)
TRAINED = [setting for setting in SETTINGS if setting.trained]
BLOCKS = {name: audits.blocks(AUDIT, name) for name in AUDIT.mechanisms}
EXPLAINED = {name: audits.explained_blocks(AUDIT, name) for name in AUDIT.mechanisms}
FAMILIES = audits.families_of(AUDIT)
COMPARED = audits.compared_settings(AUDIT)


@cache
def spec(of, *names):
    """Return the path of a stage's specification, and write the file unless this is a dry run."""
    folder = Path(results, "specs")
    stage = of(AUDIT, *names)
    if workflow.dryrun:
        return str(stage.path(folder))
    from mia_audit.regular_files import private_folder  # planning needs no pyarrow

    private_folder(Path(results))  # the folder holds records and their membership
    return str(stage.write(folder))


@cache
def memory_limit():
    """Return the largest memory of a job in megabytes, or None if unknown. The Snakemake inside a job does not query it."""
    if AUDIT.compute.memory_mb or workflow.dryrun or not workflow.is_main_process:
        return AUDIT.compute.memory_mb
    if workflow.executor_plugin and workflow.executor_plugin.name == EXECUTOR:
        return node_memory()
    return None if workflow.non_local_exec else whole_memory() // 10**6


def grown(megabytes):
    """Return the memory of a job as Snakemake asks for it: as much again for every further attempt, up to what there is."""
    return lambda wildcards, attempt: requests.grown(megabytes, attempt, memory_limit())


def attack_memory(wildcards, attempt):
    first = requests.attack_memory(AUDIT, wildcards.dataset)
    return requests.grown(first, attempt, memory_limit())


@cache
def gpus(rule):
    """Return how many GPUs a rule's job requests: one if the config, this machine or SLURM's partition provides one."""
    # inside a job, the value with which the job was submitted
    if not workflow.is_main_process:
        return min(1, workflow.global_resources.get("gpu").value or 0)
    if AUDIT.compute.device != "auto":
        return int(AUDIT.compute.device.startswith("cuda"))
    if workflow.executor_plugin and workflow.executor_plugin.name == EXECUTOR:
        return int(has_gpus(partition_of(rule)))
    return int(bool(local_gpus()))


def partition_of(rule):
    """Return SLURM's partition for a rule as the profile states it; empty for the default one."""
    settings = workflow.resource_settings
    for known in (settings.overwrite_resources.get(rule), settings.default_resources):
        if known and "slurm_partition" in known:
            return str(known["slurm_partition"].raw)
    return ""


def placed(rule):
    """Return the audit on the device of a rule's jobs."""
    return requests.on_gpu(AUDIT) if gpus(rule) else AUDIT


def compute_of(rule):
    """Return the config's section `compute` with the device of a rule's jobs."""
    return {
        **config.get("compute", {}),
        "device": placed(rule).compute.device,
    }


def model_job(rule, *memory):
    return requests.model_job(AUDIT, lambda wildcards: gpus(rule), *memory)


def files_of(settings, *names):
    return [
        f"<results>/{setting.path}/{name}" for setting in settings for name in names
    ]


def blocks_of(settings, chosen):
    """Return the stamps of the blocks that `chosen` returns for a mechanism, in all settings."""
    return [
        f"<results>/{setting.path}/models/.jobs/{block}"
        for setting in settings
        for block in chosen(setting.mechanism)
    ]


def one_of(names):
    # without names, nothing matches
    return "|".join(map(re.escape, sorted(set(names)))) or "(?!)"


wildcard_constraints:
    architecture=one_of(setting.architecture for setting in SETTINGS),
    mechanism=one_of(setting.mechanism for setting in SETTINGS),
    eps=one_of(setting.epsilon for setting in SETTINGS),
    target=one_of(AUDIT.targets),
    block=one_of(
        block
        for known in (BLOCKS, EXPLAINED)
        for each in known.values()
        for block in each
    ),
    family=one_of(family for known in FAMILIES.values() for family in known),
