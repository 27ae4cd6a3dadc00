"""AUC and TPR against the number of other models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.engine.ratios import STAND_INS
from mia_audit.report.data.findings import Findings
from mia_audit.report.data.series import DASHES, PALETTE
from mia_audit.report.figures.catalogue import figure, once
from mia_audit.report.figures.layout import draw_roc, label_lines, log_log, metrics_shown, panel_grid, shared_legend
from mia_audit.report.tables.models import models as table_of_models
from mia_audit.report.text.formatting import fixed, protection

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results


@figure(
    "models",
    once("models"),
    "AUC and TPR of the strongest attack on every setting against the number of other models per target, by likelihood. "
    "Ring: beyond this number, further models add less than 0.005 to both.",
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
        return "Fewer models cannot be evaluated: the audit has too few, or its design needs all of them."
    metrics = metrics_shown(findings)
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
                for axes, (metric, *_) in zip(panels[:, column], metrics, strict=True):
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
    for row, (_, label, _) in zip(panels, metrics, strict=True):
        label_lines(row, label)
    shared_legend(drawn, panels)
    return drawn


@figure(
    "roc_by_models",
    once("roc_by_models"),
    "ROC curves of the strongest attack on every setting with fewer other models per target, on logarithmic axes: mean over the same "
    "targets as steps, never interpolated. Dashed: guessing.",
)
def roc_by_models(results: Results, findings: Findings, subject: None = None) -> Figure | str:
    """Draw a panel per setting, and in it a curve per number of other models, by the headline likelihood or its stand-in."""
    from mia_audit.evaluation.roc import log_grid

    drawn = []
    for setting, counted in zip(results.spec.settings, results.model_counts, strict=True):
        kept = [row for row in counted if "roc" in row]
        likelihoods = {row["likelihood"] for row in kept}
        headline = STAND_INS.get(results.spec.likelihood, results.spec.likelihood)
        chosen = headline if headline in likelihoods else min(likelihoods, default="")
        if kept:
            drawn.append((setting, [row for row in kept if row["likelihood"] == chosen]))
    if not drawn:
        return "No ROC curve is kept for fewer models: the audit has too few, or its design needs all of them."
    figure, panels = panel_grid(1, len(drawn), height=2.3)
    for axes, (setting, rows) in zip(panels[0], drawn, strict=True):
        for order, row in enumerate(rows):
            grid = log_grid(row["non_members"], len(row["roc"]))
            label = f"{row['others']} others, {fixed(row['auc_mean'])}"
            draw_roc(axes, grid, np.array(row["roc"]), color=PALETTE[order % len(PALETTE)], label=label)
        log_log(axes, grid[0])
        axes.set_title(f"{setting.place}\n{protection(setting)}", fontsize=7)
        axes.legend(
            loc="lower right", fontsize=5, title=f"{rows[0]['attack']} on {rows[0]['signal']}, AUC", title_fontsize=5
        )
    label_lines(panels[0], "true-positive rate")
    return figure
