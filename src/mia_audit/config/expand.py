"""Expand a config into settings, blocks of shadow models that one job trains, and groups of settings that are compared."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mia_audit.attacks.catalogue import attacks, split
from mia_audit.config.schema import Audit
from mia_audit.config.sections import Architecture
from mia_audit.explain import explainers
from mia_audit.explain.catalogue import EXPLANATION_SETS, private_epsilon
from mia_audit.explanation_metrics import measures
from mia_audit.pools.named_members import MEMBERS_COLUMN
from mia_audit.pools.section import Draw
from mia_audit.privacy.catalogue import Mechanism, Unit
from mia_audit.sections import STATED
from mia_audit.signals.families import families, methods_of


@dataclass(frozen=True)
class Setting:
    """Dataset × architecture × mechanism × ε."""

    dataset: str
    architecture: str
    mechanism: str
    epsilon: str
    trained: bool = True
    """False if no models are trained, as for finished models, imported signals, and explanation sets of a fixed black box."""

    @property
    def path(self) -> str:
        """The setting's folder below results/{audit}."""
        return f"{self.dataset}/{self.architecture}/{self.mechanism}-eps{self.epsilon}"

    @property
    def group(self) -> str:
        """The folder of the settings that differ only in their protection."""
        return f"{self.dataset}/{self.architecture}"

    @property
    def label(self) -> str:
        """The setting's protection, as printed in figures."""
        if self.epsilon.startswith(STATED):
            return f"{self.mechanism}, noise multiplier {self.epsilon.removeprefix(STATED)}"
        return "no DP" if self.epsilon == "inf" else f"{self.mechanism}, ε = {self.epsilon}"


def by_seed(audit: Audit) -> dict[str, Audit]:
    """Return the audit of every seed; one without `seeds` is named by an empty text."""
    alone = {str(seed): audit.model_copy(update={"seed": seed, "seeds": ()}) for seed in audit.seeds}
    return alone or {"": audit}


def config_of(config: Mapping[str, Any], audit: Audit) -> dict[str, Any]:
    """Return the config of an audit that `by_seed` returned, given the config with all seeds."""
    alone = {key: value for key, value in config.items() if key != "seeds"}
    return alone | {"seed": audit.seed} if "seeds" in config else alone


def last_rule(audit: Audit) -> str:
    """Return the rule that writes the answer of an audit."""
    return "over_seeds" if audit.seeds else "report"


def settings(audit: Audit) -> list[Setting]:
    """List all settings, in the order of the config."""
    return [*_trained(audit), *_targets(audit), *_explanation_sets(audit), *_imported(audit)]


def _trained(audit: Audit) -> Iterator[Setting]:
    for dataset in audit.datasets:
        for architecture in audit.architectures_of(dataset):
            yield from group_of(audit, dataset, architecture)


def _targets(audit: Audit) -> Iterator[Setting]:
    for name in audit.targets:
        dataset, _, mechanism, epsilon = audit.setting_of(name)
        yield Setting(dataset, name, mechanism, epsilon, trained=False)


def references(audit: Audit, target: str) -> Setting:
    """Return the setting whose shadow models are the references of a finished model."""
    return Setting(*audit.setting_of(target))


def target_files(audit: Audit, target: str) -> list[str]:
    """Return the files of a finished model, and the file that names its members, so that Snakemake notices their changes."""
    section = audit.targets[target]
    dataset = audit.datasets[references(audit, target).dataset]
    named = dataset.path if section.members.startswith(MEMBERS_COLUMN) else section.members
    return [section.model, named, *([dataset.path] if section.id and dataset.path else [])]


def group_of(audit: Audit, dataset: str, architecture: str) -> list[Setting]:
    """List the trained settings of an architecture on a data set, which differ in their protection only."""
    budgets = audit.budgets(architecture).items()
    return [Setting(dataset, architecture, mechanism, epsilon) for mechanism, listed in budgets for epsilon in listed]


def _explanation_sets(audit: Audit) -> Iterator[Setting]:
    for dataset, study in audit.private_explanations.items():
        for name in study.black_boxes:
            for epsilon in study.attacked:
                mechanism = "local-linear" if epsilon == "inf" else "private-local"
                yield Setting(f"{dataset}{EXPLANATION_SETS}", name, mechanism, epsilon, trained=False)


