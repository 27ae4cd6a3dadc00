"""What tables, figures and page depend on besides files: settings, options, gaps, the config's section, and policies.

Imports nothing heavy, because the workflow uses it to compute the names of an audit's outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, FiniteFloat, StringConstraints, field_validator, model_validator

from mia_audit.explain.catalogue import EXPLANATION_SETS, private_epsilon
from mia_audit.explain.release import FULL
from mia_audit.sections import STATED, Epsilon, FilePath, Name, Probability, Section

Inches = Annotated[str, StringConstraints(pattern=r"^[2-6](\.\d+)?in$")]
Colour = Annotated[str, StringConstraints(pattern=r"^#[0-9A-Fa-f]{6}$")]
Label = Annotated[str, StringConstraints(min_length=1, max_length=60, strip_whitespace=True, pattern=r"^[^\r\n]+$")]


class Figures(Section):
    """The style of figures and printed tables, and the file formats of figures."""

    column: Inches = "3.4in"
    """Width of a paper's column, 2in to 6.9in; figures across the page scale with it."""
    font: str = ""
    """Name of a font that is installed; matplotlib's own when left out."""
    font_size: float = Field(7.5, ge=4, le=20)
    """Size of axis labels in points; smaller texts scale with it."""
    height: float = Field(1.0, ge=0.3, le=3)
    """Height of figures, relative to the standard one."""
    colours: dict[str, Colour] = Field({})
    """Colours (`#0072B2`) by mechanism (`none`), by mechanism and ε (`dp-sgd-eps8`), or by explainer (`ixg`)."""
    names: dict[str, Label] = Field({})
    """Names of explainers in figures (`ixg: gradient × input`); settings are named by `report.labels`."""
    formats: tuple[Literal["pdf", "svg", "png"], ...] = Field(("pdf", "svg", "png"), min_length=1)
    """File formats of every figure, besides its data (CSV)."""
    omit: tuple[
        Literal[
            "Data set", "Architecture", "Mechanism", "ε", "Attack", "Signal", "Likelihood", "Accuracy", "AUC", "TPR"
        ],
        ...,
    ] = ()
    """Columns that printed tables (`.tex`) leave out, by the start of their titles or headings."""


Margin = Annotated[float, Field(gt=0, lt=1)]


class Labels(Section):
    """Labels of settings, data sets and architectures in titles, legends, printed tables and sentences.

    Files, CSV tables and the config in the report keep the config's names.
    """

    datasets: dict[str, Label] = Field({})
    """Labels of data sets, by name."""
    architectures: dict[str, Label] = Field({})
    """Labels of architectures, by name; a sweep needs the name of each of its models."""
    settings: dict[str, Label] = Field({})
    """Labels by mechanism, to which ε is added (`dp-sgd: DP-SGD`), or by mechanism and ε (`dp-sgd-eps8: our method`); sentences say *with LABEL*."""


class Report(Section):
    """The content of the report."""

    title: str = ""
    """Heading; the audit's name when left out."""
    exposed: int = Field(8, ge=0)
    """Number of most exposed records that are shown."""
    figures: Figures = Figures()
    labels: Labels = Labels()
    margins: dict[str, Margin] = Field({})
    """For each metric (`test_accuracy`, `auc`, or a measure of explanations such as `ssim`), the largest irrelevant
    difference between two mechanisms at the same ε: two one-sided tests, at level 1 − evaluation.confidence each,
    decide whether the mechanisms are equivalent.
    """
    compare: tuple[str, ...] = ()
    """Data sets, architectures, mechanisms or explainers that are compared pairwise, with intervals that hold together (`tables/comparisons`)."""
    show_records: bool = True
    """With `false` the page contains no record, neither the most exposed ones nor maps of explanations, and can be passed on."""
    policy: FilePath = ""
    """Policy that the report evaluates, like `mia-audit gate`: a YAML file; relative to the folder of the audit."""
    paper: Literal["", "huang2024", "harder2020", "fadp", "patel2020"] = ""
    """A paper whose tables and figures are written to `paper/`, with the audit's numbers beside the printed ones, like `mia-audit paper`."""


