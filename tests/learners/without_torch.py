"""Runs subcommands of mia-audit where torch cannot be imported, and where the learners of extra/ are known.

Arguments: a JSON file that lists the command lines.
"""

import json
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

import polars  # noqa: F401 - it looks for torch, which it does not need

from mia_audit.cli import main
from mia_audit.learners.protocol import LEARNERS


class NoTorch(MetaPathFinder):
    """Refuses to import torch."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] == "torch":
            raise ImportError("torch was asked for, which a learner without torch does not need")


sys.meta_path.insert(0, NoTorch())
sys.path.append(str(Path(__file__).with_name("extra")))
LEARNERS["logistic"] = ("logistic", "Logistic")
codes = [main(line) for line in json.loads(Path(sys.argv[1]).read_text())]
assert "torch" not in sys.modules
sys.exit(max(codes))
