"""The settings of an audit, and for every rule the slice of the config that its output depends on, as JSON."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

from mia_audit.config.schema import Architecture, Audit, Mechanism
from mia_audit.explain import explainers
from mia_audit.explain.catalogue import PRIVATE_LOCAL
from mia_audit.explain.families import families, options_of
from mia_audit.interpretability import measures
from mia_audit.training.catalogue import OWN_KEYS, traits

NOT_BUILT = {"pretraining", "sweep", "training", "mechanisms"}
"""Keys of an architecture's section that do not say what its model is made of."""


EXPLAINED = "-explained"
"""Ends the name of a data set whose explanation sets are attacked, not the training sets of models."""
PROCESS_MEGABYTES, BYTES_PER_CELL = 400, 115
"""Memory of an attack: of the process, and per record × model (benchmarks/stage_memory.py)."""

UNKNOWN_MEGABYTES = 4000
"""Where the config does not say how many records there are: enough for 30 million cells."""


@dataclass(frozen=True)
class Setting:
    """Dataset × architecture × mechanism × ε."""

    dataset: str
    architecture: str
    mechanism: str
    epsilon: str
    trained: bool = True
    """False where the signals were imported."""

    @property
    def path(self) -> str:
        """The setting's folder below results/{audit}."""
        return f"{self.dataset}/{self.architecture}/{self.mechanism}-eps{self.epsilon}"


def settings(audit: Audit) -> list[Setting]:
    """List all settings, in the order of the config."""
    return list(_settings(audit))


def _settings(audit: Audit) -> Iterator[Setting]:
    for dataset in audit.datasets:
        for architecture in audit.architectures:
            for mechanism, budgets in audit.budgets(architecture).items():
                for epsilon in budgets:
                    yield Setting(dataset, architecture, mechanism, epsilon)
    for dataset, study in audit.private_explanations.items():
        for name in study.black_boxes if study.attacked else ():
            for epsilon in study.attacked:
                mechanism = "local-linear" if epsilon == "inf" else "private-local"
                yield Setting(f"{dataset}{EXPLAINED}", name, mechanism, epsilon, trained=False)
    for name, imported in audit.imported.items():
        yield Setting(name, "imported", "imported", imported.epsilon, trained=False)


def blocks(audit: Audit) -> list[str]:
    """Cut the shadow models 0 … K−1 into blocks of one job each, named first-last."""
    count, size = audit.membership.models, audit.compute.shadows_per_job
    width = max(3, len(str(count - 1)))
    starts = range(0, count, size)
    return [f"{first:0{width}d}-{min(first + size, count) - 1:0{width}d}" for first in starts]


def explained_blocks(audit: Audit) -> dict[str, list[str]]:
    """Group the blocks whose signals one job computes, by the group's name, first-last."""
    all_blocks, size = blocks(audit), audit.compute.blocks_explained_per_job
    groups = [all_blocks[start : start + size] for start in range(0, len(all_blocks), size)]
    return {f"{group[0].partition('-')[0]}-{group[-1].partition('-')[2]}": group for group in groups}


def resolved_mechanism(audit: Audit, name: str) -> Mechanism:
    """Return the mechanism's section with its registered name filled in and without its list of budgets and overrides."""
    section = audit.mechanisms[name]
    return Mechanism(**{**section.model_dump(exclude={"epsilon", "training"}), "mechanism": section.mechanism or name})


def mechanism_section(audit: Audit, name: str) -> dict[str, Any]:
    """Return the resolved section without the keys that the mechanism does not read, so that a new one retrains nothing."""
    section = resolved_mechanism(audit, name)
    return section.model_dump(exclude={"epsilon", "training"} | set(OWN_KEYS - traits(section.mechanism).keys))


def reads_public_records(audit: Audit, name: str) -> bool:
    """Whether a mechanism's training reads the pool's public records."""
    return mechanism_section(audit, name).get("importance") == "public"


