"""What an audit's YAML file may say: these models are the single source of config/schema.json and config/README.md."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from mia_audit.attacks import attacks
from mia_audit.errors import suggest
from mia_audit.explain import explainers
from mia_audit.explain.black_boxes import black_boxes
from mia_audit.explain.weights import kernels
from mia_audit.interpretability import measures
from mia_audit.pools import pools
from mia_audit.registry import Registry
from mia_audit.training.catalogue import OWN_KEYS, mechanisms, traits

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Section(BaseModel):
    """A mapping of the config; unknown keys are errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_by_name=True, serialize_by_alias=True
    )


def _known(registry: Registry[Any], name: str) -> str:
    if name not in registry:
        raise ValueError(f"unknown {registry.kind} '{name}': {suggest(name, registry)}")
    return name


def _epsilon(value: object) -> str:
    """Carry ε as the text that the user wrote."""
    text = str(value).strip().lower()
    try:
        number = math.nan if isinstance(value, bool) else float(text)
    except ValueError:
        number = math.nan
    if not number > 0:
        raise ValueError(f"an ε is a positive number or inf, got '{value}'")
    return "inf" if math.isinf(number) else text


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError(
            f"'{value}' names a folder: use letters, digits, '.', '_' and '-' and begin with a letter or digit"
        )
    return value


def _bounds(value: tuple[float, float]) -> tuple[float, float]:
    if not value[0] < value[1]:
        raise ValueError(f"the low bound comes first, and below the high one, got {value[0]:g} and {value[1]:g}")
    return value


Name = Annotated[str, AfterValidator(_name)]
Column = Annotated[str, BeforeValidator(str)]
"""Columns of arrays are numbers, and YAML does not make text of them."""
Bounds = Annotated[tuple[FiniteFloat, FiniteFloat], AfterValidator(_bounds)]
Epsilon = Annotated[
    str,
    BeforeValidator(_epsilon),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "inf"}]}),
]
Precision = Literal["float32", "tf32", "bf16"]
Probability = Annotated[float, Field(gt=0, lt=1)]
Factor = Annotated[float, Field(gt=0, le=1)]
Schedule = Literal["constant", "cosine", "step"]
Parameter = bool | int | float | str

DECAY: dict[str, Any] = {"decay": 0.8, "decay_epochs": 5}
"""Keys of a training section that belong to schedule step alone, with their defaults (Harder et al. 2020)."""


class Dataset(Section):
    """Where records come from, and how many of them are audited."""

    pool: str = ""
    """Registered pool; the data set's own name when left out."""
    root: str = ""
    """File or folder that the pool reads (docs/pools.md); relative to where the audit is started."""
    download: bool = False
    """Let torchvision fetch its data set into `root` where it is not there yet."""
    take: Literal["sample", "first"] = "sample"
    """Which records: drawn by the seed, or the first ones in the order of the data set (training before test images)."""
    size: PositiveInt | None = None
    """Images: the side in pixels that all are resized to; needed where they vary, else their own when left out."""
    convert: Literal["none", "rgb", "grey"] = "none"
    """Images in a folder: make all of them colour or grey-scale; without it they have to be of one kind."""
    label: str = "label"
    """Tables in a file: the column that holds the class."""
    records: PositiveInt | None = None
    """Audited records; all that remain when left out."""
    public: int = Field(0, ge=0)
    """Records set aside for public pre-training, disjoint from the audited ones."""
    label_noise: float = Field(0.0, ge=0, lt=1)
    """Share of audited records whose label is replaced by a wrong one."""
    standardise: Literal["none", "public", "stated", "private"] = "none"
    """Tables: centre and scale columns by the public records, by the `constants` stated here, or by moments of the audited records
    that are released under differential privacy; never by the audited records without noise."""
    constants: dict[Column, tuple[FiniteFloat, Annotated[FiniteFloat, Field(gt=0)]]] = {}
    """Tables: a column's centre and scale, known without looking at the records; columns left out stay as they are."""
    bounds: dict[Column, Bounds] = {}
    """`standardise: private`: low and high of every column of numbers, known without looking at the records; `"*"` stands for all
    others. Values beyond count as the nearer one. Columns of 0 and 1 need none, and then stay as they are."""
    standardise_epsilon: float | None = Field(None, gt=0, lt=200)
    """`standardise: private`: ε of all constants together, for the whole pool; what a mechanism spends comes on top (docs/privacy.md)."""
    standardise_delta: Probability = 1e-5
    """`standardise: private`: δ of that ε."""
    mean: float | tuple[float, ...] | None = None
    """Images: subtracted from pixels scaled to [0, 1], a number or one a channel; left out, what the model's own weights want, else 0.5."""
    sd: PositiveFloat | tuple[PositiveFloat, ...] | None = None
    """Images: divides the centred pixels; left out, what the model's own weights want, else 0.5."""

    @field_validator("pool")
    @classmethod
    def _pool(cls, value: str) -> str:
        return _known(pools, value) if value else value

    @model_validator(mode="after")
    def _standardise(self) -> Self:
        if self.standardise == "public" and not self.public:
            raise ValueError("standardise: public needs public records, but public is 0")
        if (self.standardise == "stated") != bool(self.constants):
            raise ValueError("standardise: stated goes with constants: give both, or neither")
        private, delta = self.standardise == "private", Dataset.model_fields["standardise_delta"].default
        given = {bool(self.bounds), self.standardise_epsilon is not None}
        if given != {private} or (self.standardise_delta != delta and not private):
            raise ValueError(
                "standardise: private goes with bounds and standardise_epsilon (and may have standardise_delta): give them all, or none"
            )
        return self


