"""The section of a config for the report."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from mia_audit.sections import FilePath, Section

Inches = Annotated[str, StringConstraints(pattern=r"^[2-6](\.\d+)?in$")]


class Figures(Section):
    """What the figures look like, and which files they are written to."""

    column: Inches = "3.4in"
    """Width of a paper's column, 2in to 6.9in; a figure across the page grows with it."""
    font: str = ""
    """Name of a font that is installed; matplotlib's own when left out."""
    formats: tuple[Literal["pdf", "svg", "png"], ...] = Field(("pdf", "svg", "png"), min_length=1)
    """Files that every figure is written to, beside its data (CSV)."""


class Report(Section):
    """What the report shows."""

    title: str = ""
    """Heading; the audit's name when left out."""
    exposed: int = Field(8, ge=0)
    """How many of the most exposed records are shown."""
    figures: Figures = Figures()
    policy: FilePath = ""
    """Policy that the report holds the audit to, as `mia-audit gate` does: a YAML file, relative to where the audit is started."""
