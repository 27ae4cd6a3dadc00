"""Tables of printed numbers beside measurements of finished studies."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from mia_audit.report.tables.columns import parts
from mia_audit.report.tables.layout import Cell, Column, Layout, text
from mia_audit.report.text.formatting import significant, with_interval
from mia_audit.reproduction.studies import STAND_INS, PrintedNumber, Studies

NAMES = {
    "loss": "approximation loss",
    "words_shared_with_mim": "of the top 5 words shared with MIM",
    "words_shared_with_lime": "of the top 5 words shared with LIME",
    "steps_adaptive": "mean steps, adaptive",
    "steps_enhanced": "mean steps, enhanced adaptive",
    "least_steps": "least steps of a warm start",
    "share_of_all_steps": "share of queries that take all steps",
    "share_of_all_steps_overfitted_region": "share of queries that take all steps, section 6.5",
    "test_accuracy": "test accuracy of the model",
}
"""What tables call the quantities."""

NOTE = (
    "The paper's data sets are not available: `alike` is Algorithm 1 with its own noise, `exact` with exactly calibrated noise, both "
    "on substitutes for them. The paper prints mean ± variance over queries; intervals are Student's t over repetitions, of accuracies "
    "over models."
)


def frame(printed: Sequence[PrintedNumber], studies: Studies) -> pl.DataFrame:
    """Return a row per printed number, with its measurements and their intervals over repetitions, or the command if there are none."""
    lines = []
    for number in printed:
        known, stand_in = studies.number(number), STAND_INS[number.dataset]
        line: dict[str, object] = {"table": number.table, "where": number.where, "dataset": number.dataset}
        line |= {"stand_in": stand_in.dataset, "quantity": number.quantity, "epsilon": number.epsilon}
        line |= {"printed_mean": number.mean, "printed_variance": number.variance}
        for name in ("alike", "exact"):
            line |= {key: value for key, value in parts(name, known.get(name)).items() if not key.endswith("_sd")}
        repeated = next((value.targets for value in known.values()), None)
        lines.append(line | {"repetitions": repeated, "command": "" if known else stand_in.command})
    words = ("table", "where", "dataset", "stand_in", "quantity", "epsilon", "command")
    kinds = {name: pl.String if name in words else pl.Float64 for name in lines[0]}
    return pl.DataFrame(lines, schema=kinds | {"repetitions": pl.Int32})


def layout(title: str, printed: Sequence[PrintedNumber], studies: Studies) -> Layout:
    """Return a table with a row per data set and quantity and a column per ε, like Table 3."""
    across = list(dict.fromkeys(number.epsilon for number in printed))
    down = list(dict.fromkeys((number.dataset, number.quantity) for number in printed))
    known = {(number.dataset, number.quantity, number.epsilon): number for number in printed}
    heads = [*text("Data set", "Quantity"), *(Column(f"ε = {epsilon}" if epsilon else "printed") for epsilon in across)]
    body: list[list[Cell | str]] = [
        [*_named(*row), *(_cell(known.get((*row, epsilon)), studies) for epsilon in across)] for row in down
    ]
    blank = dict.fromkeys(STAND_INS[number.dataset].command for number in printed if not studies.number(number))
    return Layout(heads, body, f"{title}.", [NOTE, *(f"Cells with a printed number alone: {one}" for one in blank)])


def _named(dataset: str, quantity: str) -> list[Cell | str]:
    stand_in = STAND_INS[dataset].dataset
    return [Cell(dataset, (f"here {stand_in}",) if stand_in else ()), NAMES[quantity]]


def _cell(number: PrintedNumber | None, studies: Studies) -> Cell:
    if number is None:
        return Cell("")
    variance = "" if number.variance is None else f" ± {significant(number.variance)}"
    measured = studies.number(number).items()
    return Cell(
        significant(number.mean) + variance, tuple(f"{name} {with_interval(value)}" for name, value in measured)
    )