class Membership(Section):
    """Who is in whose training set."""

    design: Literal["half", "bernoulli", "split"] = "half"
    """`half`: every model trains on its own uniformly random half; `bernoulli`: a fair coin per record and model; `split`: a random `share`."""
    share: Probability | None = None
    """Share of the pool that a model trains on; for design split alone, 0.8 when left out."""
    models: int = Field(17, ge=4)
    """Shadow models per setting; each is the target once. At least 4."""

    @model_validator(mode="before")
    @classmethod
    def _default_share(cls, values: Any) -> Any:
        return {"share": 0.8} | values if isinstance(values, dict) and values.get("design") == "split" else values

    @model_validator(mode="after")
    def _share(self) -> Self:
        if (self.share is None) != (self.design != "split"):
            raise ValueError(f"share: belongs to design split, but design is {self.design}")
        return self


class Imported(Section):
    """Somebody else's models, of which only the signals are at hand."""

    signals: str
    """A signals.parquet, for example one that `mia-audit import` wrote."""
    epsilon: Epsilon = "inf"
    """The privacy budget that the models were trained with."""
    delta: Probability | None = None
    """δ of that budget."""

    @model_validator(mode="after")
    def _delta(self) -> Self:
        if (self.epsilon == "inf") != (self.delta is None):
            raise ValueError("an ε goes with a δ: give both epsilon and delta, or neither")
        return self


class Training(Section):
    """How one model is trained."""

    epochs: PositiveInt = 30
    """Passes over the training set (expected passes under Poisson sampling)."""
    batch: PositiveInt = 64
    """Records per step (expected records under Poisson sampling)."""
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    """Optimizer; `sgd` has momentum 0.9."""
    learning_rate: float = Field(1e-3, gt=0)
    """Peak learning rate."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled for adamw, L2 otherwise."""
    schedule: Schedule = "cosine"
    """`cosine` falls to zero over all steps, `step` by the factor `decay` every `decay_epochs` epochs."""
    decay: Probability | None = None
    """Factor of schedule step alone, 0.8 when left out."""
    decay_epochs: PositiveInt | None = None
    """Epochs between two falls of schedule step alone, 5 when left out."""
    train: Literal["all", "head", "bias"] = "all"
    """Parameters that are trained: all, the classifier alone, or the bias terms alone (BiTFiT); the rest keep their start."""
    precision: Precision | None = None
    """float32 when left out; `tf32` and `bf16` are faster on cards, bf16 with the classifier in float32."""

    @model_validator(mode="before")
    @classmethod
    def _default_decay(cls, values: Any) -> Any:
        return DECAY | values if isinstance(values, dict) and values.get("schedule") == "step" else values

    @model_validator(mode="after")
    def _decay(self) -> Self:
        for key in DECAY:
            if (getattr(self, key) is None) != (self.schedule != "step"):
                raise ValueError(f"{key}: belongs to schedule step, but schedule is {self.schedule}")
        return self

    def overridden(self, overrides: "TrainingOverrides") -> "Training":
        """Return the section with the overrides' keys; another schedule takes over nothing that belongs to step."""
        given = overrides.model_dump(exclude_none=True)
        gone = set(DECAY) if given.get("schedule", "step") != "step" else set()
        return Training(**(self.model_dump(exclude_none=True, exclude=gone) | given))


