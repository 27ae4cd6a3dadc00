"""The convergence of one query, and the total ε and loss of disjoint parts of the data set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mia_audit.report.data.findings import Estimate, Findings, estimate
from mia_audit.report.data.series import PALETTE
from mia_audit.report.figures.catalogue import figure, once
from mia_audit.report.figures.private_studies import LEAST, PROTOCOLS, SPENDING, draw_panels, of_protocol

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.data.private import Studied
    from mia_audit.report.data.results import Results


@figure(
    "private_iterations",
    once("private_iterations", lambda spec: any(study.get("traced") for study in spec.studies.values())),
    "Approximation loss over the iterations of queries of the adaptive protocol that start closer to the minimum than the norm of "
    "a step's noise (Figure 4): a line per query.",
    private=True,
)
def iterations(results: Results, findings: Findings, subject: None = None) -> Figure:
    """Draw a line per query whose iterations were recorded."""
    studied = [one for one in results.studied if one.study.get("traced")]
    return draw_panels(studied, draw_iterations, "noisy step", "approximation loss")


def draw_iterations(axes: Axes, one: Studied) -> None:
    """Draw the losses of the queries whose iterations were recorded, or a note that no query started this close to the minimum."""
    paths = one.answers["path"].drop_nulls().to_list()
    for place, path in enumerate(paths):
        axes.plot([max(loss, LEAST) for loss in path], color=PALETTE[place % len(PALETTE)], linewidth=0.7)
    if not paths:
        axes.text(0.5, 0.5, "no query started this close", ha="center", va="center", transform=axes.transAxes)
    else:
        axes.set(yscale="log")


def in_parts(one: Studied, protocol: str) -> tuple[Estimate, Estimate] | None:
    """Return the largest ε spent by any of the disjoint parts, and the mean loss of their answers.

    None if the data set was not divided.
    """
    spent, losses = [], []
    for again in one.repetitions:
        rows = part_rows(again, protocol)
        if not rows:
            return None
        spent.append(max(again.epsilon_of(part) for part in rows))
        total = sum(len(part) for part in rows)
        losses.append(sum(float(part["excess_loss"].sum()) for part in rows) / total)
    return estimate(spent, one.confidence), estimate(losses, one.confidence)


def part_rows(one: Studied, protocol: str) -> list[pl.DataFrame]:
    """Return the answers of every part by one protocol, of one repetition."""
    parts = range(1, one.study.get("parts", 1) + 1)
    known = (one.experiment(f"part {number}").filter(protocol=protocol) for number in parts)
    return [rows for rows in known if len(rows)]


@figure(
    "private_parts",
    once("private_parts", lambda spec: any(study.get("parts", 1) > 1 for study in spec.studies.values())),
    "Approximation loss over the ε spent on all queries, by protocol: answered from the whole data set (filled), and from disjoint "
    "parts of it side by side, each with a part of the queries (open; section 6.2).",
    private=True,
)
def parts(results: Results, findings: Findings, subject: None = None) -> Figure:
    """Draw two points per protocol: the whole data set, and its disjoint parts."""
    studied = [one for one in results.studied if one.study.get("parts", 1) > 1]

    def panel(axes: Axes, one: Studied) -> None:
        for protocol in SPENDING:
            label, colour = PROTOCOLS[protocol]
            rows = of_protocol(protocol)
            divided = in_parts(one, protocol)
            whole = one.spent(rows), one.mean(rows, "excess_loss")
            for pair, filled, name in ((whole, colour, label), (divided, "white", None)):
                if pair is not None:
                    spent, loss = pair
                    errors: Any = {"xerr": [[spent.below], [spent.above]], "yerr": [[loss.below], [loss.above]]}
                    axes.errorbar(
                        spent.mean, loss.mean, **errors, fmt="o", color=colour, mfc=filled, markersize=4, label=name
                    )
        axes.set(xscale="log", yscale="log")

    return draw_panels(studied, panel, "ε spent", "approximation loss")
