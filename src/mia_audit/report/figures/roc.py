"""Log-log ROC curves of one setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.report.data.findings import Finding, Findings
from mia_audit.report.data.series import Curve, roc_curves, series
from mia_audit.report.data.spec import Setting, Spec
from mia_audit.report.figures.catalogue import figure
from mia_audit.report.figures.layout import COLUMN, draw_roc, log_log
from mia_audit.report.text.formatting import fixed, protection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results

HALF_COLUMN = 28
"""Number of a legend's letters that fit into half a column."""
BANDS = 2
"""Number of bands; more would overlap."""


def _settings(spec: Spec) -> dict[str, Setting]:
    return {f"roc_{one.dataset}_{one.architecture}_{one.mechanism}-eps{one.named}": one for one in spec.settings}


@figure(
    "roc",
    _settings,
    "ROC curves on logarithmic axes: mean over targets as steps, never interpolated. Above the dashed diagonal an attack beats "
    "guessing. Bands: ± one standard deviation over targets, for the first two curves.",
)
def roc(results: Results, findings: Findings, setting: Setting) -> Figure | str:
    """Draw the ROC curves of the strongest attacks on a setting, in the colours of its group."""
    finding = next((one for one in findings.settings if one.setting == setting), None)
    if finding is None:
        from mia_audit.report.data.diverged import missing_models

        reasons = (missing_models(gap) for gap in results.spec.gaps if gap.setting == setting)
        return f"Not attacked: {next(reasons, 'no model is left')}."
    return roc_figure(
        finding, roc_curves(results, finding, series(findings.groups()[setting.group], findings.settings))
    )


def roc_figure(finding: Finding, lines: Sequence[Curve]) -> Figure:
    """Draw ROC curves as steps on logarithmic axes, the first ones with ± one standard deviation."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN, COLUMN * 1.08), layout="constrained")
    axes = figure.add_subplot()
    lowest = min((line.fpr[0] for line in lines), default=1e-3)
    for order, line in enumerate(lines):
        label = f"{line.series.name}, {fixed(line.leak.auc_estimate.mean)}"
        style: dict[str, Any] = {"color": line.series.colour, "dashes": line.series.dash or (None, None)}
        draw_roc(axes, line.fpr, line.mean, label=label, zorder=9 - order, **style)
        if order < BANDS:
            low, high = (np.maximum(line.mean + sign * line.sd, lowest / 2) for sign in (-1, 1))
            axes.fill_between(line.fpr, low, high, step="post", color=line.series.colour, alpha=0.15, linewidth=0)
    log_log(axes, lowest, label="guessing, 0.5")
    axes.set_ylabel("true-positive rate")
    setting = finding.setting
    axes.set_title(f"{setting.place}, {protection(setting)}")
    title = (
        f"strongest attack on each, its AUC; band: ± 1 sd over {len(lines[0].leak.targets)} targets" if lines else None
    )
    columns = 2 if max(len(text) for text in axes.get_legend_handles_labels()[1]) <= HALF_COLUMN else 1
    figure.legend(loc="outside lower center", ncols=columns, title=title, title_fontsize=6.5, columnspacing=1.2)
    return figure