class TrainingOverrides(Section):
    """Keys of `training` that differ for one mechanism."""

    epochs: PositiveInt | None = None
    """Overrides training.epochs."""
    batch: PositiveInt | None = None
    """Overrides training.batch."""
    optimizer: Literal["adamw", "adam", "sgd"] | None = None
    """Overrides training.optimizer."""
    learning_rate: float | None = Field(None, gt=0)
    """Overrides training.learning_rate."""
    weight_decay: float | None = Field(None, ge=0)
    """Overrides training.weight_decay."""
    schedule: Schedule | None = None
    """Overrides training.schedule."""
    decay: Probability | None = None
    """Overrides training.decay."""
    decay_epochs: PositiveInt | None = None
    """Overrides training.decay_epochs."""
    train: Literal["all", "head", "bias"] | None = None
    """Overrides training.train."""
    precision: Precision | None = None
    """Overrides training.precision."""


class Under(Section):
    """An architecture under one of the audit's mechanisms."""

    epsilon: tuple[Epsilon, ...] = ()
    """Some of the mechanism's privacy budgets; all of them when left out."""
    training: TrainingOverrides = TrainingOverrides()
    """Training keys that differ for this architecture under this mechanism."""


@dataclass(frozen=True)
class Swept:
    """What an architecture of a sweep owes to it: the section's name, and the values of the swept parameters."""

    section: str
    values: Mapping[str, Parameter]


class Architecture(Section):
    """A model and what it starts from."""

    model: str = ""
    """`mlp`, or any timm model by name; the architecture's own name when left out."""
    parameters: dict[str, Parameter] = {}
    """Arguments of the model's constructor."""
    sweep: dict[str, Annotated[tuple[Parameter, ...], Field(min_length=1)]] = {}
    """Parameters that take several values: each combination becomes an architecture of its own, named `{name}-{key}{value}`."""
    pretrained: str = "none"
    """What shadows are fine-tuned from: `none`, `public` (trained once on the pool's public records), `hub` (the weights that timm
    publishes for the model) or a .safetensors or .pth file of weights."""
    pretraining: Training = Training()
    """How the public model is trained."""
    training: TrainingOverrides = TrainingOverrides()
    """Training keys that differ for this architecture."""
    mechanisms: dict[str, Under] = {}
    """Mechanisms that this architecture is trained under; all when left out."""
    _swept: Swept | None = PrivateAttr(None)

    @property
    def swept(self) -> Swept | None:
        """The sweep that the architecture came from, if any."""
        return self._swept

    @field_validator("pretrained")
    @classmethod
    def _pretrained(cls, value: str) -> str:
        if value not in ("none", "public", "hub") and not value.endswith((".safetensors", ".pth", ".pt", ".bin")):
            raise ValueError(
                f"none, public, hub, or a file that ends in .safetensors or .pth was expected, got '{value}'"
            )
        return value

    @model_validator(mode="after")
    def _sweep(self) -> Self:
        if twice := sorted(set(self.sweep) & set(self.parameters)):
            raise ValueError(f"sweep.{twice[0]}: parameters has it too; give it in one of them")
        return self

    def expanded(self, name: str) -> "dict[str, Architecture]":
        """Return an architecture per combination of the swept parameters, by name; itself where nothing is swept."""
        if not self.sweep:
            return {name: self}
        found = {}
        for values in product(*self.sweep.values()):
            chosen = dict(zip(self.sweep, values, strict=True))
            words = [
                f"{key}{str(value).lower() if isinstance(value, bool) else value}" for key, value in chosen.items()
            ]
            one = self.model_copy(
                update={"model": self.model or name, "parameters": self.parameters | chosen, "sweep": {}}
            )
            one._swept = Swept(name, chosen)
            if (label := _name("-".join([name, *words]))) in found:
                raise ValueError(f"{name}.sweep: '{label}' comes out of it twice; give every value once")
            found[label] = one
        return found