@dataclass(frozen=True)
class AuditedSetting:
    """Dataset × architecture × mechanism × ε, what its mechanism guarantees, and the parameters of its model."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    dataset: str
    architecture: str
    mechanism: str
    epsilon: str
    private: bool = False
    delta: float | None = None
    accountant: str | None = None
    clipping: str | None = None
    measured: bool = True
    """Whether explanations of this setting's models are measured, if the audit measures any."""
    budget: str = ""
    """What replaces ε in the setting's name if ε is computed from a stated noise multiplier; empty otherwise."""
    trained: bool = True
    """False if signals were imported, so that there is no training.parquet."""
    design: str = ""
    """The membership design; empty where it is unknown."""
    model: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The parameters of the model in the config."""
    swept: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The parameters that sweeps vary, of the model and its training."""
    explained: Mapping[str, Any] | None = field(default=None, hash=False)
    """Name, noisy steps and adjacency of the fixed black box, if its explanation sets are attacked; else None."""
    finished: str = ""
    """The file or folder of the finished model that is the only target; empty if there is none."""
    folder: str = ""
    """The setting's folder below the results, if it is not {dataset}/{architecture}/{mechanism}-eps{epsilon}."""
    no_guarantee: str = ""
    """Why the mechanism guarantees nothing and ε is nominal; empty for mechanisms with a guarantee."""
    by_person: bool = False
    """Whether membership was drawn by person."""
    given_name: str = ""
    """The owner's name for the setting, if its models are given rather than trained here; empty otherwise."""
    grouped: bool = False
    """Whether results are sliced by groups of records."""
    floor: float = 0.0
    """The test accuracy that the first model of every training job had to reach; 0 if none was required."""
    label: str = ""
    """The label that replaces its mechanism and ε in the report; empty if there is none."""
    dataset_label: str = ""
    architecture_label: str = ""
    mechanism_label: str = ""

    @property
    def dataset_name(self) -> str:
        """The label of the data set."""
        return self.dataset_label or self.dataset

    @property
    def architecture_name(self) -> str:
        """The label of the architecture."""
        return self.architecture_label or self.architecture

    @property
    def mechanism_name(self) -> str:
        """The label of the mechanism."""
        return self.mechanism_label or self.mechanism

    @property
    def place(self) -> str:
        """The labels of data set and architecture."""
        return f"{self.dataset_name}, {self.architecture_name}"

    @property
    def claimed(self) -> bool:
        """Whether the guarantee is claimed by the user's own code, without accounting here."""
        return self.accountant == "claimed"

    @property
    def gaussian(self) -> bool:
        """Whether the noise of its mechanism is known to be Gaussian: that of all mechanisms that are accounted for here."""
        return self.private and not self.claimed and self.explained is None

    @property
    def reported_epsilon(self) -> str:
        """The ε that tables print; the word none if it is nominal."""
        return f"none ({self.nominal})" if self.no_guarantee else self.epsilon

    @property
    def named(self) -> str:
        """ε as it is written in file names, and in tables of earlier stages."""
        return self.budget or self.epsilon

    @property
    def nominal(self) -> str:
        """The parameter that takes the place of ε for a mechanism without a guarantee."""
        stated = self.named.startswith(STATED)
        return f"noise multiplier {self.named.removeprefix(STATED)}" if stated else f"nominal {self.epsilon}"

    @property
    def path(self) -> str:
        """The setting's folder below the results."""
        return self.folder or f"{self.dataset}/{self.architecture}/{self.mechanism}-eps{self.named}"

    @property
    def group(self) -> tuple[str, str]:
        """Dataset and architecture: settings with both in common differ only in their protection, and are compared."""
        return self.dataset, self.architecture

    @property
    def within_group(self) -> dict[str, str]:
        """The columns that identify the setting within its group, in tables of earlier stages."""
        return {"mechanism": self.mechanism, "epsilon": self.named}

    @property
    def pool(self) -> str:
        """The name of the pool that the records come from."""
        return self.dataset.removesuffix(EXPLANATION_SETS) if self.explained else self.dataset


@dataclass(frozen=True)
class Gap:
    """The models missing from a setting, by number, with the reason for each, and whether enough are left to attack the setting."""

    setting: AuditedSetting
    models: Mapping[int, str]
    attacked: bool


DP = "dp"
"""The name of a mechanism for which only ε is stated."""