def resolved_architecture(audit: Audit, name: str) -> Architecture:
    """Return the architecture's section with its model's name filled in."""
    section = audit.architectures[name]
    return section.model_copy(update={"model": section.model or name})


def families_of(audit: Audit) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the families of signals of every architecture that is trained, each family with its options."""
    return {name: families(audit.explainers, section.model or name) for name, section in audit.architectures.items()}


def of_members(names: Iterable[str]) -> bool:
    """Tell whether one of the explainers is fitted to the records that a model was trained on."""
    return any(explainers[name].of_members for name in names)


def cards_per_job(audit: Audit) -> int:
    """Return how many graphics cards a job that trains or explains asks Snakemake for."""
    return 1 if audit.compute.device.startswith("cuda") else 0


def attack_megabytes(audit: Audit, dataset: str) -> int:
    """Return what attacking or evaluating a setting takes at most: one signal of all its models, and the scores of one attack."""
    section = audit.datasets.get(dataset)
    if section is None or section.records is None:
        return UNKNOWN_MEGABYTES
    return PROCESS_MEGABYTES + ceil(section.records * audit.membership.models * BYTES_PER_CELL / 1e6)


def report_megabytes(audit: Audit) -> int:
    """Return what figures and report take at most: the scores of one attack on the largest setting."""
    return max(attack_megabytes(audit, dataset) for dataset in [*audit.datasets, *audit.imported])


def by_family(paths: Iterable[str], families: Iterable[str]) -> str:
    """Write the `--signals` arguments of `mia-audit gather`: the block files of one family after the other."""
    files = list(paths)
    groups = [[path for path in files if path.split("/")[-2] == family] for family in families]
    return " ".join(f"--signals {' '.join(group)}" for group in groups)


def to_json(value: Any) -> str:
    """Write a slice as one line of JSON, keys sorted."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def config_hash(audit: Audit) -> str:
    """Return the SHA-256 of the whole resolved config, without what no result depends on."""
    return hashlib.sha256(to_json(audit.model_dump(mode="json", exclude={"compute"})).encode()).hexdigest()


def pool_slice(audit: Audit, dataset: str) -> str:
    """What a pool depends on."""
    section = audit.datasets[dataset]
    given = section.model_dump(exclude_defaults=True) | {"pool": section.pool or dataset}
    return to_json({"seed": audit.seed, "name": dataset, "dataset": given})


def pool_files(audit: Audit, dataset: str) -> list[str]:
    """Return the files that a pool is read from, so that a change of them is seen; none for a folder of images, or where they are missing."""
    root = audit.datasets[dataset].root
    paths = [Path(root), Path(root, "records.npy"), Path(root, "labels.npy")] if root else []
    return [str(path) for path in paths if path.is_file()]


def membership_slice(audit: Audit, dataset: str) -> str:
    """What a membership matrix depends on."""
    return to_json(
        {"seed": audit.seed, "dataset": dataset, "membership": audit.membership.model_dump(exclude_none=True)}
    )


def architecture_slice(audit: Audit, architecture: str) -> str:
    """What a model's description depends on: what it is made of. All that is done with the model depends on it in turn."""
    return to_json({"name": architecture, "architecture": _built(audit, architecture)})


def trained_privately(audit: Audit, architecture: str) -> bool:
    """Tell whether a mechanism will want an architecture's per-record gradients; no description of it depends on that."""
    return any((audit.mechanisms[name].mechanism or name) != "none" for name in audit.budgets(architecture))


def weights_slice(audit: Audit, architecture: str) -> str:
    """What the weights that shadow models start from depend on, where they come from elsewhere."""
    section = _built(audit, architecture)
    return to_json({"name": architecture, "pretrained": audit.architectures[architecture].pretrained, "built": section})


def weights_file(audit: Audit, architecture: str) -> list[str]:
    """Return the file that weights are read from, so that a change of it is seen; none where it is missing, or there is none."""
    source = audit.architectures[architecture].pretrained
    return [source] if Path(source).is_file() else []


