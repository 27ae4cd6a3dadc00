"""explanation_metrics.parquet, curves.parquet and explanations.parquet: measures of all settings' explanations, and the maps
that are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from mia_audit.explain.release import FULL, release_of
from mia_audit.explanation_metrics.catalogue import FULL_MAP, OTHER, REFERENCE
from mia_audit.explanation_metrics.study import ExplainedSample, MetricsTask, alone, beside, explained
from mia_audit.learners.protocol import Attribution, TrainedModel
from mia_audit.training.task import Records

Setting = tuple[str, str]
"""A setting: mechanism and ε."""
Explanations = Mapping[Setting, Mapping[Attribution, ExplainedSample]]
"""One shadow model's explanations of the sample in every setting."""

TEXT, NUMBER = pa.string(), pa.int32()
MODEL = (("mechanism", TEXT), ("epsilon", TEXT), ("shadow", NUMBER))
ATTRIBUTION = (("explainer", TEXT), ("quantity", TEXT))

COLUMNS = pa.schema(
    [
        *(pa.field(*one, nullable=False) for one in (*MODEL, ("record", NUMBER), *ATTRIBUTION, ("measure", TEXT))),
        ("against", TEXT),
        ("same_class", pa.bool_()),
        ("value", pa.float64()),
    ]
)
"""`same_class` says whether both models explain the same class.

It is null, like `against`, if no two models are compared. `value` is null if a measure is not defined.
"""


def explain_settings(
    load: Callable[[Setting, int], TrainedModel],
    settings: Sequence[Setting],
    shadows: Sequence[int],
    sample: Records,
    task: MetricsTask,
) -> Iterator[tuple[int, Explanations]]:
    """Yield every shadow model's explanations of the sample, by setting; one model is loaded at a time."""
    for shadow in shadows:
        yield (
            shadow,
            {setting: explained(load(setting, shadow), sample, replace(task, model=shadow)) for setting in settings},
        )


def measure_tables(
    explanations: Iterator[tuple[int, Explanations]], reference: Setting | None, sample: Records, task: MetricsTask
) -> Iterator[pa.Table]:
    """Yield the measures of every shadow model: of the model alone, and compared with the reference.

    Every second model is also compared with the previous one, and a map that is released in another form with the full one.

    The pairs of consecutive models are disjoint, so their values are independent.
    """
    last, before = -1, dict[Setting, Mapping[Attribution, ExplainedSample]]()
    for shadow, settings in explanations:
        parts = []
        for setting, keys in settings.items():
            for key, one in keys.items():
                place = (setting, shadow, key, sample)
                parts.append(_table(*place, alone(one, sample.labels, task)))
                if release_of(key.explainer)[1] != FULL:
                    parts.append(_compared(*place, one, replace(one, maps=one.full), task, FULL_MAP))
                if reference is not None and setting != reference:
                    parts.append(_compared(*place, one, settings[reference][key], task, REFERENCE))
                if shadow % 2 and last == shadow - 1:
                    parts.append(_compared(*place, one, before[setting][key], task, OTHER))
        last, before = shadow, dict(settings)
        yield pa.concat_tables(parts)


def _compared(
    setting: Setting,
    shadow: int,
    key: Attribution,
    sample: Records,
    one: ExplainedSample,
    other: ExplainedSample,
    task: MetricsTask,
    against: str,
) -> pa.Table:
    return _table(
        setting,
        shadow,
        key,
        sample=sample,
        values=beside(one, other, task),
        against=against,
        same_class=one.classes == other.classes,
    )


def _table(
    setting: Setting,
    shadow: int,
    key: Attribution,
    sample: Records,
    values: Mapping[str, np.ndarray],
    against: str | None = None,
    same_class: np.ndarray | None = None,
) -> pa.Table:
    """Return one model's rows, measure by measure."""
    count, times = len(sample.numbers), len(values)
    rows = count * times
    same = np.tile(same_class, times) if same_class is not None else None
    constant = (*setting, shadow, *key)
    mechanism, epsilon, shadows, explainer, quantity = (_repeated(value, rows) for value in constant)
    measured = np.concatenate([*values.values(), np.empty(0)])
    return pa.table(
        [
            mechanism,
            epsilon,
            shadows,
            np.tile(sample.numbers, times),
            explainer,
            quantity,
            [name for name in values for _ in range(count)],
            _repeated(against, rows),
            pa.nulls(rows, pa.bool_()) if same is None else same,
            pa.array(measured, from_pandas=True),  # NaN becomes null
        ],
        schema=COLUMNS,
    )


def curve_table(shadow: int, explanations: Explanations) -> pa.Table:
    """Return one shadow model's curves in every setting, averaged over the records, one row per step."""
    rows = [
        (mechanism, epsilon, shadow, explainer, quantity, measure, step / (heights.shape[1] - 1), float(height))
        for (mechanism, epsilon), keys in explanations.items()
        for (explainer, quantity), one in keys.items()
        for measure, heights in one.curves.items()
        for step, height in enumerate(heights.mean(axis=0))
    ]
    return pa.Table.from_pylist([dict(zip(CURVES.names, row, strict=True)) for row in rows], schema=CURVES)


CURVES = pa.schema([*MODEL, *ATTRIBUTION, ("measure", TEXT), ("share", pa.float64()), ("value", pa.float64())])
"""`share` of the coordinates has been removed or inserted; `value` is the mean of the class's probability over the records."""


def _repeated(value: str | int | None, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, NUMBER if isinstance(value, int) else TEXT), rows)


def map_table(shadow: int, explanations: Explanations, sample: Records, rows: Sequence[int]) -> pa.Table:
    """Return one shadow model's maps for some rows of the sample in every setting, one table row per map, float32 in row-major order."""
    columns: dict[str, list[Any]] = {name: [] for name in MAPS.names}
    for (mechanism, epsilon), keys in explanations.items():
        for (explainer, quantity), one in keys.items():
            for row in rows:
                shape = (1, *one.maps.shape[1:])[-2:]
                values = (
                    mechanism, epsilon, shadow, int(sample.numbers[row]), explainer, quantity,
                    int(sample.labels[row]), int(one.classes[row]), *shape, one.maps[row].ravel().astype(np.float32),
                )  # fmt: skip
                for column, value in zip(columns.values(), values, strict=True):
                    column.append(value)
    return pa.table(columns, schema=MAPS)


MAPS = pa.schema(
    [
        *(*MODEL, ("record", NUMBER), *ATTRIBUTION, ("label", NUMBER), ("class", NUMBER)),
        *(("height", NUMBER), ("width", NUMBER), ("map", pa.list_(pa.float32()))),
    ]
)
"""`class` is the explained class; `map` is the sum of the attributions over channels, [height · width]."""
