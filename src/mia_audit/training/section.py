"""The section of a config for the training of a model, and its overrides."""

from typing import Any, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from mia_audit.privacy.catalogue import PerRecord
from mia_audit.sections import Name, Precision, Probability, Section, is_unset

Floor = Probability | dict[Name, Probability]
"""A test accuracy for all data sets, or one for each."""

Schedule = Literal["constant", "cosine", "step", "step-reset"]

STEPPED = ("step", "step-reset")
DECAY: dict[str, Any] = {"decay": 0.8, "decay_epochs": 5}
"""Keys of a training section that belong only to the schedules of steps, with their defaults (Harder et al. 2020)."""


Trainable = Literal["all", "head", "bias", "lora"]


class Lora(Section):
    """Adapters of linear layers (Hu et al. 2022)."""

    rank: PositiveInt = 4
    """Rank of the change of a layer's weight."""
    alpha: float = Field(8.0, gt=0, allow_inf_nan=False)
    """The change is multiplied by alpha / rank."""
    targets: tuple[str, ...] = Field(("qkv",), min_length=1)
    """Ends of the names of adapted layers; timm's vision transformers have `attn.qkv`, `attn.proj`, `mlp.fc1` and `mlp.fc2`."""


class Training(Section):
    """How one model is trained."""

    epochs: PositiveInt = 30
    """Passes over the training set (expected passes under Poisson sampling)."""
    batch: PositiveInt = 64
    """Records per step (expected records under Poisson sampling)."""
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    """Optimizer."""
    learning_rate: float = Field(1e-3, gt=0, allow_inf_nan=False)
    """Peak learning rate."""
    weight_decay: float = Field(0.0, ge=0)
    """Weight decay: decoupled for adamw, L2 otherwise."""
    momentum: float | None = Field(None, ge=0, lt=1, exclude_if=is_unset)
    """Momentum, only for optimizer sgd; 0.9 when left out."""
    schedule: Schedule = "cosine"
    """Course of the learning rate: `cosine` decreases it to zero over all steps, `step` multiplies it by `decay` every `decay_epochs` epochs,
    and `step-reset` also forgets the optimizer's moments then.
    """
    decay: Probability | None = None
    """Factor of each reduction; only for the schedules of steps, 0.8 when left out."""
    decay_epochs: PositiveInt | None = None
    """Epochs between two reductions; only for the schedules of steps, 5 when left out."""
    trainable: Trainable = "all"
    """Parameters that are trained: all, only the classifier, only the bias terms (BiTFiT), or adapters and the classifier (`lora`); the rest
    keep their initial values. With `head`, the frozen layers are in evaluation mode, and their features are computed once for all models of a job.
    """
    lora: Lora | None = Field(None, exclude_if=is_unset)
    """Adapters, only for trainable lora."""
    precision: Precision | None = None
    """float32 when left out; `tf32` and `bf16` are faster on GPUs; under bf16 the classifier stays in float32."""
    per_record: PerRecord | None = Field(None, exclude_if=is_unset)
    """Per-record gradients of private steps: `vmap`, `book-keeping` (faster), or `auto` (when left out): book-keeping if it covers the model."""
    floor: Floor | None = None
    """Test accuracy, for all data sets or by data set; if a job's first model is below it, the audit stops. A change of this key retrains nothing."""

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        stepped = DECAY if values.get("schedule") in STEPPED else {}
        return stepped | ({"lora": {}} if values.get("trainable") == "lora" else {}) | values

    @model_validator(mode="after")
    def _decay(self) -> Self:
        for key in DECAY:
            if (getattr(self, key) is None) != (self.schedule not in STEPPED):
                raise ValueError(f"{key}: requires schedule step, but schedule is {self.schedule}")
        return self

    @model_validator(mode="after")
    def _lora(self) -> Self:
        if (self.lora is not None) != (self.trainable == "lora"):
            raise ValueError(f"lora: requires trainable lora, but trainable is {self.trainable}")
        return self

    @model_validator(mode="after")
    def _momentum(self) -> Self:
        if self.momentum is not None and self.optimizer != "sgd":
            raise ValueError(f"momentum: requires optimizer sgd, but optimizer is {self.optimizer}")
        return self

    def overridden(self, overrides: "TrainingOverrides") -> "Training":
        """Return the section with the overrides' keys. Keys that belong only to a former schedule, optimizer or part are dropped."""
        given = overrides.model_dump(exclude_none=True)
        gone = set(DECAY) if given.get("schedule", "step") not in STEPPED else set()
        gone |= {"momentum"} if given.get("optimizer", "sgd") != "sgd" else set()
        gone |= {"lora"} if given.get("trainable", "lora") != "lora" else set()
        return Training(**(self.model_dump(exclude_none=True, exclude=gone) | given))

    def floor_of(self, dataset: str) -> float:
        """Return the test accuracy that a data set's models must reach; 0 if there is no limit."""
        floor = self.floor.get(dataset) if isinstance(self.floor, dict) else self.floor
        return floor or 0.0


class TrainingOverrides(Section):
    """Keys of `training` that differ for one mechanism."""

    epochs: PositiveInt | None = None
    """Overrides training.epochs."""
    batch: PositiveInt | None = None
    """Overrides training.batch."""
    optimizer: Literal["adamw", "adam", "sgd"] | None = None
    """Overrides training.optimizer."""
    learning_rate: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Overrides training.learning_rate."""
    weight_decay: float | None = Field(None, ge=0)
    """Overrides training.weight_decay."""
    momentum: float | None = Field(None, ge=0, lt=1)
    """Overrides training.momentum."""
    schedule: Schedule | None = None
    """Overrides training.schedule."""
    decay: Probability | None = None
    """Overrides training.decay."""
    decay_epochs: PositiveInt | None = None
    """Overrides training.decay_epochs."""
    trainable: Trainable | None = None
    """Overrides training.trainable."""
    lora: Lora | None = None
    """Overrides training.lora."""
    precision: Precision | None = None
    """Overrides training.precision."""
    per_record: PerRecord | None = None
    """Overrides training.per_record."""
    floor: Floor | None = None
    """Overrides training.floor."""
