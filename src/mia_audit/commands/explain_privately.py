"""`mia-audit explain-privately`: run a study of a black box's private explanations, and compare them with exact ones."""

import argparse
from pathlib import Path

from mia_audit.commands._arguments import add_spec
from mia_audit.config.specs import PrivateExplanationsSpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, PrivateExplanationsSpec)
    parser.add_argument(
        "--pool", required=True, type=Path, help="folder of the pool, whose records are the explanation set"
    )
    parser.add_argument(
        "--values", required=True, type=Path, help="the black box's outputs on these records, from mia-audit black-box"
    )
    parser.add_argument(
        "--reference", type=Path, nargs="?", help="values of the model without privacy, for the distance `Dist`"
    )
    parser.add_argument("--out", required=True, type=Path, help="Parquet file for the answers, one row each")


def run(options: argparse.Namespace) -> None:
    """Write every answer of the study."""
    import pyarrow as pa

    from mia_audit.explain.private_local import ExplanationSet
    from mia_audit.explain.private_local.files import read_values
    from mia_audit.explain.private_local.study import Study
    from mia_audit.pools.store import read_records
    from mia_audit.storage import write_table

    spec = PrivateExplanationsSpec.read(options.spec)
    section = spec.study
    stored = read_records(options.pool)
    records = stored.data
    values = read_values(options.values, len(records))
    reference = read_values(options.reference, len(records)) if options.reference else None
    explained = ExplanationSet.of(records, values, section.scale, stored.units)
    key = (spec.seed, "private explanations", spec.dataset)
    rows = Study(explained, section, key, reference, stored.labels).rows()
    table = pa.Table.from_pylist([row | {"explanation": row["explanation"].astype("float32").tolist()} for row in rows])
    kinds = {"distance": pa.float64(), "path": pa.list_(pa.float64()), "misclassified": pa.float64()}
    for name in kinds.keys() & set(table.column_names):  # a column with only nulls would have no type
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(kinds[name]))
    metadata = {"dataset": spec.dataset, "records": len(records), "features": explained.features}
    if explained.unit == "person":
        metadata |= {"unit": explained.unit, "persons": explained.units}
    write_table(options.out, table, "private-answers", len(rows), metadata)
