"""Membership designs (half, bernoulli, split), which decide the records in every shadow model's training set."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from mia_audit.pools.section import Draw, Membership
from mia_audit.pools.store import persons_of
from mia_audit.seeds import generator
from mia_audit.storage import open_table


def draw_membership(section: Membership, records: int, dataset: str, seed: int) -> Bool[np.ndarray, "n k"]:
    """Draw a [records, models] membership matrix; each column depends only on (seed, dataset, shadow).

    `half`: every model trains on its own uniformly random half of the pool (Huang et al. 2024). `bernoulli`: a fair
    coin decides for every record and model (Steinke et al. 2023). `split`: every model trains on its own uniformly
    random share, with at least one record in and one out, like repeated random splits in a study. No design puts every
    record in exactly half of the models, because the other models' members would then reveal the target's. If the unit
    is the person, `records` counts persons.
    """
    return draw_columns(section, records, dataset, seed, range(section.models))


def draw_columns(
    section: Membership | Draw, records: int, dataset: str, seed: int, shadows: Iterable[int]
) -> Bool[np.ndarray, "n k"]:
    """Draw the columns of the membership matrix for these models."""
    design = {"half": _half, "bernoulli": _bernoulli, "split": _split}[section.design]
    columns = [design(records, generator(seed, "membership", dataset, shadow), section) for shadow in shadows]
    return np.stack(columns, axis=1)


def draw_training_sets(
    draw: Draw, table: Path, dataset: str, seed: int, shadows: Iterable[int]
) -> Bool[np.ndarray, "n k"]:
    """Draw models' training sets from the records of a pool's table, [records, models].

    If the unit is the person, one draw decides for all records of a person.
    """
    if draw.unit == "person":
        persons = persons_of(table)
        return persons.spread(draw_columns(draw, len(persons), dataset, seed, shadows))
    return draw_columns(draw, open_table(table, "records").metadata.num_rows, dataset, seed, shadows)


def _half(records: int, random: np.random.Generator, section: Membership | Draw) -> Bool[np.ndarray, " n"]:
    return random.permutation(records) < records // 2


def _bernoulli(records: int, random: np.random.Generator, section: Membership | Draw) -> Bool[np.ndarray, " n"]:
    return random.random(records) < 0.5


def _split(records: int, random: np.random.Generator, section: Membership | Draw) -> Bool[np.ndarray, " n"]:
    inside = min(max(round((section.share or 0) * records), 1), records - 1)
    return random.permutation(records) < inside
