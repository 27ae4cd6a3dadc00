"""The section of a config for the report."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from mia_audit.sections import FilePath, Section

Inches = Annotated[str, StringConstraints(pattern=r"^[2-6](\.\d+)?in$")]


class Figures(Section):
    """The style of figures, and their file formats."""

    column: Inches = "3.4in"
    """Width of a paper's column, 2in to 6.9in; figures across the page scale with it."""
    font: str = ""
    """Name of a font that is installed; matplotlib's own when left out."""
    formats: tuple[Literal["pdf", "svg", "png"], ...] = Field(("pdf", "svg", "png"), min_length=1)
    """File formats of every figure, besides its data (CSV)."""


Margin = Annotated[float, Field(gt=0, lt=1)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=60, strip_whitespace=True, pattern=r"^[^\r\n]+$")]


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
    show_records: bool = True
    """With `false` the page contains no record, neither the most exposed ones nor maps of explanations, and can be passed on."""
    policy: FilePath = ""
    """Policy that the report evaluates, like `mia-audit gate`: a YAML file, relative to where the audit is started."""
    paper: Literal["", "huang2024", "harder2020", "fadp", "patel2020"] = ""
    """A paper whose tables and figures are written to `paper/`, with the audit's numbers beside the printed ones, like `mia-audit paper`."""
