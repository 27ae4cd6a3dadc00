"""Membership risk by group: the strongest attack on every group of records or persons."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mia_audit.report.data.findings import Findings
from mia_audit.report.data.groups import groups_of, strongest_only
from mia_audit.report.data.series import PALETTE
from mia_audit.report.figures.catalogue import figure, once_for
from mia_audit.report.figures.layout import GUESSING, errorbars, panel_grid, shared_legend
from mia_audit.report.text.formatting import protection, rate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results

LINE = 0.16
"""Height of a group's line in inches."""
MARGIN = 0.9


@figure(
    "groups",
    once_for("groups", lambda spec: (one.group for one in spec.settings if one.grouped)),
    "The strongest attack on every setting by group: AUC, with intervals for all groups of a setting together (Bonferroni), and TPR"
    " at the common threshold of all groups. Dashed: guessing, and the FPR over all groups together.",
)
def groups(results: Results, findings: Findings, subject: tuple[str, str]) -> Figure | str:
    """Draw a line per group and a colour per setting: AUC on the left, TPR at the common threshold on the right."""
    grouped = [one for one in strongest_only(groups_of(results, findings)) if one.finding.setting.group == subject]
    if not grouped:
        return "No group is large enough, or no setting could be attacked."
    names = list(dict.fromkeys((group.column, group.label) for one in grouped for group in one.listed))
    place = {name: -order for order, name in enumerate(names)}
    drawn, panels = panel_grid(1, 2, height=MARGIN + LINE * len(names) * max(1, len(grouped) / 2))
    left, right = panels[0]
    for order, (one, marker) in enumerate(zip(grouped, "osD^vP" * len(grouped), strict=False)):
        colour, label = PALETTE[order % len(PALETTE)], protection(one.finding.setting)
        shift = 0.6 * ((order + 0.5) / len(grouped) - 0.5)
        rows = [(place[group.column, group.label] - shift, group) for group in one.listed]
        errorbars(left, [(at, group.auc) for at, group in rows], colour, marker, label, upright=False)
        known = [(at, group.common) for at, group in rows if not math.isnan(group.common.mean)]
        errorbars(right, known, colour, marker, label, upright=False)
    left.axvline(0.5, **GUESSING)
    left.set_xlabel("AUC")
    if (fpr := grouped[0].fpr) is not None:
        right.axvline(fpr, **GUESSING)
        right.set_xlabel(f"TPR where {rate(fpr)} of all are false alarms")
    left.set_yticks([*place.values()], [f"{column}: {label}" for column, label in names], fontsize=6)
    right.set_yticks([*place.values()], [])
    for axes in (left, right):
        axes.set_ylim(0.6 - len(names), 0.6)
    drawn.suptitle(f"{subject[0]}, {subject[1]}", fontsize=8)
    shared_legend(drawn, panels)
    return drawn
