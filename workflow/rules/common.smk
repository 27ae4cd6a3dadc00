from dataclasses import asdict
from pathlib import Path

from mia_audit.config import settings as slices
from mia_audit.config.load import check_audit
from mia_audit.errors import UserError
from mia_audit.explain.families import families
from mia_audit.locks import release_stale_lock
from mia_audit.report.outputs import TABLE_NAMES, TABLES, figure_names

try:
    AUDIT = check_audit(
        dict(config), ", ".join(map(str, workflow.configfiles)) or "config"
    )
except UserError as error:
    raise WorkflowError(str(error)) from None

if workflow.is_main_process:
    release_stale_lock(Path.cwd())

results = f"results/{AUDIT.audit}"
SETTINGS = slices.settings(AUDIT)
BLOCKS = slices.blocks(AUDIT)
FAMILIES = families(AUDIT.explainers)
FIGURES = figure_names([asdict(setting) for setting in SETTINGS])


wildcard_constraints:
    dataset="|".join(map(re.escape, AUDIT.datasets)),
    architecture="|".join(map(re.escape, AUDIT.architectures)),
    mechanism="|".join(map(re.escape, AUDIT.mechanisms)),
    eps="|".join(sorted({re.escape(setting.epsilon) for setting in SETTINGS})),
    block="|".join(BLOCKS),
    family="|".join(map(re.escape, FAMILIES)),


def setting_of(wildcards):
    return slices.Setting(
        wildcards.dataset, wildcards.architecture, wildcards.mechanism, wildcards.eps
    )


def public_weights(wildcards):
    pretrained = AUDIT.architectures[wildcards.architecture].pretrained == "public"
    return "<architecture>/public.safetensors" if pretrained else []


def of_every_setting(name):
    return [f"<results>/{setting.path}/{name}" for setting in SETTINGS]
