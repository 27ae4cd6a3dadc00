"""All tables of an audit, by name."""

from typing import Any

from mia_audit.report.tables.catalogue import tables_of


def build(results: Any, findings: Any) -> Any:
    """Return every table of an audit."""
    return {name: kind(results, findings) for name, kind in tables_of(results.spec).items()}
