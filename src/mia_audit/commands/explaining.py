"""Stages that measure explanations, and those of studies of private explanations of a black box."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.commands._arguments import add_pool, add_run, add_spec, add_threads, computing
from mia_audit.config.specs import BlackBoxSpec, ExplanationMetricsSpec, ExplanationSignalsSpec, PrivateExplanationsSpec
from mia_audit.errors import UserError
from mia_audit.planning.requests import RunFile
from mia_audit.runtime.machine import acquire_gpu

if TYPE_CHECKING:
    import numpy as np

    from mia_audit.pools.store import StoredRecords


def explanation_metrics_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, ExplanationMetricsSpec)
    add_pool(parser)
    parser.add_argument("--architecture", required=True, type=Path, help="architecture.json, beside the settings")
    add_run(parser)
    parser.add_argument("--maps", required=True, type=Path, help="Parquet file for the maps in the report")
    parser.add_argument("--curves", required=True, type=Path, help="Parquet file for curves (deletion, insertion)")
    parser.add_argument("--out", required=True, type=Path, help="the measures, Parquet")


def run_explanation_metrics(options: argparse.Namespace) -> None:
    """Write the measures of every shadow model, one row group each, and the first model's maps for the report."""
    planned = RunFile.read(options.run)
    acquire_gpu(planned.compute.device)
    import pyarrow as pa

    from mia_audit.explanation_metrics.study import MetricsTask, defined, draw_sample, shown_rows
    from mia_audit.explanation_metrics.tables import (
        COLUMNS,
        CURVES,
        MAPS,
        Explanations,
        Setting,
        curve_table,
        explain_settings,
        map_table,
        measure_tables,
    )
    from mia_audit.learners.protocol import TrainedModel, open_learner
    from mia_audit.pools.store import read_records
    from mia_audit.storage import write_table
    from mia_audit.training.stored import shadow_folders
    from mia_audit.training.task import Records

    spec = ExplanationMetricsSpec.read(options.spec)
    compute = computing(planned, options.threads)
    records = Records.from_stored(read_records(options.pool))
    architecture, learner = open_learner(options.architecture, compute)
    in_settings = {
        (mechanism, epsilon): shadow_folders(
            options.architecture.parent / f"{mechanism}-eps{epsilon}" / "models", range(spec.models)
        )
        for mechanism, epsilon in spec.settings
    }
    folders: dict[Setting, dict[int, Path]] = {setting: models for setting, models in in_settings.items() if models}
    settings = list(folders)
    # a shadow model that diverged in one setting is left out of all settings; a setting without any model is left out
    everywhere = set.intersection(*map(set, folders.values())) if folders else set()
    shadows = sorted(everywhere)
    sample = records[draw_sample(len(records), spec.records, spec.dataset, spec.seed)]
    shape = tuple(architecture["input_shape"])
    known = defined(spec.measures, shape)
    task = MetricsTask(
        explainers=spec.explainers,
        explaining=spec.explaining,
        measures=known,
        measuring=spec.measuring,
        seed=spec.seed,
        batch=compute.micro_batch,
        shape=shape,
    )
    shown: list[pa.Table] = []
    curves = [CURVES.empty_table()]

    def model(setting: Setting, shadow: int) -> TrainedModel:
        return learner.load(folders[setting][shadow])

    def explanations_by_shadow() -> Iterator[tuple[int, Explanations]]:
        for shadow, explanations in explain_settings(model, settings, shadows, sample, task):
            if not shown:
                shown.append(map_table(shadow, explanations, sample, shown_rows(sample.labels, spec.shown)))
            curves.append(curve_table(shadow, explanations))
            print(f"shadow {shadow}: explained {len(sample)} records in {len(settings)} settings", flush=True)
            yield shadow, explanations

    reference = next((setting for setting in settings if setting == spec.reference), None)
    tables = [*measure_tables(explanations_by_shadow(), reference, sample, task)] or [COLUMNS.empty_table()]
    maps = shown[0] if shown else MAPS.empty_table()
    left_out = [name for name in spec.measures if name not in known]
    metadata = {"records": len(sample), "models": len(shadows), "reference": reference, "left_out": left_out}
    write_table(options.maps, maps, "explanations", len(maps), metadata)
    heights = pa.concat_tables(curves)
    write_table(options.curves, heights, "curves", len(heights), metadata)
    write_table(options.out, iter(tables), "explanation_metrics", sum(map(len, tables)), metadata)


def black_box_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, BlackBoxSpec)
    add_pool(parser)
    parser.add_argument("--architecture", type=Path, nargs="?", help="architecture.json, if the black box is a model")
    parser.add_argument("--models", type=Path, nargs="?", help="folder of shadow models; the first is the black box")
    add_threads(parser)
    parser.add_argument("--out", required=True, type=Path, help="the values, Parquet")


def run_black_box(options: argparse.Namespace) -> None:
    """Write one row per record, with a value for every class; if there are two classes, only for the second."""
    import numpy as np
    import pyarrow as pa

    from mia_audit.explain.black_boxes import black_boxes
    from mia_audit.pools.store import read_records
    from mia_audit.seeds import seed_for
    from mia_audit.storage import write_table

    spec = BlackBoxSpec.read(options.spec)
    pool = read_records(options.pool)
    if options.models:
        if not options.architecture:
            raise UserError("--models: give --architecture too, the architecture.json of these models")
        values = _model_values(options, pool)
    else:
        name = spec.black_box
        make, seed = black_boxes[name], seed_for(spec.seed, "black box", spec.dataset, name)
        records = np.asarray(pool.data).reshape(len(pool.labels), -1)
        values = make(records, pool.labels, len(pool.metadata["classes"]), seed)
    columns = {"record": np.arange(len(values), dtype=np.int32)}
    columns |= {f"value_{column}": values[:, column] for column in range(values.shape[1])}
    metadata = {"black_box": spec.black_box, "dataset": spec.dataset}
    write_table(options.out, pa.table(columns), "values", len(values), metadata)
    agrees = (values.argmax(axis=1) if values.shape[1] > 1 else values[:, 0] > 0) == pool.labels
    print(f"{spec.black_box}: agrees with {agrees.mean():.3f} of {len(values)} labels")


