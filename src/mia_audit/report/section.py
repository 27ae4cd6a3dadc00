"""The section of a config for the report."""

from pydantic import Field

from mia_audit.sections import FilePath, Section


class Report(Section):
    """What the report shows."""

    title: str = ""
    """Heading; the audit's name when left out."""
    exposed: int = Field(8, ge=0)
    """How many of the most exposed records are shown."""
    policy: FilePath = ""
    """Policy that the report holds the audit to, as `mia-audit gate` does: a YAML file, relative to where the audit is started."""
