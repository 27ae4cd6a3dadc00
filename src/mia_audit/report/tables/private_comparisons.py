"""Private explanations: disjoint parts compared with the whole data set, and losses with misclassification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mia_audit.report.data.findings import Findings
from mia_audit.report.tables.catalogue import table
from mia_audit.report.tables.columns import parts

if TYPE_CHECKING:
    import polars as pl

    from mia_audit.report.data.results import Results


@table(
    "private_parts",
    condition=lambda spec: any(study.get("parts", 1) > 1 for study in spec.studies.values()),
    private=True,
)
def private_parts(results: Results, findings: Findings) -> pl.DataFrame:
    """Return a row per black box and protocol: ε spent and mean loss of the whole data set and of its disjoint parts.

    The ε of the parts is the largest of any part, because nobody is in two parts (parallel composition). Losses are computed
    on the whole data set. `_low` and `_high` are the ends of intervals over repetitions.
    """
    import polars as pl

    from mia_audit.report.figures.private_protocols import in_parts
    from mia_audit.report.figures.private_studies import SPENDING, of_protocol

    lines = []
    for one in results.studied:
        for protocol in SPENDING:
            divided = in_parts(one, protocol)
            if divided is None:
                continue
            rows = of_protocol(protocol)
            front = {"dataset": one.dataset, "black_box": one.name, "protocol": protocol, "parts": one.study["parts"]}
            values = {"epsilon_spent": one.spent(rows), "loss": one.mean(rows, "excess_loss")}
            values |= {"epsilon_spent_in_parts": divided[0], "loss_in_parts": divided[1]}
            lines.append(front | {"delta": one.study["delta"]} | _columns(values))
    return pl.DataFrame(lines, infer_schema_length=None)


@table(
    "private_misclassified",
    condition=lambda spec: any(study.get("nearest") for study in spec.studies.values()),
    private=True,
)
def private_misclassified(results: Results, findings: Findings) -> pl.DataFrame:
    """Return a row per black box: mean misclassification of the records nearest to queries, and its correlation with the loss.

    The correlation is Spearman's over a repetition's queries, null if nothing is misclassified. `_low` and `_high` are the
    ends of intervals over repetitions.
    """
    import polars as pl

    from mia_audit.report.figures.private_models import correlation
    from mia_audit.report.figures.private_studies import of_protocol

    lines = []
    for one in results.studied:
        if not one.study.get("nearest"):
            continue
        values = {"misclassified": one.mean(of_protocol("non-adaptive"), "misclassified")}
        values["loss"] = one.mean(of_protocol("non-adaptive"), "excess_loss")
        front = {"dataset": one.dataset, "black_box": one.name, "nearest": one.study["nearest"]}
        lines.append(front | _columns(values | {"correlation": correlation(one)}))
    return pl.DataFrame(lines, infer_schema_length=None)


def _columns(values: dict[str, Any]) -> dict[str, float | None]:
    """Return a mean and the ends of its interval as columns, empty where they are not known."""
    columns: dict[str, float | None] = {}
    for name, value in values.items():
        known = parts(name, value)
        columns |= {
            name: known[f"{name}_mean"],
            f"{name}_low": known[f"{name}_low"],
            f"{name}_high": known[f"{name}_high"],
        }
    return columns
