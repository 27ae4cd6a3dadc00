"""Every record's exposure and every attack's lower bound on ε, as written by `mia-audit audit`; too long for print."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from mia_audit.attacks.persons import NONE, unit_of
from mia_audit.report.data.findings import Finding, Findings
from mia_audit.report.tables.catalogue import table
from mia_audit.report.tables.columns import ATTACK, SETTING, identity

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.data.results import Results
    from mia_audit.report.data.spec import Spec


def _of_workflow(spec: Spec) -> bool:
    """Whether the workflow wrote the settings: `mia-audit audit` writes both tables itself, with or without a report."""
    return bool(spec.settings) and not any(setting.folder for setting in spec.settings)


@table("exposure", condition=lambda spec: spec.exposed > 0 and _of_workflow(spec))
def exposures(results: Results, findings: Findings) -> pl.DataFrame:
    """Return the effect of membership on the scores of every record and person under the strongest attack on each setting.

    Within a setting the most exposed come first. `origin` is the row in the user's table, or the file of the image.
    """
    import polars as pl

    words = dict.fromkeys((*SETTING, "unit"), pl.String)
    units = {"record": pl.Int32, "person": pl.String, "origin": pl.String}
    attack = dict.fromkeys(ATTACK, pl.String)
    numbers = dict.fromkeys(("member_score", "non_member_score", "gap", "percentile"), pl.Float64)
    schema = pl.Schema({**words, **units, **attack, **numbers, "rank": pl.Int32})
    parts = [part for finding in findings.settings for part in _of_setting(results, finding)]
    return pl.concat([pl.DataFrame(schema=schema), *(part.select(schema.names()).cast(schema) for part in parts)])


def _of_setting(results: Results, finding: Finding) -> Iterator[pl.DataFrame]:
    """Yield the exposures of a setting's persons, where membership was drawn for them, and of its records."""
    if not finding.strongest:
        return
    origin = results.origins(finding.setting.pool)
    if finding.by_person:
        yield _ranked(results, finding, finding.aggregate, origin)
    yield _ranked(results, finding, NONE, origin)


def _ranked(results: Results, finding: Finding, aggregate: str, origin: Callable[[int], str]) -> pl.DataFrame:
    import numpy as np
    import polars as pl

    from mia_audit.evaluation.exposure import exposure

    leak = max(finding.strongest.values(), key=lambda leak: float(leak.auc.mean()))
    scored = results.scored(finding.setting, *leak.key, aggregate)
    persons = aggregate != NONE
    named = identity(finding.setting) | {"unit": unit_of(aggregate)} | dict(zip(ATTACK, leak.key, strict=True))
    columns = {
        "record": None if persons else scored.record,
        "person": None if scored.person is None else scored.person.astype(np.str_),
        "origin": None if persons else [origin(int(number)) or None for number in scored.record],
    }
    return (
        pl.DataFrame(exposure(scored.score, scored.member))
        .with_columns(pl.lit(value).alias(name) for name, value in named.items())
        .with_columns(
            pl.lit(None).alias(name) if values is None else pl.Series(name, values) for name, values in columns.items()
        )
        .fill_nan(None)
        .sort("rank")
    )


@table("epsilon", condition=_of_workflow)
def bounds(results: Results, findings: Findings) -> pl.DataFrame:
    """Return the lower bound on ε of every attack and null control on every setting, by every method.

    Each bound is from one attack; the table of settings has the joint bounds of all attacks.
    """
    import polars as pl

    from mia_audit.evaluation.bounds_table import bounds_table

    spec = results.spec
    tables = []
    for setting, metrics in zip(spec.settings, results.metrics, strict=True):
        delta = setting.delta or spec.delta
        named = [pl.lit(value).alias(name) for name, value in identity(setting).items()]
        bounded = bounds_table(metrics, delta, spec.confidence, setting.design == "bernoulli")
        bounded = bounded.rename({"epsilon": "epsilon_lower_bound"})
        tables.append(bounded.select(*named, pl.all()))
    return pl.concat(tables)
