"""Read a policy's YAML file; every mistake in it becomes one line that says how to fix it."""

from pathlib import Path

from mia_audit.config.load import parse
from mia_audit.config.plain import read_plain
from mia_audit.errors import UserError
from mia_audit.report.gate.policy import Policy


def load_policy(path: Path) -> Policy:
    """Return the policy of a YAML file; UserError for a mistake, with the file, the key and a way to fix it."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; a policy is one YAML file, see docs/gate.md")
    return parse(Policy, read_plain(path), str(path))