class GivenSetting(Section):
    """One setting: matrices or a table of its models' signals, and what is known about their training."""

    membership: FilePath = ""
    """Records × models, 0 or 1; if left out, the audit's. Settings are compared model by model if model k has the same members in each."""
    person: FilePath = ""
    """The person of every row of the matrices, one per line or a .npy array; if left out, the audit's."""
    signals: dict[str, FilePath] = Field({})
    """The file of each signal's matrix, by signal: `loss`, `probability`, `ixg_l1`, `gap:real:high` …"""
    table: FilePath = ""
    """A signals.parquet instead of membership and signals."""
    epsilon: Epsilon = "inf"
    """The privacy budget of the training, as claimed by the models' owner."""
    delta: Probability | None = None
    """δ of that budget."""
    mechanism: Name = ""
    """The mechanism, such as dp-sgd; the setting's name when left out."""
    accuracy: FiniteFloat | FilePath | None = None
    """Test accuracy of the models: one number, or a file with one for each model."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.table) == bool(self.signals):
            raise ValueError("a setting needs either signals or a table")
        if self.table and self.person:
            raise ValueError("person: a table names persons in its column `person`; leave it out")
        if (self.epsilon == "inf") != (self.delta is None):
            raise ValueError("a guarantee has an ε and a δ: give both epsilon and delta, or neither")
        if isinstance(self.accuracy, float) and not 0 <= self.accuracy <= 1:
            raise ValueError(f"accuracy: {self.accuracy:g} is not between 0 and 1")
        return self


class GivenAudit(Section):
    """The content of the file for `mia-audit audit --settings`."""

    membership: FilePath = ""
    """Records × models, 0 or 1, for all settings that have no membership of their own."""
    person: FilePath = ""
    """The person of every row, for all settings of matrices that name no persons of their own."""
    settings: dict[Name, GivenSetting] = Field(min_length=1)
    """Settings by name, the one without privacy first."""


def from_words(text: str) -> tuple[str, dict[str, Any]]:
    """Read `NAME: KEY=VALUE KEY=VALUE …`; ValueError that says what is wrong.

    The keys are those of a setting; any other is a signal and its file.
    """
    name, colon, rest = text.partition(":")
    values: dict[str, Any] = {}
    signals: dict[str, str] = {}
    for word in rest.split():
        key, equals, value = word.partition("=")
        if not (equals and key and value):
            raise ValueError(f"'{word}': expected KEY=VALUE")
        if key in values or key in signals:
            raise ValueError(f"{key} is given twice")
        if key in GivenSetting.model_fields and key != "signals":
            values[key] = _number(value) if key in ("delta", "accuracy") else value
        else:
            signals[key] = value
    if not colon or not name.strip() or not (values or signals):
        raise ValueError(
            "expected NAME: KEY=VALUE …, for example 'dp8: loss=dp8.npy epsilon=8 delta=1e-5 accuracy=0.81'"
        )
    return name.strip(), values | ({"signals": signals} if signals else {})


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def below(folder: Path, audit: GivenAudit) -> GivenAudit:
    """Return the settings with file paths resolved against the folder of the file that names them."""

    def placed(path: str) -> str:
        return str(folder / path) if path else path

    settings = {}
    for name, setting in audit.settings.items():
        accuracy = setting.accuracy
        settings[name] = setting.model_copy(
            update={
                "membership": placed(setting.membership or audit.membership),
                "person": "" if setting.table else placed(setting.person or audit.person),
                "signals": {signal: placed(file) for signal, file in setting.signals.items()},
                "table": placed(setting.table),
                "accuracy": placed(accuracy) if isinstance(accuracy, str) else accuracy,
            }
        )
    return GivenAudit(settings=settings)


Share = Annotated[float, Field(gt=0, lt=1, strict=True)]
"""A number between 0 and 1; a text is not read as a number."""
Flag = Annotated[bool, Field(strict=True)]
Rates = dict[Probability, Share]
"""The largest allowed TPR at each FPR, both as fractions."""


class Limits(Section):
    """The largest values that any attack may reach."""

    auc: float | None = Field(None, ge=0.5, le=1, strict=True)
    """Largest AUC of any attack."""
    tpr_at_fpr: Rates = Field({})
    """Largest TPR of any attack, by FPR: `{0.001: 0.02, 0.01: 0.05}`; both are fractions."""

    @field_validator("tpr_at_fpr")
    @classmethod
    def _above_chance(cls, value: Rates) -> Rates:
        for fpr, tpr in value.items():
            if tpr < fpr:
                raise ValueError(f"{fpr:g}: guessing has a TPR of {fpr:g} there; a limit of {tpr:g} is below it")
        return value

    @property
    def given(self) -> list[tuple[str, str, float]]:
        """What is limited: its name in words, its column in tables of metrics, and the limit."""
        auc = [] if self.auc is None else [("AUC", "auc", self.auc)]
        rates = self.tpr_at_fpr.items()
        return [*auc, *((f"TPR at an FPR of {fpr:g}", f"tpr_at_fpr_{fpr:g}", limit) for fpr, limit in rates)]


class GroupLimits(Limits):
    """The largest values that an attack may reach in any group of records."""

    columns: tuple[str, ...] = ("label",)
    """Columns of records.parquet that make the groups."""


class MostExposed(Section):
    """A limit on how often any single record is recognised."""

    fpr: Share = 0.01
    """A model recognises a record if at most this share of the records that it was not trained on score as high; one of evaluation.fprs."""
    at_most: Share
    """Largest advantage: the estimated share of models trained on a record that recognise it, minus the share among the others."""


class Policy(Limits):
    """The limits on settings of an audit."""

    settings: tuple[str, ...] = ()
    """Settings by the folders of their results, DATASET/ARCHITECTURE/MECHANISM-epsE; all when left out."""
    confidence: Share = 0.95
    """Level of all intervals that limits are compared with."""
    groups: GroupLimits | None = None
    """Limits in every group of at least 30 records."""
    persons: Limits | None = None
    """Limits on attacks that recognise persons by all of their records."""
    most_exposed: MostExposed | None = None
    """Limit on the most exposed record."""
    epsilon_below_claim: Flag = False
    """`true`: the lower bounds on ε do not exceed the claimed ε."""
    null_control: Flag = False
    """`true`: the null control holds."""
    models: int | None = Field(None, gt=0, strict=True)
    """Fewest models that were attacked."""
    attacks: tuple[str, ...] = ()
    """Attacks that must have been run."""
    signals: tuple[str, ...] = ()
    """Signals that attacks must have read, alone or together with others."""
    intervals: Flag = False
    """`true`: the strongest attack's AUC has a confidence interval over models."""
    unit: Literal["record", "person"] | None = None
    """The unit for which membership must have been drawn."""
    canaries: int | None = Field(None, gt=0, strict=True)
    """Fewest canaries in one training run."""
    accuracy: float | None = Field(None, gt=0, le=1, strict=True)
    """Least test accuracy."""
    digests: Flag = False
    """`true`: every file agrees with SHA256SUMS, provenance.json and its own digest."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        for name in ("groups", "persons"):
            section = getattr(self, name)
            if section is not None and not section.given:
                raise ValueError(f"{name}: no limit; give auc or tpr_at_fpr")
        if not any(getattr(self, name) for name in type(self).model_fields if name not in ("settings", "confidence")):
            raise ValueError("no criterion; give at least one, for example auc: 0.6")
        return self


class ReportedAudit(Section):
    """What tables, figures and page of one audit depend on besides files."""

    audit: str
    settings: tuple[AuditedSetting, ...]
    title: str = ""
    exposed: int = 0
    """Number of most exposed records in the report."""
    likelihood: str = "pooled"
    """The likelihood whose results are the headline."""
    as_published: bool = False
    """Whether the published score of Huang et al. 2024 is among the attacks."""
    confidence: float = 0.95
    delta: float = 1e-5
    """δ of the lower bounds on ε of settings that guarantee no δ of their own."""
    explainers: dict[str, Any] = Field({})
    config: dict[str, Any] = Field({})
    """The resolved config, which the report shows."""
    config_hash: str | None = None
    gaps: tuple[Gap, ...] = ()
    """Missing models; settings that could not be attacked are listed here and not among the settings."""
    explanation_metrics: bool = False
    """Whether explanations were measured, for every architecture that was trained."""
    explanation_maps: bool = False
    """Whether attribution maps of some records were kept."""
    intrinsic: tuple[str, ...] = ()
    """The data sets on which intrinsic explanations are compared with post-hoc ones."""
    curves: bool = False
    """Whether curves were measured on explanations (deletion, insertion)."""
    studies: dict[str, Any] = Field({})
    """Studies of private explanations by data set."""
    figures: Figures = Figures()
    """Style and file formats of figures."""
    margins: dict[str, float] = Field({})
    """By metric, the largest difference at which two mechanisms count as equivalent."""
    compare: tuple[str, ...] = ()
    """The data sets, architectures, mechanisms or explainers that are compared pairwise."""
    policy: Policy | None = None
    """The policy that the report evaluates."""
    canaries: tuple[str, ...] = ()
    """The settings that were trained on canaries."""

    @property
    def planned(self) -> ReportedAudit:
        """This specification with the settings that could not be attacked, from which all outputs that the config announces follow."""
        lost = (gap.setting for gap in self.gaps if not gap.attacked)
        return self.model_copy(update={"settings": (*self.settings, *lost), "gaps": ()})

    @property
    def trained(self) -> list[AuditedSetting]:
        """The settings whose models this audit trained."""
        return [setting for setting in self.settings if setting.trained]

    @property
    def groups(self) -> list[tuple[str, str]]:
        """Dataset × architecture of all models that were trained, in the order of the settings."""
        return list(dict.fromkeys(setting.group for setting in self.trained))

    @property
    def measured_groups(self) -> list[tuple[str, str]]:
        """The groups whose explanations are measured."""
        measured = (setting.group for setting in self.trained if setting.measured)
        return list(dict.fromkeys(measured)) if self.explanation_metrics else []

    @property
    def releases(self) -> bool:
        """Whether maps are released in another form than the full one."""
        return bool(self.trained) and bool(set(self.explainers.get("release", ())) - {FULL})

    @property
    def attacks_private_explainers(self) -> bool:
        """Whether private local explanations of trained models are attacked."""
        names = self.explainers.get("methods", ())
        return bool(self.trained) and any(map(private_epsilon, names))