def start_of(audit: Audit, architecture: str) -> str:
    """Name the file of weights that shadow models start from; nothing where they start anew."""
    return {"none": "", "public": "public.safetensors"}.get(
        audit.architectures[architecture].pretrained, "start.safetensors"
    )


def _built(audit: Audit, architecture: str) -> dict[str, Any]:
    """What a model is made of, without what is left at its default."""
    return resolved_architecture(audit, architecture).model_dump(exclude=NOT_BUILT, exclude_defaults=True)


def pretraining_slice(audit: Audit, dataset: str, architecture: str) -> str:
    """What public pre-training depends on."""
    training = audit.architectures[architecture].pretraining.model_dump(exclude_none=True)
    named = {"seed": audit.seed, "dataset": dataset, "architecture": architecture}
    return to_json(named | {"built": _built(audit, architecture), "pretraining": training})


def training_slice(audit: Audit, setting: Setting) -> str:
    """What the training of a setting's shadow models depends on."""
    return to_json(
        {
            "seed": audit.seed,
            "dataset": setting.dataset,
            "architecture": setting.architecture,
            "built": _built(audit, setting.architecture),
            "mechanism": mechanism_section(audit, setting.mechanism),
            "mechanism_name": setting.mechanism,
            "epsilon": setting.epsilon,
            "training": audit.training_of(setting.architecture, setting.mechanism).model_dump(exclude_none=True),
        }
    )


def cost_slice(audit: Audit) -> str:
    """What the table of what a step took depends on: the settings that are trained, with their mechanisms' registered names."""
    named = [
        (one.dataset, one.architecture, one.mechanism, resolved_mechanism(audit, one.mechanism).mechanism, one.epsilon)
        for one in settings(audit)
        if one.trained
    ]
    return to_json({"settings": named})


def signals_slice(audit: Audit, dataset: str, options: dict[str, Any]) -> str:
    """What the signals of one family depend on, `options` being the family's own."""
    return to_json({"seed": audit.seed, "dataset": dataset, "options": options})


def interpreted(audit: Audit) -> dict[str, list[Setting]]:
    """Return the trained settings by the folder of their architecture, whose explanations are held against each other."""
    groups: dict[str, list[Setting]] = {}
    for setting in settings(audit) if audit.interpretability.records else ():
        if setting.trained:
            groups.setdefault(f"{setting.dataset}/{setting.architecture}", []).append(setting)
    return groups


def interpreted_models(audit: Audit) -> int:
    """Count the shadow models of every setting whose explanations are measured."""
    return min(audit.interpretability.models or audit.membership.models, audit.membership.models)


def interpreted_blocks(audit: Audit) -> list[str]:
    """List the blocks that hold those models."""
    return [block for block in blocks(audit) if int(block.partition("-")[0]) < interpreted_models(audit)]


def interpretability_slice(audit: Audit, group: str) -> str:
    """What measures of a group's explanations depend on: its settings, and the options of the explainers and measures wanted."""
    section, compared = audit.interpretability, interpreted(audit)[group]
    model = resolved_architecture(audit, compared[0].architecture).model
    wanted = dict.fromkeys(section.explainers or audit.explainers.methods)
    names = [name for name in wanted if explainers[name].explains(model) and not explainers[name].of_members]
    options = {option for name in section.measures for option in measures[name].options()}
    bare = (one for one in compared if resolved_mechanism(audit, one.mechanism).mechanism == "none")
    return to_json(
        {
            "seed": audit.seed,
            "dataset": compared[0].dataset,
            "settings": [(one.mechanism, one.epsilon) for one in compared],
            "reference": next(((one.mechanism, one.epsilon) for one in bare), None),
            "records": section.records,
            "models": interpreted_models(audit),
            "shown": section.shown,
            "explainers": names,
            "explaining": options_of(audit.explainers, names),
            "measures": section.measures,
            "measuring": section.model_dump(include=options),
        }
    )


