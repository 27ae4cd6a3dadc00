"""`mia-audit interpretability`: measure the explanations of an architecture's settings, and hold them against each other."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from mia_audit.compute.cards import take_card


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--pool", required=True, type=Path, help="folder of the pool")
    parser.add_argument(
        "--architecture", required=True, type=Path, help="architecture.json, in the folder that holds the settings"
    )
    parser.add_argument("--blocks", required=True, nargs="+", help="the settings' blocks of models, first-last")
    parser.add_argument("--spec", required=True, help="JSON: which settings, explainers, measures and records")
    parser.add_argument("--threads", type=int, default=1, help="threads to compute with")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--batch", type=int, default=256, help="records in memory at once")
    parser.add_argument("--maps", required=True, type=Path, help="the maps that are shown, Parquet")
    parser.add_argument("--curves", required=True, type=Path, help="the curves among the measures, Parquet")
    parser.add_argument("--out", required=True, type=Path, help="the measures, Parquet")


def run(options: argparse.Namespace) -> None:
    """Write the measures of every shadow model, one row group each, and the first one's maps that are shown."""
    take_card(options.device)
    import pyarrow as pa
    from torch import nn

    from mia_audit.commands.signals import shadow_files
    from mia_audit.interpretability.study import Sample, Task, defined, draw_sample, shown_rows
    from mia_audit.interpretability.tables import (
        COLUMNS,
        CURVES,
        MAPS,
        Found,
        Setting,
        curve_table,
        explain_settings,
        map_table,
        measure_tables,
    )
    from mia_audit.models import load, read_architecture, taken_by, to_input
    from mia_audit.pools.files import read_records
    from mia_audit.storage import write_table
    from mia_audit.training.device import batch_for, device_for

    spec = json.loads(options.spec)
    device = device_for(options.threads, options.device)
    pool = read_records(options.pool)
    architecture = read_architecture(options.architecture)
    found_weights = {
        (mechanism, epsilon): {
            shadow: path
            for block in options.blocks
            for shadow, path in shadow_files(
                options.architecture.parent / f"{mechanism}-eps{epsilon}" / "models" / block
            ).items()
        }
        for mechanism, epsilon in spec["settings"]
    }
    weights: dict[Setting, dict[int, Path]] = {setting: files for setting, files in found_weights.items() if files}
    settings = list(weights)
    # a shadow model that diverged is left out everywhere, a setting of which none is left altogether
    everywhere = set.intersection(*map(set, weights.values())) if weights else set()
    shadows = [shadow for shadow in sorted(everywhere) if shadow < spec["models"]]
    numbers = draw_sample(len(pool.labels), spec["records"], spec["dataset"], spec["seed"])
    inputs = to_input(pool.data[numbers], taken_by(architecture, pool.facts), architecture["input_shape"], device)
    sample = Sample(numbers, inputs, pool.labels[numbers])
    batch = batch_for(architecture, options.batch, device)
    known = defined(spec["measures"], tuple(architecture["input_shape"]))
    task = Task(spec["explainers"], spec["explaining"], known, spec["measuring"], spec["seed"], batch)
    shown: list[pa.Table] = []
    curves = [CURVES.empty_table()]

    def model(setting: Setting, shadow: int) -> nn.Module:
        return load(architecture, weights[setting][shadow]).to(device)

    def found() -> Iterator[tuple[int, Found]]:
        for shadow, explanations in explain_settings(model, settings, shadows, sample, task):
            if not shown:
                shown.append(map_table(shadow, explanations, sample, shown_rows(sample.labels, spec["shown"])))
            curves.append(curve_table(shadow, explanations))
            print(f"shadow {shadow}: explained {len(numbers)} records in {len(settings)} settings", flush=True)
            yield shadow, explanations

    reference = next((setting for setting in settings if list(setting) == spec["reference"]), None)
    tables = [*measure_tables(found(), reference, sample, task)] or [COLUMNS.empty_table()]
    maps = shown[0] if shown else MAPS.empty_table()
    left_out = [name for name in spec["measures"] if name not in known]
    told = {"records": len(numbers), "models": len(shadows), "reference": reference, "left_out": left_out}
    write_table(options.maps, maps, "explanations", len(maps), told)
    heights = pa.concat_tables(curves)
    write_table(options.curves, heights, "curves", len(heights), told)
    write_table(options.out, iter(tables), "interpretability", sum(map(len, tables)), told)
