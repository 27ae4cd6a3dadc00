import gc
from functools import cache
from pathlib import Path
from shlex import quote

from mia_audit.clock import bring_back
from mia_audit.config import settings as slices
from mia_audit.config.load import check_audit
from mia_audit.errors import UserError
from mia_audit.locks import release_stale_lock
from mia_audit.report.outputs import (
    PRIVATE_TABLES,
    figure_names,
    private_figure_names,
    table_names,
)
from mia_audit.slurm import cancel_jobs_of, put_first_on_path

# of a plan of thousands of jobs all objects stay: going through them again and again is a sixth of its time
gc.set_threshold(1_000_000, 50, 100)

try:
    AUDIT = check_audit(
        dict(config), ", ".join(map(str, workflow.configfiles)) or "config"
    )
except UserError as error:
    raise WorkflowError(str(error)) from None

if workflow.is_main_process:
    release_stale_lock(Path.cwd())
    put_first_on_path(
        Path(str(workflow.current_basedir)).parent / "profiles" / "slurm" / "bin"
    )

results = f"results/{AUDIT.audit}"
if workflow.is_main_process:
    bring_back(Path(results))
SETTINGS = slices.settings(AUDIT)
BLOCKS = slices.blocks(AUDIT)
EXPLAINED = slices.explained_blocks(AUDIT)
TRAINED = [setting for setting in SETTINGS if setting.trained]
FAMILIES = slices.families_of(AUDIT)
INTERPRETED = slices.interpreted(AUDIT)
MEASURED = slices.interpreted_blocks(AUDIT)
SIDE_BY_SIDE = [name for name in AUDIT.datasets if slices.side_by_side(AUDIT, name)]
FILTERED = [name for name in AUDIT.datasets if slices.with_filters(AUDIT, name)]
SHOWN = bool(AUDIT.interpretability.shown)
CURVED = slices.curved(AUDIT)
FIGURES = figure_names(
    slices.report_settings(AUDIT),
    bool(INTERPRETED),
    SHOWN,
    CURVED,
    slices.inherent(AUDIT),
)
TABLES = table_names(bool(INTERPRETED), CURVED)
MEASURES = expand("<results>/{group}/interpretability.parquet", group=INTERPRETED)
CURVES = expand("<results>/{group}/curves.parquet", group=INTERPRETED) if CURVED else []
MAPS = expand("<results>/{group}/explanations.parquet", group=INTERPRETED)

STUDIED = [
    (dataset, name)
    for dataset in AUDIT.private_explanations
    for name in slices.black_boxes_of(AUDIT, dataset)
]
ANSWERS = [
    f"<results>/{dataset}/private/{name}/answers.parquet" for dataset, name in STUDIED
]
STUDIES = (
    f"--private {quote(slices.private_report_slice(AUDIT))}" if STUDIED else ""
)  # quoting an empty value leaves nothing of it
ATTACKED = slices.attacks_private(AUDIT)
PRIVATE = [f"<results>/tables/{name}" for name in PRIVATE_TABLES if STUDIED] + [
    f"<results>/figures/{name}"
    for name in private_figure_names(slices.private_studies(AUDIT), ATTACKED)
]


def one_of(names):
    return "|".join(map(re.escape, sorted(set(names)))) or "(?!)"  # no name: no match


wildcard_constraints:
    architecture=one_of(setting.architecture for setting in SETTINGS),
    mechanism=one_of(setting.mechanism for setting in SETTINGS),
    eps=one_of(setting.epsilon for setting in SETTINGS),
    block=one_of([*BLOCKS, *EXPLAINED]),
    family=one_of(family for known in FAMILIES.values() for family in known),


# a setting has many jobs, each with the same slice
@cache
def training_spec(*setting):
    return slices.training_slice(AUDIT, slices.Setting(*setting))


@cache
def signals_spec(dataset, architecture, family):
    return slices.signals_slice(AUDIT, dataset, FAMILIES[architecture][family])


def public_weights(wildcards):
    name = slices.start_of(AUDIT, wildcards.architecture)
    return f"<architecture>/{name}" if name else []


def training_records(wildcards):
    read = FAMILIES[wildcards.architecture][wildcards.family]["explainers"]
    return "<pool>/membership.parquet" if slices.of_members(read) else []


def public_records(wildcards):
    reads = slices.reads_public_records(AUDIT, wildcards.mechanism)
    return ["<pool>/public.npy", "<pool>/public.parquet"] if reads else []


def below(settings, *names):
    return [
        f"<results>/{setting.path}/{name}" for setting in settings for name in names
    ]


def black_box_models(wildcards):
    setting = slices.explained_settings(AUDIT, wildcards.dataset).get(
        wildcards.black_box
    )
    if setting is None:
        return {}
    folder = f"<results>/{setting.dataset}/{setting.architecture}"
    return {
        "models": f"<results>/{setting.path}/models/{BLOCKS[0]}",
        "architecture": f"{folder}/architecture.json",
    }


def without_privacy(wildcards):
    models = slices.explained_settings(AUDIT, wildcards.dataset)
    mine = models.get(wildcards.black_box)
    for name, other in models.items():
        if mine and (other.architecture, other.epsilon) == (mine.architecture, "inf"):
            return f"<results>/{wildcards.dataset}/private/{name}/values.parquet"
    return []
