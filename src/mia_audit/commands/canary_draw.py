"""`mia-audit canary-draw`: draw the canaries of a data set."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_pool, add_spec
from mia_audit.config.specs import CanariesSpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, CanariesSpec)
    add_pool(parser)
    parser.add_argument("--out", required=True, type=Path, help="folder of the canaries")


def run(options: argparse.Namespace) -> None:
    """Write the folders train, ask and auditor. Coins are tossed with the system's entropy."""
    import numpy as np

    from mia_audit.canaries.make import make
    from mia_audit.pools.store import read_records

    spec, stored = CanariesSpec.read(options.spec), read_records(options.pool)
    make(np.asarray(stored.data), stored.labels, stored.metadata, spec.kinds, spec.count, options.out)