class Mechanism(Section):
    """How training protects its records."""

    mechanism: str = ""
    """Registered mechanism; its own name when left out."""
    epsilon: tuple[Epsilon, ...] = ()
    """Privacy budgets, one setting each; `none` has only inf."""
    delta: Probability = 1e-5
    """δ of every budget."""
    accountant: Literal["prv", "rdp"] = "prv"
    """Opacus accountant that calibrates the noise."""
    clipping: Literal["automatic", "flat"] = "automatic"
    """Per-record clipping: automatic (Bu et al. 2023) or flat at clip_norm."""
    clip_norm: float = Field(1.0, gt=0)
    """Clipping norm C of flat clipping."""
    factors: tuple[Factor, Factor, Factor] = (0.6, 0.8, 1.0)
    """`fadp`, `fadp-literal`: what noise is multiplied by on channels of high, moderate and low importance."""
    importance: Literal["public", "past"] = "public"
    """`fadp`: Grad-CAM's channel weights on the public records at the start, or the noisy gradients of the epoch before."""
    acknowledge_no_guarantee: bool = Field(False, alias="acknowledge-no-guarantee")
    """`fadp-literal`: true says that you know that it promises no privacy, whatever its ε is called."""
    training: TrainingOverrides = TrainingOverrides()
    """Training keys that differ for this mechanism."""

    @field_validator("mechanism")
    @classmethod
    def _mechanism(cls, value: str) -> str:
        return _known(mechanisms, value) if value else value


class Explainers(Section):
    """Which explanations of which quantity."""

    methods: tuple[str, ...] = ("ixg", "saliency", "ig", "gradient_shap")
    """Registered explainers."""
    explain: tuple[Literal["logit", "probability"], ...] = ("logit",)
    """Quantity explained: the logit of the class (Huang et al. 2024) or its softmax probability."""
    explained_class: Literal["predicted", "true"] = "predicted"
    """The class whose quantity is explained."""
    precision: Precision | None = None
    """float32 when left out; `tf32` and `bf16` are faster on cards, bf16 with the classifier in float32."""
    ig_nodes: PositiveInt = 25
    """Gauss–Legendre nodes of integrated gradients."""
    gradient_shap_samples: PositiveInt = 5
    """Samples of GradientSHAP."""
    gradient_shap_sd: float = Field(0.001, gt=0)
    """Standard deviation of GradientSHAP's normal baselines."""
    smoothgrad_samples: PositiveInt = 10
    """Noisy copies of a record whose gradients SmoothGrad averages."""
    smoothgrad_noise: float = Field(0.15, gt=0)
    """Their noise's standard deviation, as a share of the record's own range (largest minus smallest number)."""
    llm_top: PositiveInt = 3
    """Maps that llm-top shows, those with the largest shares."""
    local_kernel: str = "stable"
    """Weights of local linear explanations: a registered kernel."""
    local_steps: PositiveInt = 50
    """Noisy steps of an explanation by private_local."""
    local_delta: Probability = 1e-5
    """δ of every explanation by private_local."""

    @field_validator("local_kernel")
    @classmethod
    def _kernel(cls, value: str) -> str:
        return _known(kernels, value)

    @field_validator("methods")
    @classmethod
    def _methods(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_known(explainers, name) for name in value)

    @model_validator(mode="after")
    def _quantities(self) -> Self:
        for name in self.methods:
            explained = explainers[name].quantities
            if explained and not set(explained) & set(self.explain):
                raise ValueError(f"explain: {name} explains the {explained[0]} alone; add it, or leave {name} out")
        return self