def _imported(audit: Audit) -> Iterator[Setting]:
    for name, section in audit.imported.items():
        yield Setting(name, "imported", "imported", section.epsilon, trained=False)


def draw_of(audit: Audit, dataset: str) -> Draw:
    """Return how a data set's training sets are drawn. The number of models does not affect this, and is left out."""
    unit: Any = {"unit": "person"} if audit.datasets[dataset].by_person else {}
    return Draw(**audit.membership.model_dump(exclude={"models"}, exclude_none=True), **unit)


def blocks(audit: Audit, mechanism: str = "") -> list[str]:
    """Divide a mechanism's shadow models 0 … K−1 into blocks that one job trains, each named first-last.

    If the number of models grows, only the last block changes, and new blocks follow. Without a mechanism, the blocks
    are those of settings with all models.
    """
    count, size = audit.number_of_models(mechanism), audit.compute.shadows_per_job
    starts = range(0, count, size)
    return [f"{first:03d}-{min(first + size, count) - 1:03d}" for first in starts]


def explained_blocks(audit: Audit, mechanism: str) -> dict[str, list[str]]:
    """Group a mechanism's blocks so that one job computes the signals of a group. Groups are named first-last."""
    all_blocks, size = blocks(audit, mechanism), audit.compute.blocks_explained_per_job
    groups = [all_blocks[start : start + size] for start in range(0, len(all_blocks), size)]
    return {f"{group[0].partition('-')[0]}-{group[-1].partition('-')[2]}": group for group in groups}


def resolved_mechanism(audit: Audit, name: str, dataset: str = "") -> Mechanism:
    """Return a mechanism's section without budgets and overrides. For a data set it includes the unit of the guarantee."""
    values = audit.mechanisms[name].model_dump(exclude={"epsilon", "training", "models"})
    if dataset and Unit in audit.mechanisms[name].kind.options:
        values["unit"] = values["unit"] or ("person" if audit.datasets[dataset].by_person else "record")
    return Mechanism(**values)


def trained_per_record(audit: Audit, architecture: str) -> bool:
    """Return whether any mechanism trains more than the architecture's classifier on per-record gradients."""
    return any(
        audit.mechanisms[name].kind.per_record and audit.training_of(architecture, name).trainable != "head"
        for name in audit.budgets(architecture)
    )


def resolved_architecture(audit: Audit, name: str) -> Architecture:
    """Return an architecture's section with its model's name filled in."""
    section = audit.architectures[name]
    return section.model_copy(update={"model": section.model or name})


def floor_of(audit: Audit, dataset: str, architecture: str, mechanism: str) -> float:
    """Return the test accuracy that a setting's first models must reach; 0 if there is no limit."""
    return audit.training_of(architecture, mechanism).floor_of(dataset)


def initial_weights(audit: Audit, architecture: str) -> str:
    """Return the name of the file of weights from which shadow models start; empty for random weights."""
    files = {"none": "", "public": "public.safetensors"}
    return files.get(audit.architectures[architecture].pretrained, "start.safetensors")


def weights_file(audit: Audit, architecture: str) -> list[str]:
    """Return the user's file of weights, if there is one, so that Snakemake notices its changes."""
    source = audit.architectures[architecture].pretrained
    return [source] if Path(source).is_file() else []


def group_files(audit: Audit, dataset: str) -> list[str]:
    """Return the user's files from which groups of a pool's records are read: the pool's, and separate arrays."""
    root = audit.datasets[dataset].path
    arrays = [Path(root, f"{name}.npy") for name in audit.datasets[dataset].edges_of_groups] if root else []
    return [*audit.datasets[dataset].files, *(str(path) for path in arrays if path.is_file())]


def grouped_settings(audit: Audit) -> list[Setting]:
    """List the settings whose results are sliced by groups of records."""
    grouped = {name for name, section in audit.datasets.items() if section.groups}
    return [one for one in settings(audit) if one.dataset in grouped]


def families_of(audit: Audit) -> dict[str, dict[str, dict[str, Any]]]:
    """Return every trained architecture's families of signals, each with its options; no vectors if no attack reads them."""
    read = any(attacks[split(method)[0]].vectors for method in audit.attacks.methods)
    explained = audit.explainers if read else audit.explainers.model_copy(update={"vectors": 0})
    return {
        name: families(explained, section.model or name, section.learner, audit.explanation_metrics)
        for name, section in audit.architectures.items()
    }


