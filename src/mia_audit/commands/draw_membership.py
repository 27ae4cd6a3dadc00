"""`mia-audit draw-membership`: draw the records on which each of your own models should be trained."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.errors import UserError

if TYPE_CHECKING:
    import numpy as np


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--records", required=True, type=int, metavar="N", help="number of records on which models may be trained"
    )
    parser.add_argument(
        "--models", required=True, type=int, metavar="K", help="number of models; 16 or more for a first answer"
    )
    parser.add_argument(
        "--person",
        type=Path,
        metavar="FILE",
        help="the person of every record, one per line (or a .npy array); all of a person's records are then in a training set, or none of them",
    )
    parser.add_argument(
        "--design",
        choices=["half", "bernoulli"],
        default="half",
        help="half: a random half of the records per model; bernoulli: a fair coin per record, which allows one-run bounds on ε (half)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw (0)")
    parser.add_argument("--out", required=True, type=Path, help="records × models, true or false (.npy)")


def run(options: argparse.Namespace) -> None:
    """Write the membership, and print how to use it."""
    import numpy as np

    from mia_audit.attacks.io.parquet import LEAST_MODELS
    from mia_audit.config.load import parse
    from mia_audit.pools.membership import draw_membership
    from mia_audit.pools.persons import Persons
    from mia_audit.pools.section import Membership
    from mia_audit.storage import atomic_write

    if options.records < 2:
        raise UserError(f"--records {options.records}: expected two or more")
    if options.models < LEAST_MODELS:
        raise UserError(f"--models {options.models}: attacks need at least {LEAST_MODELS}")
    if options.out.suffix != ".npy":
        raise UserError(f"--out {options.out}: expected a file that ends in .npy")
    section = parse(Membership, {"design": options.design, "models": options.models}, "draw-membership")
    persons = Persons.numbered(_ids(options.person, options.records)) if options.person else None
    units = options.records if persons is None else len(persons)
    member = draw_membership(section, units, "drawn", options.seed)
    if persons is not None:
        member = persons.spread(member)
    with atomic_write(options.out) as path:
        np.save(path, member)
    of = f" of {units} persons" if persons is not None else ""
    print(
        f"{options.out}: {options.records} records{of} × {options.models} models; train model k on the records with"
        f" numpy.load('{options.out}')[:, k]"
    )


def _ids(path: Path, records: int) -> "np.ndarray":
    """Return the person of every record."""
    import numpy as np

    from mia_audit.pools.persons import missing_ids, numbered_ids

    try:
        values = (
            np.load(path, allow_pickle=False)
            if path.suffix == ".npy"
            else np.array(path.read_text(encoding="utf-8").splitlines(), dtype=np.str_)
        )
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"--person {path}: cannot be read: {' '.join(str(error).split())}") from None
    ids = numbered_ids(values, f"--person {path}")
    if len(ids) != records:
        raise UserError(f"--person {path}: {len(ids)} ids for {records} records: expected one each")
    if ids.dtype.kind == "U" and (missing := ids == "").any():
        raise missing_ids(f"--person {path}", missing, "every record needs a person")
    return ids