def curved(audit: Audit) -> bool:
    """Tell whether curves are measured on explanations."""
    return bool(interpreted(audit)) and any(measures[name].curve for name in audit.interpretability.measures)


def with_filters(audit: Audit, dataset: str) -> dict[str, list[Setting]]:
    """Return the settings of a data set by architecture, where the config asks what a model's maps say of themselves."""
    explained = {
        name: of_model["llm"]["explainers"] for name, of_model in families_of(audit).items() if "llm" in of_model
    }
    groups: dict[str, list[Setting]] = {}
    for setting in settings(audit):
        if setting.dataset == dataset and setting.architecture in explained:
            groups.setdefault(setting.architecture, []).append(setting)
    return groups


def inherent(audit: Audit) -> list[str]:
    """List the data sets on which explanations that are the model itself are held against others; sweeps are left out."""
    explained = {
        name
        for name, of_model in families_of(audit).items()
        if audit.architectures[name].swept is None
        and any(explainers[one].models for options in of_model.values() for one in options["explainers"])
    }
    return list(dict.fromkeys(one.dataset for one in settings(audit) if one.trained and one.architecture in explained))


def side_by_side(audit: Audit, dataset: str) -> dict[str, list[Setting]]:
    """Return the settings by architecture, where several models explain the same records of a data set; sweeps are left out."""
    listed = [group for group in interpreted(audit).values() if group[0].dataset == dataset]
    groups = {
        group[0].architecture: group for group in listed if audit.architectures[group[0].architecture].swept is None
    }
    models = {audit.architectures[name].model or name for name in groups}
    return groups if audit.interpretability.shown and len(models) > 1 else {}


def side_by_side_slice(audit: Audit, dataset: str) -> str:
    """What the explanations of several architectures side by side depend on."""
    groups = side_by_side(audit, dataset).items()
    shown = {name: [[one.mechanism, one.epsilon, _heading(one)] for one in group] for name, group in groups}
    return to_json({"dataset": dataset, "architectures": shown})


def _heading(setting: Setting) -> str:
    return "no DP" if setting.epsilon == "inf" else f"{setting.mechanism}, ε = {setting.epsilon}"


def filters_slice(audit: Audit, dataset: str) -> str:
    """What the sheets of a data set's filters depend on."""
    headings = {
        name: [[_heading(one), one.path] for one in group] for name, group in with_filters(audit, dataset).items()
    }
    return to_json(
        {
            "seed": audit.seed,
            "dataset": dataset,
            "block": blocks(audit)[0],
            "top": audit.explainers.llm_top,
            "shown": audit.interpretability.shown,
            "architectures": headings,
        }
    )


def explained_settings(audit: Audit, dataset: str) -> dict[str, Setting]:
    """Return the settings whose first model a study of private explanations explains, by their name in file names."""
    wanted = audit.private_explanations[dataset].architectures
    return {
        f"{one.architecture}_{one.mechanism}-eps{one.epsilon}": one
        for one in settings(audit)
        if one.trained and one.dataset == dataset and one.architecture in wanted
    }


def black_boxes_of(audit: Audit, dataset: str) -> list[str]:
    """List the black boxes of a study by their names in file names, those made of the pool first."""
    return [*audit.private_explanations[dataset].black_boxes, *explained_settings(audit, dataset)]


def black_box_slice(audit: Audit, dataset: str, name: str) -> str:
    """What a black box's values depend on."""
    return to_json({"seed": audit.seed, "dataset": dataset, "black_box": name})


def private_slice(audit: Audit, dataset: str) -> str:
    """What the private explanations of a black box depend on."""
    section = audit.private_explanations[dataset].model_dump(
        mode="json", exclude={"black_boxes", "architectures", "pictures", "attacked"}
    )
    return to_json({"seed": audit.seed, "dataset": dataset, "study": section})


