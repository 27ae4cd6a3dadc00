"""The model of an audit's YAML file, assembled from the sections of all packages, and the checks across sections.

config/schema.json and the key tables of config/README.md are generated from these models.
"""

from collections.abc import Mapping
from math import ceil
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PositiveInt, ValidationError, field_validator, model_validator

from mia_audit.attacks.catalogue import Attacks
from mia_audit.canaries.kinds import Canaries
from mia_audit.config.sections import Architecture, Target, Under
from mia_audit.errors import few, suggest
from mia_audit.evaluation.section import Evaluation
from mia_audit.explain.catalogue import Explainers, explainers
from mia_audit.explain.private_local.terms import PrivateExplanations
from mia_audit.explanation_metrics.catalogue import ExplanationMetrics
from mia_audit.learners.naming import BUILT_IN, described_as
from mia_audit.pools.section import Dataset, Membership, pools
from mia_audit.privacy import catalogue as privacy
from mia_audit.privacy.catalogue import Acknowledgement, Unit
from mia_audit.privacy.section import DATASET, Privacy
from mia_audit.report.spec import Report
from mia_audit.sections import (
    STATED,
    DataSetName,
    Epsilon,
    Epsilons,
    FilePath,
    Name,
    Probability,
    Section,
    known,
    stated_noise,
)
from mia_audit.training.section import Training, TrainingOverrides


class Mechanism(privacy.Mechanism):
    """How training protects its records, and the privacy budgets. The mechanism declares further keys."""

    epsilon: Epsilons = ()
    """Privacy budgets, one setting each. `none` has only inf; a mechanism with a stated `noise_multiplier` has no budget."""
    training: TrainingOverrides = TrainingOverrides()
    """Training keys that differ for this mechanism."""
    models: int | None = Field(None, ge=4)
    """Number of shadow models in each of the mechanism's settings, if fewer than membership.models; they have the training sets of the first ones."""

    @property
    def settings(self) -> tuple[str, ...]:
        """The values that name the mechanism's settings: its budgets, or its noise multiplier."""
        multiplier = (self.model_extra or {}).get("noise_multiplier")
        return self.epsilon or (stated_noise(multiplier) if multiplier else "inf",)


def _expanded(sections: Mapping[str, Architecture]) -> dict[str, Architecture]:
    """Return an architecture per combination of every section's sweep, by name; ValueError if two have the same name."""
    expanded: dict[str, Architecture] = {}
    for name, section in sections.items():
        for label, one in section.expanded(name).items():
            if label in expanded:
                raise ValueError(f"'{label}' is the name of a sweep's combination and of a section; rename the section")
            expanded[label] = one
    return expanded


class Imported(Section):
    """Models trained elsewhere, of which only the signals are available."""

    signals: FilePath
    """A signals.parquet, for example one that `mia-audit import` wrote."""
    epsilon: Epsilon = "inf"
    """The privacy budget of the models' training."""
    delta: Probability | None = None
    """δ of that budget."""

    @model_validator(mode="after")
    def _delta(self) -> Self:
        if (self.epsilon == "inf") != (self.delta is None):
            raise ValueError("a guarantee has an ε and a δ: give both epsilon and delta, or neither")
        return self


class Compute(Section):
    """How the work is divided into jobs; this affects results at most by rounding errors, and by other draws of dropout."""

    shadows_per_job: PositiveInt = 9
    """Shadow models trained by one job (a block)."""
    blocks_explained_per_job: PositiveInt = 1
    """Blocks of shadow models whose signals one job computes; every job takes some seconds to start."""
    threads: PositiveInt = 1
    """Threads of a job."""
    micro_batch: PositiveInt = 256
    """Records in memory at once, in training and when signals are computed, per-record gradients included."""
    memory_mb: PositiveInt | None = None
    """Memory in megabytes of the largest machine or node for jobs; read from this machine or from SLURM when left out."""
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    """`auto`: a GPU if the machine, or each node of the partition, has one; `cuda`: any free GPU, or an error; `cuda:N`: that GPU; `cpu`."""
    checkpoint_seconds: int = Field(60, ge=0)
    """Shortest time between two checkpoints of a model's training, from which a killed job resumes."""
    weights: Literal["keep", "temporary"] = "keep"
    """`temporary`: weights are deleted once a setting's signals are merged, except those of the first model and of compared explanations."""
    keep_going: bool = False
    """`true`: a model whose training diverges is left out, and listed in the report; otherwise it stops the audit."""