def compared_explainers(audit: Audit, architecture: str) -> list[str]:
    """Return the explainers that are measured on an architecture's models: all that support these models and need no training records."""
    section = audit.architectures[architecture]
    named = audit.explanation_metrics.explainers
    asked = audit.explainers.model_copy(update={"methods": named}) if named else audit.explainers
    if named:
        asked.model_fields_set.add("methods")
    return [
        name
        for name in methods_of(asked, section.model or architecture, section.learner)
        if not explainers[name].needs_training_records
    ]


def reads_public_records(audit: Audit, architecture: str, mechanism: str) -> bool:
    """Return whether training an architecture under a mechanism reads the pool's public records."""
    section, protection = audit.architectures[architecture], resolved_mechanism(audit, mechanism)
    return section.learner == "script" or protection.kind.reads_public_records(protection)


def needs_training_records(names: Iterable[str]) -> bool:
    """Return whether one of the explainers is fitted to the records that a model was trained on."""
    return any(explainers[name].needs_training_records for name in names)


def compared_settings(audit: Audit) -> dict[str, list[Setting]]:
    """Group the trained settings whose explanations are measured and compared, by the folder of their architecture."""
    groups: dict[str, list[Setting]] = {}
    for setting in _trained(audit) if audit.explanation_metrics.records else ():
        if compared_explainers(audit, setting.architecture):
            groups.setdefault(setting.group, []).append(setting)
    return groups


def compared_models(audit: Audit) -> int:
    """Return the number of shadow models per setting whose explanations are measured."""
    fewest = fewest_models(audit)
    return min(audit.explanation_metrics.models or fewest, fewest)


def fewest_models(audit: Audit) -> int:
    """Return the smallest number of models that a mechanism's settings have."""
    return min(map(audit.number_of_models, audit.mechanisms), default=audit.membership.models)


def kept_models(audit: Audit) -> int:
    """Return how many of a setting's first models keep their weights if weights are temporary: all that are compared, else one."""
    return compared_models(audit) if compared_settings(audit) else 1


def compared_blocks(audit: Audit, mechanism: str) -> list[str]:
    """List a mechanism's blocks that hold the models whose explanations are measured."""
    return [block for block in blocks(audit, mechanism) if int(block.partition("-")[0]) < compared_models(audit)]


def measures_curves(audit: Audit) -> bool:
    """Return whether curves (deletion, insertion) are measured on explanations."""
    curves = any(measures[name].curve for name in audit.explanation_metrics.measures)
    return curves and bool(compared_settings(audit))


def filter_settings(audit: Audit, dataset: str) -> dict[str, list[Setting]]:
    """Group a data set's settings by architecture, for architectures whose filters are drawn."""
    drawn = {name for name, of_model in families_of(audit).items() if "llm" in of_model}
    groups: dict[str, list[Setting]] = {}
    for setting in _trained(audit):
        if setting.dataset == dataset and setting.architecture in drawn:
            groups.setdefault(setting.architecture, []).append(setting)
    return groups


def intrinsic_datasets(audit: Audit) -> list[str]:
    """List the data sets on which intrinsic explanations are compared with post-hoc ones; sweeps are left out."""
    explained = {
        name
        for name, of_model in families_of(audit).items()
        if audit.architectures[name].swept is None
        and any(explainers[one].models for options in of_model.values() for one in options["explainers"])
    }
    return list(dict.fromkeys(one.dataset for one in _trained(audit) if one.architecture in explained))


def explained_settings(audit: Audit, dataset: str) -> dict[str, Setting]:
    """Return the settings whose first model is explained privately, by their name in file names."""
    chosen = audit.private_explanations[dataset].architectures
    return {
        f"{one.architecture}_{one.mechanism}-eps{one.epsilon}": one
        for one in _trained(audit)
        if one.dataset == dataset and one.architecture in chosen
    }


def black_boxes_of(audit: Audit, dataset: str) -> list[str]:
    """List a study's black boxes by their name in file names: first those fitted to the pool, then trained models."""
    return [*audit.private_explanations[dataset].black_boxes, *explained_settings(audit, dataset)]


def attacks_private_explainers(audit: Audit) -> bool:
    """Return whether private local explanations of the trained models are attacked."""
    return bool(audit.architectures) and any(map(private_epsilon, audit.explainers.methods))