class Interpretability(Section):
    """What is measured on explanations: how alike those of private and other models are, and how good they are."""

    records: int = Field(32, ge=0)
    """Records whose explanations are measured, drawn by the seed; 0 measures nothing."""
    models: PositiveInt | None = None
    """Shadow models of every setting that explain them, the first ones; all when left out."""
    explainers: tuple[str, ...] = ()
    """Explainers that are measured; those of `explainers.methods` when left out."""
    measures: tuple[str, ...] = ("ssim", "rank-correlation", "cosine", "top-overlap", "gini", "class-variability")
    """Registered measures; `infidelity`, `sensitivity`, `deletion` and `insertion` ask the model again and take longer."""
    shown: int = Field(4, ge=0)
    """How many of the records are drawn with their explanations in every setting."""
    top_share: Probability = 0.1
    """Share of a map's pixels or columns that are its top."""
    perturbations: PositiveInt = 10
    """Random changes of a record by which infidelity and sensitivity are judged."""
    removed_share: Probability = 0.1
    """Infidelity: the chance of a pixel or column to be removed by a change."""
    radius: float = Field(0.02, gt=0)
    """Sensitivity: the largest change of a number of the model's input."""
    curve_steps: PositiveInt = 10
    """Deletion and insertion: steps from the whole record to nothing."""

    @field_validator("explainers")
    @classmethod
    def _explainers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_known(explainers, name) for name in value)

    @field_validator("measures")
    @classmethod
    def _measures(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_known(measures, name) for name in value)


