"""The section of a config for the report."""

from pydantic import Field

from mia_audit.sections import Section


class Report(Section):
    """What the report shows."""

    title: str = ""
    """Heading; the audit's name when left out."""
    exposed: int = Field(8, ge=0)
    """How many of the most exposed records are shown."""
