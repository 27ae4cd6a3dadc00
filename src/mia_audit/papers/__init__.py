"""The papers whose printed numbers the package contains, with the tables and figures that compare them with audits."""

from mia_audit.errors import UserError, suggest
from mia_audit.papers import fadp, harder2020, huang2024, patel2020
from mia_audit.papers.cells import Paper

PAPERS = {
    "huang2024": huang2024.PAPER,
    "harder2020": harder2020.PAPER,
    "fadp": fadp.PAPER,
    "patel2020": patel2020.PAPER,
}
"""The papers by their name on the command line."""


def paper(name: str) -> Paper:
    """Return a paper by its name; UserError lists the known ones."""
    if name not in PAPERS:
        raise UserError(f"paper: no paper '{name}' here: {suggest(name, PAPERS)}")
    return PAPERS[name]
