from functools import cache
from pathlib import Path

from mia_audit.config import expand as audits
from mia_audit.config import specs
from mia_audit.config.load import check_audit, read_plain
from mia_audit.errors import UserError
from mia_audit.explain.black_boxes import OVERFITTED
from mia_audit.planning import requests
from mia_audit.report.figures.catalogue import figure_files
from mia_audit.report.over_seeds import over_seeds_files
from mia_audit.report.tables.catalogue import table_files
from mia_audit.runtime.machine import prepare
from mia_audit.sanitise import visible
from mia_audit.seeds import folder_of_seed, refuse_other_seeds

try:
    for path in workflow.configfiles:
        read_plain(Path(path))  # a repeated key is gone once Snakemake has read it
    AUDIT = check_audit(
        dict(config), ", ".join(map(str, workflow.configfiles)) or "config"
    )
    ROOT = Path("results", AUDIT.audit)
    # each seed's rules are those of an audit with this seed alone, in a folder of its own
    results = f"{ROOT}/{folder_of_seed('{seed}')}" if AUDIT.seeds else str(ROOT)
    refuse_other_seeds(ROOT, bool(AUDIT.seeds))
    REPORT = specs.ReportSpec.from_audit(AUDIT)
    MACHINE = prepare(workflow, AUDIT.compute.device, AUDIT.compute.memory_mb, ROOT)
except UserError as error:
    raise WorkflowError(visible(str(error))) from None

# without `seeds`, the only audit is named by an empty text
AUDITS = audits.by_seed(AUDIT)
REQUESTS = requests.Requests(AUDIT, MACHINE)
# what jobs read and are not run again for (micro-batch, checkpoints): a path among their parameters, which never changes;
# written when a run with jobs starts
RUN_FILE = f"{results}/specs/{requests.FILE}"

# evaluations wait until the jobs on which others depend have started; at equal priority, those with most input start first
BEFORE_EVALUATION = 1
# if weights are temporary, signals are computed before further models are trained
BEFORE_TRAINING = 50 if AUDIT.compute.weights == "temporary" else BEFORE_EVALUATION

SETTINGS = audits.settings(AUDIT)
TRAINED = [setting for setting in SETTINGS if setting.trained]
BLOCKS = {name: audits.blocks(AUDIT, name) for name in AUDIT.mechanisms}
EXPLAINED = {name: audits.explained_blocks(AUDIT, name) for name in AUDIT.mechanisms}
COMPARED = audits.compared_settings(AUDIT)

# folders that commands are given as parameters, which know no path variables
POOL = f"{results}/pools/{{dataset}}"
ARCHITECTURE = f"{results}/{{dataset}}/{{architecture}}"
SETTING = f"{ARCHITECTURE}/{{mechanism}}-eps{{eps}}"
# names of logs
OF_ARCHITECTURE = "{dataset}-{architecture}"
OF_SETTING = f"{OF_ARCHITECTURE}-{{mechanism}}-eps{{eps}}"


def folder(pattern):
    """Return a folder as a parameter: as a function, because Snakemake's linter takes text for a file that is read."""
    return lambda wildcards: pattern.format(**dict(wildcards.items()))


def logs(rule, name=""):
    """Return the files of a job's output and of the resources that it used (`--usage`).

    A stage measures itself, because Snakemake's `benchmark` sees neither the memory nor the processor time of the warm
    worker's children (runtime/warm.py). The table is a log and no output: deleting it runs nothing again.
    """
    path = f"{rule}/{name}" if name else rule
    return {
        "out": f"<results>/logs/{path}.log",
        "usage": f"<results>/benchmarks/{path}.tsv",
    }


def folder_of(seed):
    """Return the folder of a seed's results."""
    return results.format(seed=seed)


def of_every_seed(paths):
    """Return the paths of every seed's results."""
    return [
        path.replace("<results>", folder_of(seed)) for seed in AUDITS for path in paths
    ]


def spec(wildcards, of, *names):
    """Return the path of a stage's specification, and write the file unless this is a dry run."""
    return written(wildcards.get("seed", ""), of, *names)


@cache
def written(seed, of, *names):
    """Write the specification of a seed's stage, or without a seed that of all seeds together."""
    audit, place = (AUDIT, ROOT) if seed is None else (AUDITS[seed], folder_of(seed))
    stage, folder = of(audit, *names), Path(place, "specs")
    if workflow.dryrun:
        return str(stage.path(folder))
    from mia_audit.regular_files import private_folder  # planning needs no pyarrow

    private_folder(ROOT)  # the folder holds records and their membership
    return str(stage.write(folder))


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
    seed=one_of(map(str, AUDIT.seeds)),
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
