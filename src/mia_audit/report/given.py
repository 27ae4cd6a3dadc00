"""Settings of an audit of matrices: their signals, and what is known about the training of the models."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import Field, FiniteFloat, model_validator

from mia_audit.sections import Epsilon, FilePath, Name, Probability, Section

DP = "dp"
"""The name of a mechanism for which only ε is stated."""


class GivenSetting(Section):
    """One setting: matrices or a table of its models' signals, and what is known about their training."""

    membership: FilePath = ""
    """Records × models, 0 or 1; if left out, the audit's. Settings are compared model by model if model k has the same members in each."""
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
        if (self.epsilon == "inf") != (self.delta is None):
            raise ValueError("a guarantee has an ε and a δ: give both epsilon and delta, or neither")
        if isinstance(self.accuracy, float) and not 0 <= self.accuracy <= 1:
            raise ValueError(f"accuracy: {self.accuracy:g} is not between 0 and 1")
        return self


class GivenAudit(Section):
    """The content of the file for `mia-audit audit --settings`."""

    membership: FilePath = ""
    """Records × models, 0 or 1, for all settings that have no membership of their own."""
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
                "signals": {signal: placed(file) for signal, file in setting.signals.items()},
                "table": placed(setting.table),
                "accuracy": placed(accuracy) if isinstance(accuracy, str) else accuracy,
            }
        )
    return GivenAudit(settings=settings)