def _named(key: str) -> BeforeValidator:
    """In the sections of a mapping, set a missing key to the section's name."""

    def fill(sections: Any) -> Any:
        if not isinstance(sections, dict):
            return sections
        return {
            name: {**section, key: section.get(key) or name} if isinstance(section, dict) else section
            for name, section in sections.items()
        }

    return BeforeValidator(fill)


LEAST_EPSILON = 1e-3
"""Smallest privacy budget of training for which noise is calibrated."""

MOST_JOBS = 200_000
"""Largest number of blocks of shadow models over all settings: a larger number is probably a mistake, and takes hours to plan."""


class Audit(Section):
    """One audit: one YAML file, one folder of results."""

    audit: Name
    """Name of the audit: results go to results/{audit}."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of everything random."""
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...] = ()
    """Seeds, instead of `seed`: each repeats the whole audit in results/{audit}/seed-{seed}, and results/{audit} has the means over seeds."""
    datasets: Annotated[dict[DataSetName, Dataset], _named("source")] = Field({})
    """Data sets by name."""
    membership: Membership = Membership()
    """Membership design, shared by all settings of a data set."""
    architectures: Annotated[dict[Name, Architecture], _named("model")] = Field({})
    """Architectures by name."""
    training: Training = Training()
    """How shadow models are trained."""
    mechanisms: Annotated[dict[Name, Mechanism], _named("mechanism")] = Field({})
    """Mechanisms by name."""
    targets: dict[Name, Target] = Field({})
    """Finished models by name, attacked with shadow models of their own recipe as references."""
    imported: dict[DataSetName, Imported] = Field({})
    """Signals by name, attacked in addition to the models that are trained here, or instead of them."""
    explainers: Explainers = Explainers()
    """Explanations whose leakage is measured."""
    explanation_metrics: ExplanationMetrics = ExplanationMetrics()
    """Measures of the effect of privacy on explanations."""
    private_explanations: dict[Name, PrivateExplanations] = Field({})
    """Studies of private explanations, by data set."""
    attacks: Attacks = Attacks()
    """Attacks."""
    evaluation: Evaluation = Evaluation()
    """Evaluation."""
    canaries: Canaries = Canaries()
    """Canaries in one real training run."""
    report: Report = Report()
    """Report."""
    privacy: Privacy = Privacy()
    """Releases from the data sets, and their accounting."""
    compute: Compute = Compute()
    """Jobs."""

    @field_validator("architectures")
    @classmethod
    def _architectures(cls, value: dict[str, Architecture]) -> dict[str, Architecture]:
        return _expanded(value)

    def number_of_models(self, mechanism: str) -> int:
        """Return how many shadow models each setting of a mechanism has; all, for settings without one."""
        every = self.membership.models
        return min(self.mechanisms[mechanism].models or every, every) if mechanism in self.mechanisms else every

    @model_validator(mode="after")
    def _countable(self) -> Self:
        groups = sum(len(self.architectures_of(name)) for name in self.datasets)
        settings = groups * sum(max(1, len(one.epsilon)) for one in self.mechanisms.values())
        jobs = groups * sum(
            max(1, len(one.epsilon)) * ceil(self.number_of_models(name) / self.compute.shadows_per_job)
            for name, one in self.mechanisms.items()
        )
        jobs *= max(1, len(self.seeds))
        if jobs > MOST_JOBS:
            raise ValueError(
                f"{settings:,} settings of {self.membership.models:,} models (membership.models) give {jobs:,} blocks; expected at"
                f" most {MOST_JOBS:,}: use fewer settings or models, or a larger compute.shadows_per_job"
            )
        return self

    @model_validator(mode="after")
    def _repeated(self) -> Self:
        if self.seeds and "seed" in self.model_fields_set:
            raise ValueError("seed: given together with seeds; leave one of them out")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds: the same seed is given twice; leave one out")
        for key in ("imported", "targets") if self.seeds else ():
            if getattr(self, key):
                raise ValueError(f"seeds: models in {key} were trained once and cannot be repeated; give one seed")
        return self

    @model_validator(mode="after")
    def _complete(self) -> Self:
        sections = {"datasets": self.datasets, "architectures": self.architectures, "mechanisms": self.mechanisms}
        missing = [name for name, section in sections.items() if not section]
        studied = missing == ["architectures", "mechanisms"] and self.private_explanations
        if missing and not studied and (len(missing) < len(sections) or not self.imported):
            raise ValueError(
                f"missing key '{missing[0]}': an audit needs datasets, architectures and mechanisms, or imported signals,"
                " or a data set and private_explanations of it"
            )
        if twice := sorted(set(self.datasets) & set(self.imported)):
            raise ValueError(f"imported.{twice[0]}: a data set has the same name; choose another one")
        return self

    @model_validator(mode="after")
    def _studies(self) -> Self:
        for name, study in self.private_explanations.items():
            where = f"private_explanations.{name}"
            if name not in self.datasets:
                raise ValueError(f"{where}: unknown data set '{name}': {suggest(name, self.datasets)}")
            for architecture in study.architectures:
                if architecture not in self.architectures:
                    raise ValueError(
                        f"{where}.architectures: unknown architecture '{architecture}': {suggest(architecture, self.architectures)}"
                    )
            if not study.black_boxes and not study.architectures:
                raise ValueError(f"{where}: nothing to explain; name black_boxes or architectures")
        return self

    @model_validator(mode="after")
    def _epsilons(self) -> Self:
        for name, mechanism in self.mechanisms.items():
            where = f"mechanisms.{name}.epsilon"
            if not mechanism.kind.private:
                if mechanism.epsilon not in ((), ("inf",)):
                    raise ValueError(f"{where}: mechanism 'none' has no budget; leave epsilon out, or write inf")
            elif mechanism.settings[0].startswith(STATED):
                continue
            elif not mechanism.epsilon:
                raise ValueError(f"{where}: missing; list the privacy budgets, for example [8, 2]")
            elif (mechanism.model_extra or {}).get("noise_multiplier"):
                raise ValueError(f"mechanisms.{name}.noise_multiplier: given together with epsilon; leave one out")
            elif "inf" in mechanism.epsilon:
                raise ValueError(f"{where}: inf means training without privacy; use the mechanism 'none' for it")
            for epsilon in mechanism.epsilon:
                if float(epsilon) < LEAST_EPSILON:
                    raise ValueError(
                        f"{where}: {epsilon} is below {LEAST_EPSILON:g}, at which noise leaves nothing to learn, and calibration ends"
                    )
            if len(set(mechanism.epsilon)) < len(mechanism.epsilon):
                raise ValueError(f"{where}: the same ε is given twice; leave one out")
        return self

    @model_validator(mode="after")
    def _overrides(self) -> Self:
        for name, architecture in self.architectures.items():
            for mechanism, under in architecture.mechanisms.items():
                where = f"architectures.{name}.mechanisms"
                if not (section := self.mechanisms.get(mechanism)):
                    raise ValueError(f"{where}: unknown mechanism '{mechanism}': {suggest(mechanism, self.mechanisms)}")
                if odd := [epsilon for epsilon in under.epsilon if epsilon not in section.settings]:
                    known = few(section.settings)
                    raise ValueError(f"{where}.{mechanism}.epsilon: {odd[0]} is no value of the mechanism: {known}")
            for mechanism in self.budgets(name):
                try:
                    self.training_of(name, mechanism)
                except ValidationError as error:
                    message = error.errors()[0]["msg"].removeprefix("Value error, ")
                    raise ValueError(f"training of {name} under {mechanism}: {message}") from None
                floor = self.training_of(name, mechanism).floor
                for dataset in floor if isinstance(floor, dict) else ():
                    if dataset not in self.datasets:
                        raise ValueError(
                            f"training of {name} under {mechanism}: floor: unknown data set '{dataset}': {suggest(dataset, self.datasets)}"
                        )
        return self

    @model_validator(mode="after")
    def _targets(self) -> Self:
        for name, target in self.targets.items():
            where = f"targets.{name}"
            if name in self.architectures:
                raise ValueError(f"{where}: an architecture has the same name; choose another one")
            for key, names in (
                ("architecture", [*self.architectures]),
                ("dataset", [*self.datasets]),
                ("mechanism", [*self.mechanisms]),
            ):
                given = getattr(target, key)
                if given and given not in names:
                    raise ValueError(f"{where}.{key}: unknown {key} '{given}': {suggest(given, names)}")
            dataset, _, mechanism, epsilon = self.setting_of(name)
            if epsilon.startswith(STATED):
                raise ValueError(
                    f"{where}: a finished model claims an ε, but mechanisms.{mechanism} states noise_multiplier; state epsilon there instead"
                )
            if self.datasets[dataset].label_noise:
                raise ValueError(
                    f"{where}: the finished model was not trained on the wrong labels that datasets.{dataset}.label_noise adds; leave label_noise out"
                )
        return self

    def architectures_of(self, dataset: str) -> list[str]:
        """List the architectures that are trained on a data set, in the order of the config; a sweep is named by its section."""
        wanted = self.datasets[dataset].architectures
        return [
            name
            for name, one in self.architectures.items()
            if not wanted or name in wanted or (one.swept and one.swept.section in wanted)
        ]

    def setting_of(self, target: str) -> tuple[str, str, str, str]:
        """Return the dataset, architecture, mechanism and ε of a finished model's references; ValueError if they are ambiguous."""
        section, where = self.targets[target], f"targets.{target}"
        budgets = self.budgets(section.architecture)
        chosen = []
        trained = [name for name in self.datasets if section.architecture in self.architectures_of(name)]
        for key, names in (("dataset", trained), ("mechanism", [*budgets])):
            given = getattr(section, key) or (names[0] if len(names) == 1 else "")
            if given not in names:
                raise ValueError(f"{where}.{key}: name one of {few(names)}")
            chosen.append(given)
        dataset, mechanism = chosen
        epsilons = budgets[mechanism]
        epsilon = section.epsilon or (epsilons[0] if len(epsilons) == 1 else "")
        if epsilon not in epsilons:
            raise ValueError(f"{where}.epsilon: name one of {few(epsilons)}, with which shadow models are trained")
        return dataset, section.architecture, mechanism, epsilon

    @model_validator(mode="after")
    def _explained(self) -> Self:
        models = [(section.model, section.learner) for section in self.architectures.values()]
        named = "methods" in self.explainers.model_fields_set
        foreign = all(learner != BUILT_IN for _, learner in models)
        for name in self.explainers.methods if named or not foreign else ():
            if models and not any(explainers[name].explains(*model) for model in models):
                raise ValueError(
                    f"explainers.methods: {name} explains only {explainers[name].alone}, and the audit has no such architecture;"
                    " leave the explainer out" + (" (methods: [] means only outputs)" if foreign else "")
                )
        names = [name for name in self.explainers.methods if not explainers[name].needs_training_records]
        if self.explainers.probes and models and (foreign or not names):
            raise ValueError(
                "explainers.probes: only built-in models are queried again, on explanations that need no training records, and"
                " the audit has none; leave the key out"
            )
        return self

    @model_validator(mode="after")
    def _protected(self) -> Self:
        for architecture, section in self.architectures.items():
            learner = section.learner
            for name in self.budgets(architecture):
                kind, where = self.mechanisms[name].kind, f"mechanisms.{name}"
                if learner != BUILT_IN and kind.steps:
                    raise ValueError(
                        f"{where}: '{self.mechanisms[name].mechanism}' works only in the built-in loop, but architectures.{architecture} is trained"
                        f" by {described_as(learner)}: pass ε on to it (mechanism: own), or list the mechanisms for this"
                        " architecture (architectures.NAME.mechanisms)"
                    )
                if learner == BUILT_IN and kind.claimed:
                    raise ValueError(
                        f"{where}: 'own' leaves the guarantee to your own code, but architectures.{architecture} is trained by"
                        f" {described_as(learner)}: choose dp-sgd, or list the mechanisms for this architecture (architectures.NAME.mechanisms)"
                    )
                if learner == "estimator" and kind.claimed:
                    raise ValueError(
                        f"{where}: an estimator such as architectures.{architecture} receives no ε; write a script with a function"
                        " train(task), which reads task.epsilon"
                    )
        return self

    @model_validator(mode="after")
    def _canaries(self) -> Self:
        known = self._setting_names() if self.canaries.settings else {}
        for name in self.canaries.settings:
            if name not in known:
                raise ValueError(f"canaries.settings: no setting '{name}': {suggest(name, known)}")
            dataset, section = self.datasets[known[name][0]], self.mechanisms[known[name][1]]
            unit = section.read(Unit).unit or ("person" if dataset.by_person else "record")
            if Unit in section.kind.options and unit == "person":
                raise ValueError(
                    f"canaries.settings: '{name}' protects persons, but a canary is one record: choose a setting whose"
                    " mechanism has unit: record"
                )
        return self

    def _setting_names(self) -> dict[str, tuple[str, str]]:
        """Return the data set and the mechanism of every trained setting, by the setting's name."""
        return {
            f"{dataset}/{architecture}/{mechanism}-eps{epsilon}": (dataset, mechanism)
            for dataset in self.datasets
            for architecture in self.architectures
            for mechanism, budgets in self.budgets(architecture).items()
            for epsilon in budgets
        }

    def budgets(self, architecture: str) -> dict[str, tuple[str, ...]]:
        """Return the mechanisms under which an architecture is trained, each with its budgets."""
        return {
            name: tuple(e for e in section.settings if e in (under.epsilon or (e,)))
            for name, section in self.mechanisms.items()
            if (under := self._under(architecture, name))
        }

    def _under(self, architecture: str, mechanism: str) -> Under | None:
        """Return an architecture's keys for a mechanism; None if the architecture is not trained under it."""
        chosen = self.architectures[architecture].mechanisms
        return chosen.get(mechanism) if chosen else Under()

    def training_of(self, architecture: str, mechanism: str) -> Training:
        """Return the training section with the overrides of the mechanism, of the architecture, and of both together."""
        own = self.architectures[architecture]
        resolved = self.training.overridden(self.mechanisms[mechanism].training).overridden(own.training)
        return resolved.overridden((self._under(architecture, mechanism) or Under()).training)

    @model_validator(mode="after")
    def _guarantees(self) -> Self:
        for name, section in self.mechanisms.items():
            reason = section.kind.no_guarantee
            if reason and not section.read(Acknowledgement).acknowledge_no_guarantee:
                raise ValueError(
                    f"mechanisms.{name}.acknowledge_no_guarantee: '{section.mechanism}' guarantees nothing: {reason}. Set it to"
                    " true to train with this mechanism anyway, or choose another one"
                )
            nobody = [dataset for dataset, pool in self.datasets.items() if not pool.person]
            if section.by_person and nobody:
                raise ValueError(
                    f"mechanisms.{name}.unit: person requires the person of every record: set datasets.{nobody[0]}.person"
                )
            bare = [dataset for dataset, pool in self.datasets.items() if not pool.public]
            if section.kind.reads_public_records(section) and bare:
                raise ValueError(
                    f"mechanisms.{name}: '{section.mechanism}' reads public records, but datasets.{bare[0]}.public is 0;"
                    " set it, or change the mechanism's keys"
                )
        return self

    @model_validator(mode="after")
    def _trained_on(self) -> Self:
        known_names = [*self.architectures, *(one.swept.section for one in self.architectures.values() if one.swept)]
        for name, dataset in self.datasets.items():
            if odd := [one for one in dataset.architectures if one not in known_names]:
                raise ValueError(
                    f"datasets.{name}.architectures: unknown architecture '{odd[0]}': {suggest(odd[0], known_names)}"
                )
        return self

    @model_validator(mode="after")
    def _framed(self) -> Self:
        for name, dataset in self.datasets.items():
            built_in = [one for one in self.architectures_of(name) if self.architectures[one].learner == BUILT_IN]
            if dataset.frame and (built_in or name in self.private_explanations):
                reader = f"architectures.{built_in[0]}" if built_in else f"private_explanations.{name}"
                raise ValueError(
                    f"datasets.{name}.frame: {reader} reads arrays of numbers, and frames are for estimators and scripts: leave the key out,"
                    " or name the file in a second data set, and list the models of each one (datasets.NAME.architectures)"
                )
        return self

    @model_validator(mode="after")
    def _compared(self) -> Self:
        chosen, kinds = (
            self.report.compare,
            (self.datasets, self.architectures, self.mechanisms, self.explainers.released),
        )
        if unknown := [name for name in chosen if not any(name in kind for kind in kinds)]:
            every = [name for kind in kinds for name in kind]
            raise ValueError(
                f"report.compare: '{unknown[0]}' is no data set, architecture, mechanism or explainer of the audit: {suggest(unknown[0], every)}"
            )
        if chosen and len(set(chosen)) < max(2, len(chosen)):
            raise ValueError(f"report.compare: {few(chosen)}: name two or more of a kind, each once")
        if chosen and not any(all(name in kind for name in chosen) for kind in kinds):
            raise ValueError("report.compare: name either data sets, or architectures, or mechanisms, or explainers")
        return self

    @model_validator(mode="after")
    def _sources(self) -> Self:
        for name, dataset in self.datasets.items():
            try:
                known(pools, dataset.source)
            except ValueError as error:
                raise ValueError(f"datasets.{name}.source: {error}") from None
        return self

    @model_validator(mode="after")
    def _released(self) -> Self:
        if self.privacy.ledger and len(self.datasets) > 1 and DATASET not in self.privacy.ledger:
            raise ValueError(
                f"privacy.ledger: a ledger belongs to one data set, but the audit has {few(self.datasets)}: write {DATASET} into its path"
            )
        settings = self._setting_names() if self.privacy.planned else ()
        for planned in self.privacy.planned:
            if planned not in settings:
                raise ValueError(f"privacy.planned: unknown setting '{planned}': {suggest(planned, settings)}")
        return self

    @model_validator(mode="after")
    def _public(self) -> Self:
        for name, architecture in self.architectures.items():
            bare = [dataset for dataset, section in self.datasets.items() if not section.public]
            if architecture.pretrained == "public" and bare:
                raise ValueError(
                    f"architectures.{name}.pretrained: public needs public records, but datasets.{bare[0]}.public is 0"
                )
            adapted = [one for one in self.budgets(name) if self.training_of(name, one).trainable == "lora"]
            if architecture.pretrained == "none" and adapted:
                raise ValueError(
                    f"architectures.{name}.pretrained: none, but training.trainable of mechanism '{adapted[0]}' is lora, which"
                    " adapts a trained model: set it to public, hub or a file of weights"
                )
        return self
