"""`mia-audit explanation-metrics`: measure the explanations of an architecture's settings, and compare them."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from mia_audit.commands._arguments import add_pool, add_run, add_spec, computing
from mia_audit.config.specs import ExplanationMetricsSpec
from mia_audit.planning.limits import Run
from mia_audit.runtime.gpus import acquire_gpu


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_spec(parser, ExplanationMetricsSpec)
    add_pool(parser)
    parser.add_argument(
        "--architecture", required=True, type=Path, help="architecture.json, in the folder that holds the settings"
    )
    add_run(parser)
    parser.add_argument("--maps", required=True, type=Path, help="Parquet file for the maps in the report")
    parser.add_argument("--curves", required=True, type=Path, help="Parquet file for curves (deletion, insertion)")
    parser.add_argument("--out", required=True, type=Path, help="the measures, Parquet")


def run(options: argparse.Namespace) -> None:
    """Write the measures of every shadow model, one row group each, and the first model's maps for the report."""
    planned = Run.read(options.run)
    acquire_gpu(planned.compute.device)
    import pyarrow as pa

    from mia_audit.explanation_metrics.study import Task, defined, draw_sample, shown_rows
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
    from mia_audit.learners import Records, TrainedModel, open_learner
    from mia_audit.pools.store import read_records
    from mia_audit.storage import write_table
    from mia_audit.training.stored import shadow_folders

    spec = ExplanationMetricsSpec.read(options.spec)
    compute = computing(planned, options.threads)
    records = Records.of(read_records(options.pool))
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
    task = Task(spec.explainers, spec.explaining, known, spec.measuring, spec.seed, compute.batch, shape)
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
