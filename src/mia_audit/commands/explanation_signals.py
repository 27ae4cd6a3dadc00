"""`mia-audit explanation-signals`: compute signals of membership in the explanation set of a fixed black box."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from mia_audit.commands._arguments import add_spec
from mia_audit.config.specs import ExplanationSignalsSpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, ExplanationSignalsSpec)
    parser.add_argument("--pool", required=True, type=Path, help="folder of the pool, with membership.parquet")
    parser.add_argument("--values", required=True, type=Path, help="the black box's outputs, from mia-audit black-box")
    parser.add_argument("--out", required=True, type=Path, help="signals.parquet")


def run(options: argparse.Namespace) -> None:
    """Write signals.parquet, with an explanation set in place of every shadow model."""
    import numpy as np
    import pyarrow as pa

    from mia_audit.explain.private_local import ExplanationSet, Terms
    from mia_audit.explain.private_local.files import read_values
    from mia_audit.pools.store import read_membership, read_records
    from mia_audit.signals.explanation_sets import membership_signals, neighbours
    from mia_audit.storage import write_table

    spec = ExplanationSignalsSpec.read(options.spec)
    study = spec.study
    noisy = spec.epsilon != "inf"
    epsilon = float(spec.epsilon) if noisy else 1.0
    terms = Terms(epsilon, study.delta, epsilon, study.steps, study.c, study.kernel, study.adjacency)
    stored = read_records(options.pool)
    records = np.asarray(stored.data)
    explained = ExplanationSet.of(records, read_values(options.values, len(records)), study.scale, stored.units)
    membership = read_membership(options.pool / "membership.parquet", records=len(records))
    asked = neighbours(explained.points(records))

    def tables() -> Iterator[pa.Table]:
        for shadow, member in enumerate(membership.T):
            key = (spec.seed, "explanation set", spec.dataset, spec.black_box, spec.epsilon, shadow)
            columns = membership_signals(explained, member, asked, terms, noisy, key)
            numbers = {
                "shadow": np.full(len(member), shadow, dtype=np.int32),
                "record": np.arange(len(member), dtype=np.int32),
                "member": member,
                **({} if stored.units is None else {"person": stored.units}),
            }
            signals = {name: values.astype(np.float32) for name, values in columns.items()}
            yield pa.table({name: pa.array(values) for name, values in (numbers | signals).items()})

    write_table(options.out, tables(), "signals", membership.size)