class PrivateExplanations(Section):
    """How records are explained privately, and how well: a study of black boxes on one data set (Patel et al. 2020)."""

    black_boxes: tuple[str, ...] = ("forest",)
    """Registered black boxes, made of the pool's records and labels."""
    architectures: tuple[str, ...] = ()
    """Architectures of this audit whose first shadow model is explained too, in every setting."""
    queries: PositiveInt = 300
    """Records that are explained, drawn by the seed; the history alone answers half as many more, of classes explained before."""
    epsilons: tuple[float, ...] = (0.1, 1.0, 10.0)
    """ε of one explanation, where losses are compared over ε."""
    epsilon: float = Field(1.0, gt=0)
    """ε of an explanation computed from scratch, where protocols are compared."""
    delta: Probability = 1e-6
    """δ of every ε."""
    steps: PositiveInt = 100
    """Noisy steps T of an explanation computed from scratch."""
    c: float = Field(1.0, gt=0)
    """Weight constant: no record moves the gradient by more than c/m."""
    kernel: str = "stable"
    """Registered kernel of the weights."""
    adjacency: Literal["zero-out", "replacement"] = "zero-out"
    """What is kept private: that a record is there, the number of records being public, or which one it is."""
    attacked: tuple[Epsilon, ...] = ()
    """ε of one explanation (inf: no noise) at which membership of the explanation set is attacked, the black box being the
    same for all sets: the sets are those of the audit's membership design."""
    scale: float | None = Field(None, gt=0)
    """Unit of distance, set without looking at the records; √n for n features (255√n for pixels) when left out."""
    pictures: int = Field(0, ge=0)
    """Images whose explanations are shown at every ε."""

    @field_validator("black_boxes")
    @classmethod
    def _black_boxes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_known(black_boxes, name) for name in value)

    @field_validator("kernel")
    @classmethod
    def _kernel(cls, value: str) -> str:
        return _known(kernels, value)

    @field_validator("epsilons")
    @classmethod
    def _positive(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        for epsilon in value:
            if not 0 < epsilon < math.inf:
                raise ValueError(f"an ε is a positive number, got {epsilon:g}")
        return value


class Attacks(Section):
    """Which membership scores."""

    methods: tuple[str, ...] = ("threshold", "loss-lira", "var-lrt", "l1-lrt", "l2-lrt", "linf-lrt")
    """Attack names; `attack:signal` or `attack:signal+signal` names the signals it reads."""
    variances: tuple[Literal["hierarchical", "pooled", "per-record", "shrunk"], ...] = ("hierarchical", "pooled")
    """Variances of the likelihood ratios; the first is the headline."""

    @field_validator("methods")
    @classmethod
    def _methods(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            _known(attacks, name.partition(":")[0])
        return value


class Evaluation(Section):
    """What is read off the scores."""

    fprs: tuple[float, ...] = (0.001, 0.01, 0.1)
    """False-positive rates, as fractions, at which TPR is printed; the tables say where the pool is too small for one."""
    confidence: Probability = 0.95
    """Level of all intervals."""

    @field_validator("fprs")
    @classmethod
    def _fprs(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        for fpr in value:
            if not 0 < fpr < 1:
                raise ValueError(f"{fpr:g} is not a fraction between 0 and 1: FPRs are fractions, 1 % is written 0.01")
        return value


class Report(Section):
    """What the report shows."""

    title: str = ""
    """Heading; the audit's name when left out."""
    exposed: int = Field(8, ge=0)
    """How many of the most exposed records are shown."""


class Compute(Section):
    """How the work is cut into jobs; results depend on it by rounding at most."""

    shadows_per_job: PositiveInt = 9
    """Shadow models trained by one job: a block."""
    blocks_explained_per_job: PositiveInt = 1
    """Blocks of shadow models whose signals one job computes; start-up takes some seconds a job."""
    threads: PositiveInt = 1
    """Threads of a job."""
    batch: PositiveInt = 256
    """Records in memory at once when signals are computed, per-record gradients included."""
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    """`auto`: a graphics card where there is one; `cuda`: any free card, and an error without; `cuda:N`: that card; `cpu`."""
    checkpoint_seconds: int = Field(60, ge=0)
    """Least time between two checkpoints of a model's training, which a killed job goes on from."""
    keep_going: bool = False
    """`true`: a model whose training diverges is left out, and the report says so; otherwise it stops the audit."""


class Audit(Section):
    """One audit: one YAML file, one folder of results."""

    audit: Name
    """Name of the audit: results go to results/{audit}."""
    seed: int = Field(0, ge=0)
    """Everything random is keyed by it."""
    datasets: dict[Name, Dataset] = {}
    """Data sets by name."""
    membership: Membership = Membership()
    """Membership design, shared by all settings of a data set."""
    architectures: dict[Name, Architecture] = {}
    """Architectures by name."""
    training: Training = Training()
    """How shadow models are trained."""
    mechanisms: dict[Name, Mechanism] = {}
    """Mechanisms by name."""
    imported: dict[Name, Imported] = {}
    """Signals by name that are attacked beside those of the models trained here, or instead."""
    explainers: Explainers = Explainers()
    """Explanations whose leakage is measured."""
    interpretability: Interpretability = Interpretability()
    """What privacy does to explanations."""
    private_explanations: dict[Name, PrivateExplanations] = {}
    """Studies of private explanations, by data set."""
    attacks: Attacks = Attacks()
    """Attacks."""
    evaluation: Evaluation = Evaluation()
    """Evaluation."""
    report: Report = Report()
    """Report."""
    compute: Compute = Compute()
    """Jobs."""

    @field_validator("architectures")
    @classmethod
    def _sweeps(cls, value: dict[str, Architecture]) -> dict[str, Architecture]:
        found: dict[str, Architecture] = {}
        for name, architecture in value.items():
            for label, one in architecture.expanded(name).items():
                if label in found:
                    raise ValueError(f"'{label}' comes out of a sweep and stands there too; choose another name")
                found[label] = one
        return found

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
            raise ValueError(f"imported.{twice[0]}: datasets has that name too; choose another one")
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
            if (mechanism.mechanism or name) == "none":
                if mechanism.epsilon not in ((), ("inf",)):
                    raise ValueError(
                        f"{where}: training without a mechanism has no budget; leave epsilon out, or write inf"
                    )
            elif not mechanism.epsilon:
                raise ValueError(f"{where}: missing; list the privacy budgets, for example [8, 2]")
            elif "inf" in mechanism.epsilon:
                raise ValueError(f"{where}: inf is training without privacy; add the mechanism 'none' for it")
            if len(set(mechanism.epsilon)) < len(mechanism.epsilon):
                raise ValueError(f"{where}: an ε stands there twice")
        return self

    @model_validator(mode="after")
    def _overrides(self) -> Self:
        for name, architecture in self.architectures.items():
            for mechanism, under in architecture.mechanisms.items():
                where = f"architectures.{name}.mechanisms"
                if mechanism not in self.mechanisms:
                    raise ValueError(f"{where}: unknown mechanism '{mechanism}': {suggest(mechanism, self.mechanisms)}")
                budgets = self.mechanisms[mechanism].epsilon or ("inf",)
                if odd := [epsilon for epsilon in under.epsilon if epsilon not in budgets]:
                    known = ", ".join(budgets)
                    raise ValueError(f"{where}.{mechanism}.epsilon: {odd[0]} is none of the mechanism's own: {known}")
            for mechanism in self.budgets(name):
                try:
                    self.training_of(name, mechanism)
                except ValidationError as error:
                    message = error.errors()[0]["msg"].removeprefix("Value error, ")
                    raise ValueError(f"training of {name} under {mechanism}: {message}") from None
        return self

    @model_validator(mode="after")
    def _explained(self) -> Self:
        models = [section.model or name for name, section in self.architectures.items()]
        for name in self.explainers.methods:
            if models and not any(explainers[name].explains(model) for model in models):
                alone = " and ".join(explainers[name].models)
                raise ValueError(f"explainers.methods: {name} explains {alone} alone, and no architecture is one")
        return self

    def budgets(self, architecture: str) -> dict[str, tuple[str, ...]]:
        """Return the mechanisms that an architecture is trained under, each with its budgets."""
        chosen = self.architectures[architecture].mechanisms or dict.fromkeys(self.mechanisms, Under())
        return {
            name: tuple(e for e in section.epsilon or ("inf",) if e in (chosen[name].epsilon or (e,)))
            for name, section in self.mechanisms.items()
            if name in chosen
        }

    def training_of(self, architecture: str, mechanism: str) -> Training:
        """Return the training section with the overrides of the mechanism, of the architecture, and of both together."""
        own = self.architectures[architecture]
        resolved = self.training.overridden(self.mechanisms[mechanism].training).overridden(own.training)
        return resolved.overridden(own.mechanisms.get(mechanism, Under()).training)

    @model_validator(mode="after")
    def _own_keys(self) -> Self:
        for name, section in self.mechanisms.items():
            known = traits(section.mechanism or name)
            fields = Mechanism.model_fields
            changed = {key for key in OWN_KEYS if getattr(section, key) != fields[key].default}
            for key in sorted(changed - known.keys):
                written = fields[key].alias or key
                readers = [mechanism for mechanism in mechanisms.names() if key in traits(mechanism).keys]
                raise ValueError(
                    f"mechanisms.{name}.{written}: '{section.mechanism or name}' does not read it; {' and '.join(readers)} would"
                )
            if known.no_guarantee and not section.acknowledge_no_guarantee:
                raise ValueError(
                    f"mechanisms.{name}.acknowledge-no-guarantee: '{section.mechanism or name}' guarantees nothing:"
                    f" {known.no_guarantee}. Write true there to train with it all the same, or choose 'fadp'"
                )
            bare = [dataset for dataset, section in self.datasets.items() if not section.public]
            if "importance" in known.keys and section.importance == "public" and bare:
                raise ValueError(
                    f"mechanisms.{name}.importance: public needs public records, but datasets.{bare[0]}.public is 0;"
                    " set it, or write importance: past"
                )
        return self

    @model_validator(mode="after")
    def _names(self) -> Self:
        for name, dataset in self.datasets.items():
            if not dataset.pool:
                _in_section(f"datasets.{name}.pool", pools, name)
        for name, mechanism in self.mechanisms.items():
            if not mechanism.mechanism:
                _in_section(f"mechanisms.{name}.mechanism", mechanisms, name)
        return self

    @model_validator(mode="after")
    def _public(self) -> Self:
        for name, architecture in self.architectures.items():
            bare = [dataset for dataset, section in self.datasets.items() if not section.public]
            if architecture.pretrained == "public" and bare:
                raise ValueError(
                    f"architectures.{name}.pretrained: public needs public records, but datasets.{bare[0]}.public is 0"
                )
        return self


def _in_section(where: str, registry: Registry[Any], name: str) -> None:
    try:
        _known(registry, name)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