def explanation_signals_slice(audit: Audit, dataset: str, black_box: str, epsilon: str) -> str:
    """What signals of a fixed black box's explanations depend on."""
    terms = {"c", "delta", "kernel", "adjacency", "scale", "steps"}
    study = audit.private_explanations[dataset].model_dump(mode="json", include=terms)
    return to_json({"seed": audit.seed, "dataset": dataset, "black_box": black_box, "epsilon": epsilon, "study": study})


def private_studies(audit: Audit) -> dict[str, dict[str, Any]]:
    """Return what the tables and figures of every study depend on: its section, and the settings among its black boxes."""
    return {
        dataset: {
            "settings": [asdict(one) | {"name": name} for name, one in explained_settings(audit, dataset).items()],
            **study.model_dump(mode="json", exclude={"architectures"}),
        }
        for dataset, study in audit.private_explanations.items()
    }


def private_report_slice(audit: Audit) -> str:
    """What the tables and figures of private explanations depend on."""
    return to_json({"studies": private_studies(audit)})


def attacks_private(audit: Audit) -> bool:
    """Tell whether private local explanations of the trained models are attacked."""
    return bool(audit.architectures) and any(PRIVATE_LOCAL.fullmatch(name) for name in audit.explainers.methods)


def attacks_slice(audit: Audit, dataset: str) -> str:
    """What membership scores depend on."""
    return to_json({"seed": audit.seed, "dataset": dataset, "attacks": audit.attacks.model_dump()})


def evaluation_slice(audit: Audit) -> str:
    """What metrics depend on."""
    return to_json(audit.evaluation.model_dump())


def report_slice(audit: Audit) -> str:
    """What tables, figures and report depend on."""
    return to_json(
        {
            "audit": audit.audit,
            "title": audit.report.title or audit.audit,
            "exposed": audit.report.exposed,
            "settings": report_settings(audit),
            "variance": audit.attacks.variances[0],
            "interpreted": bool(interpreted(audit)),
            "shown": audit.interpretability.shown > 0,
            "curved": curved(audit),
            "inherent": inherent(audit),
            "evaluation": audit.evaluation.model_dump(),
            "explainers": audit.explainers.model_dump(),
            "config": audit.model_dump(mode="json", exclude={"compute"}),
            "config_hash": config_hash(audit),
        }
    )


def report_settings(audit: Audit) -> list[dict[str, Any]]:
    """Describe every setting as tables, figures and report want it: what its mechanism promises, and what its model is."""
    return [_report_setting(audit, setting) for setting in settings(audit)]


def _report_setting(audit: Audit, setting: Setting) -> dict[str, Any]:
    if setting.dataset.endswith(EXPLAINED) and not setting.trained:
        private = setting.epsilon != "inf"
        study = audit.private_explanations[setting.dataset.removesuffix(EXPLAINED)]
        explained = {"black_box": setting.architecture, "steps": study.steps, "adjacency": study.adjacency}
        promise = {"private": private, "delta": study.delta if private else None}
        return asdict(setting) | {"design": audit.membership.design, "explained": explained, **promise}
    if not setting.trained:
        delta = audit.imported[setting.dataset].delta
        return asdict(setting) | {"private": delta is not None, "delta": delta}
    mechanism = resolved_mechanism(audit, setting.mechanism)
    architecture = resolved_architecture(audit, setting.architecture)
    no_guarantee = traits(mechanism.mechanism).no_guarantee
    private = mechanism.mechanism != "none" and not no_guarantee
    return asdict(setting) | {
        "design": audit.membership.design,
        "private": private,
        "no_guarantee": no_guarantee,
        "delta": mechanism.delta if private else None,
        "accountant": mechanism.accountant if private else None,
        "clipping": mechanism.clipping if private else None,
        "model": architecture.model,
        "parameters": architecture.parameters,
        "swept": dict(architecture.swept.values) if architecture.swept else {},
    }
