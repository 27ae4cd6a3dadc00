"""How many models? AUC and TPR against the number of other models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mia_audit.report.data.findings import Findings
from mia_audit.report.data.series import DASHES, PALETTE
from mia_audit.report.figures.catalogue import figure, once
from mia_audit.report.figures.layout import label_lines, panel_grid, shared_legend
from mia_audit.report.tables.models import models as table_of_models
from mia_audit.report.text.formatting import protection, rate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results


@figure(
    "models",
    once("models"),
    "AUC and TPR of the strongest attack on every setting against the number of other models per target, by likelihood. "
    "Ring: from there on all other models add less than 0.005 to both.",
)
def models(results: Results, findings: Findings, subject: None = None) -> Figure | str:
    """Draw a column of panels per group, a colour per setting and a dash per likelihood."""
    table = table_of_models(results, findings)
    groups = [
        group
        for place, group in findings.groups().items()
        if len(table.filter(dataset=place[0], architecture=place[1]))
    ]
    if not groups:
        return "Too few models, or a design that needs all of them, to see what fewer would have found."
    metrics = {"auc": "AUC"} | ({"tpr": f"TPR at {rate(findings.fpr)} FPR"} if findings.fpr is not None else {})
    drawn, panels = panel_grid(len(metrics), len(groups), height=1.75)
    likelihoods = table["likelihood"].unique(maintain_order=True).to_list()
    for column, group in enumerate(groups):
        for order, finding in enumerate(group):
            setting = finding.setting
            place = {"dataset": setting.dataset, "architecture": setting.architecture, "mechanism": setting.mechanism}
            rows = table.filter(**place, epsilon=setting.reported_epsilon)
            for dash, likelihood in zip(DASHES[1:], likelihoods, strict=False):
                line = rows.filter(likelihood=likelihood)
                ring = line.filter(level=True)
                for axes, metric in zip(panels[:, column], metrics, strict=True):
                    colour = PALETTE[order % len(PALETTE)]
                    label = f"{protection(setting)}, {likelihood}"
                    axes.plot(
                        line["others"], line[metric], ".-", color=colour, dashes=dash or (None, None), label=label
                    )
                    axes.plot(ring["others"], ring[metric], "o", color=colour, fillstyle="none", markersize=7)
        for axes in panels[:, column]:
            axes.set_xscale("log")
            axes.set_xticks(ticks := sorted(set(table["others"])), [str(tick) for tick in ticks])
            axes.minorticks_off()
        panels[0][column].set_title(group[0].setting.place)
        panels[-1][column].set_xlabel("other models")
    for row, label in zip(panels, metrics.values(), strict=True):
        label_lines(row, label)
    shared_legend(drawn, panels)
    return drawn