def _model_values(options: argparse.Namespace, pool: "StoredRecords") -> "np.ndarray":
    from mia_audit.explain.black_boxes import of_logits
    from mia_audit.learners.protocol import Compute, open_learner
    from mia_audit.training.stored import first_folder
    from mia_audit.training.task import Records

    _, learner = open_learner(options.architecture, Compute("cpu", options.threads))
    model = learner.load(first_folder(options.models))
    return of_logits(model.logits(Records.from_stored(pool)))


def explain_privately_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, PrivateExplanationsSpec)
    parser.add_argument("--pool", required=True, type=Path, help="folder of the pool, which is the explanation set")
    parser.add_argument(
        "--values", required=True, type=Path, help="the black box's outputs on these records, from mia-audit black-box"
    )
    parser.add_argument("--reference", type=Path, nargs="?", help="values of the model without privacy, for `Dist`")
    parser.add_argument(
        "--other", type=Path, nargs="?", help="values of a forest of another depth, for queries where the two differ"
    )
    parser.add_argument("--out", required=True, type=Path, help="Parquet file for the answers, one row each")


def run_explain_privately(options: argparse.Namespace) -> None:
    """Write every answer of the study."""
    import pyarrow as pa

    from mia_audit.explain.private_local.records import ExplanationSet
    from mia_audit.explain.private_local.study import Study, read_values
    from mia_audit.pools.store import read_records
    from mia_audit.storage import write_table

    spec = PrivateExplanationsSpec.read(options.spec)
    section = spec.study
    stored = read_records(options.pool)
    records = stored.data
    values = read_values(options.values, len(records))
    reference = read_values(options.reference, len(records)) if options.reference else None
    other = read_values(options.other, len(records)) if options.other else None
    explained = ExplanationSet.from_arrays(records, values, section.scale, stored.units)
    key = (spec.seed, "private explanations", spec.dataset)
    rows = Study(
        explained=explained, section=section, key=key, reference=reference, labels=stored.labels, other=other
    ).rows()
    table = pa.Table.from_pylist([row | {"explanation": row["explanation"].astype("float32").tolist()} for row in rows])
    kinds = {"distance": pa.float64(), "path": pa.list_(pa.float64()), "misclassified": pa.float64()}
    for name in kinds.keys() & set(table.column_names):  # a column with only nulls would have no type
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(kinds[name]))
    metadata = {"dataset": spec.dataset, "records": len(records), "features": explained.features}
    if explained.unit == "person":
        metadata |= {"unit": explained.unit, "persons": explained.units}
    write_table(options.out, table, "private-answers", len(rows), metadata)


def explanation_signals_arguments(parser: argparse.ArgumentParser) -> None:
    add_spec(parser, ExplanationSignalsSpec)
    parser.add_argument("--pool", required=True, type=Path, help="folder of the pool, with membership.parquet")
    parser.add_argument("--values", required=True, type=Path, help="the black box's outputs, from mia-audit black-box")
    parser.add_argument("--out", required=True, type=Path, help="signals.parquet")


def run_explanation_signals(options: argparse.Namespace) -> None:
    """Write signals.parquet, with an explanation set in place of every shadow model."""
    import numpy as np
    import pyarrow as pa

    from mia_audit.explain.private_local.records import ExplanationSet
    from mia_audit.explain.private_local.study import read_values
    from mia_audit.explain.private_local.terms import ExplanationTerms
    from mia_audit.pools.store import read_membership, read_records
    from mia_audit.signals.compute import membership_signals, neighbours
    from mia_audit.storage import write_table

    spec = ExplanationSignalsSpec.read(options.spec)
    study = spec.study
    noisy = spec.epsilon != "inf"
    epsilon = float(spec.epsilon) if noisy else 1.0
    terms = ExplanationTerms(
        epsilon=epsilon,
        delta=study.delta,
        budget=epsilon,
        steps=study.steps,
        c=study.c,
        kernel=study.kernel,
        adjacency=study.adjacency,
    )
    stored = read_records(options.pool)
    records = np.asarray(stored.data)
    explained = ExplanationSet.from_arrays(
        records, read_values(options.values, len(records)), study.scale, stored.units
    )
    membership = read_membership(options.pool / "membership.parquet", records=len(records))
    asked = neighbours(explained.points(records))

    def tables() -> Iterator[pa.Table]:
        for shadow, member in enumerate(membership.T):
            key = (spec.seed, "explanation set", spec.dataset, spec.black_box, spec.epsilon, shadow)
            columns = membership_signals(explained, member, asked, terms=terms, noisy=noisy, key=key)
            numbers = {
                "shadow": np.full(len(member), shadow, dtype=np.int32),
                "record": np.arange(len(member), dtype=np.int32),
                "member": member,
                **({} if stored.units is None else {"person": stored.units}),
            }
            signals = {name: values.astype(np.float32) for name, values in columns.items()}
            yield pa.table({name: pa.array(values) for name, values in (numbers | signals).items()})

    write_table(options.out, tables(), "signals", membership.size)
