"""The figures for a paper: log-log ROC curves, attacks over ε, accuracy against leakage; the same inputs give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.report.findings import Estimate, Finding, Findings
from mia_audit.report.gaps import told
from mia_audit.report.inherent import compared, inherent_figure
from mia_audit.report.interpretability import interpretations
from mia_audit.report.outputs import FIGURE_FORMATS, curves_name, inherent_name, roc_name, sheet_name, study_names
from mia_audit.report.panels import (
    COLUMN,
    GUESSING,
    errorbars,
    label_lines,
    name_places,
    panel_grid,
    shared_legend,
    take_literally,
)
from mia_audit.report.series import CHANNELS, PALETTE, Curve, Series, curves, series, strongest
from mia_audit.report.words import fixed, protection, rate
from mia_audit.storage import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mia_audit.report.results import Results

STYLE: dict[str, Any] = {
    "font.size": 7.5,
    "axes.labelsize": 7.5,
    "axes.titlesize": 7.5,
    "axes.titlelocation": "left",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "lines.linewidth": 1.2,
    "pdf.fonttype": 42,
    "svg.hashsalt": "mia-audit",
}
UNDATED: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}
DPI = 300
"""Resolution of what is made of pixels."""
HALF = 28
"""Letters of a legend that fit into half a column."""
LINE = 8.5
"""Height of a label, in points."""
LETTERS_PER_INCH = 25
"""Letters of the smallest print that fit into an inch."""
LABEL_LETTERS_PER_INCH = 17
"""Letters of a setting's name beside a point that do."""
PANEL = 0.8
"""Share of its part of a figure that a panel takes, the rest being its axis."""
MARKERS = "os^DvPX"
BANDS = 2
"""More bands than these hide each other."""


@contextmanager
def paper_style() -> Iterator[None]:
    """Draw as in print, whatever the user's own matplotlib settings are."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for name, value in STYLE.items():
            matplotlib.rcParams[name] = value  # type: ignore[literal-required, index]
        yield


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write a figure as PDF, SVG and PNG without anything that changes from run to run."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    take_literally(figure)
    if engine := figure.get_layout_engine():
        for _ in range(2):  # the first pass knows neither the ticks nor the sizes that the layout ends in
            engine.execute(figure)
        figure.set_layout_engine("none")  # laid out once for all formats
    # Not by savefig, which draws a figure that has been laid out twice for every format.
    canvas = {"pdf": FigureCanvasPdf, "svg": FigureCanvasSVG, "png": FigureCanvasAgg}
    for suffix in FIGURE_FORMATS:
        figure.set_dpi(DPI)
        with replacing(folder / f"{name}.{suffix}") as partial:
            getattr(canvas[suffix](figure), f"print_{suffix}")(partial, metadata=UNDATED[suffix])


def disclaimed(figure: Figure, settings: Sequence[Finding]) -> Figure:
    """Write above a figure which of its settings guarantee nothing, and why; other figures stay as they are."""
    reasons = {found.setting.mechanism: found.setting.no_guarantee for found in settings if found.setting.no_guarantee}
    if reasons:
        letters = int(figure.get_figwidth() * LETTERS_PER_INCH)
        told = [fill(f"{mechanism}: ε none, {why}", letters) for mechanism, why in reasons.items()]
        figure.suptitle("\n".join(told), fontsize=5.5, color="0.35", x=0.02, ha="left")
    return figure


def draw(results: Results, findings: Findings, folder: Path) -> None:
    """Draw every figure of an audit into a folder; see `outputs.figure_names`."""
    from mia_audit.report.sweeps import sweep_figures  # it draws with what stands here

    with paper_style():
        for group in findings.groups().values():
            drawn = series(group)
            for found in group:
                figure = roc_figure(found, curves(results, found, drawn))
                save(disclaimed(figure, [found]), folder, roc_name(vars(found.setting)))
        for gap in results.spec.gaps:
            if not gap.attacked:
                save(notice(f"Not attacked: {told(gap)}."), folder, roc_name(vars(gap.setting)))
        save(disclaimed(epsilon_figure(findings), findings.settings), folder, "attack_by_epsilon")
        if any(found.test_accuracy for found in findings.settings):
            save(disclaimed(tradeoff_figure(findings), findings.settings), folder, "tradeoff")
        studied = sweep_figures(findings)
        for name in study_names(vars(setting) for setting in results.spec.settings):
            figure = studied.get(name) or notice("No setting that would stand here was trained to its end.")
            save(disclaimed(figure, findings.settings), folder, name)
        comparisons = compared(findings)
        for dataset in results.spec.inherent:
            known = dataset in comparisons
            figure = inherent_figure(comparisons[dataset]) if known else notice("No explanation was attacked here.")
            save(disclaimed(figure, findings.settings), folder, inherent_name(dataset))
        _draw_explanations(results, findings, folder)


def notice(text: str) -> Figure:
    """Draw words where a figure would be, had there been anything to draw."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN, COLUMN / 2))
    figure.text(0.5, 0.5, text, ha="center", va="center", wrap=True)
    return figure


def _draw_explanations(results: Results, findings: Findings, folder: Path) -> None:
    from mia_audit.report.explanation_curves import curves_figure
    from mia_audit.report.explanation_figures import interpretability_figure, sheet_figure

    spec, groups = results.spec, findings.groups()
    if not spec.interpreted:
        return
    interpreted = {place: one for place, one in interpretations(results).items() if place in groups}
    nothing = "No setting whose explanations would stand here was trained to its end."
    figure = interpretability_figure(findings, interpreted) if interpreted else notice(nothing)
    save(disclaimed(figure, findings.settings), folder, "interpretability")
    every = [*spec.settings, *(gap.setting for gap in spec.gaps)]
    for place in dict.fromkeys(setting.group for setting in every if setting.trained):
        group = groups.get(place, [])
        if spec.shown:
            drawn = place in interpreted and not results.maps(place).is_empty()
            figure = sheet_figure(results, group, interpreted[place]) if drawn else notice(nothing)
            save(disclaimed(figure, group), folder, sheet_name(*place))
        if spec.curved:
            drawn = place in interpreted and not results.explanation_curves(place).is_empty()
            figure = curves_figure(results, group) if drawn else notice(nothing)
            save(disclaimed(figure, group), folder, curves_name(*place))


def roc_figure(found: Finding, lines: Sequence[Curve]) -> Figure:
    """Draw the log-log ROC curves of one setting: steps, not interpolated; the first two with ± one standard deviation."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN, COLUMN * 1.08), layout="constrained")
    axes = figure.add_subplot()
    lowest = min((line.fpr[0] for line in lines), default=1e-3)
    for order, line in enumerate(lines):
        label = f"{line.series.name}, {fixed(line.leak.auc_estimate.mean)}"
        style: dict[str, Any] = {"color": line.series.colour, "dashes": line.series.dash or (None, None)}
        axes.plot(line.fpr, _drawable(line.mean), drawstyle="steps-post", label=label, zorder=9 - order, **style)
        if order < BANDS:
            low, high = (np.maximum(line.mean + sign * line.sd, lowest / 2) for sign in (-1, 1))
            axes.fill_between(line.fpr, low, high, step="post", color=line.series.colour, alpha=0.15, linewidth=0)
    axes.plot([lowest, 1], [lowest, 1], **GUESSING, label="guessing, 0.5")
    axes.set(xscale="log", yscale="log", xlim=(lowest, 1), ylim=(lowest, 1.05))
    axes.set(xlabel="false-positive rate", ylabel="true-positive rate")
    setting = found.setting
    axes.set_title(f"{setting.dataset}, {setting.architecture}, {protection(setting)}")
    title = (
        f"strongest attack on each, its AUC; band: ± 1 sd over {len(lines[0].leak.targets)} targets" if lines else None
    )
    columns = 2 if max(len(text) for text in axes.get_legend_handles_labels()[1]) <= HALF else 1
    figure.legend(loc="outside lower center", ncols=columns, title=title, title_fontsize=6.5, columnspacing=1.2)
    return figure


def _drawable(values: np.ndarray) -> np.ndarray:
    """A TPR of 0 has no place on a logarithmic axis."""
    return np.where(values > 0, values, np.nan)


def epsilon_figure(findings: Findings) -> Figure:
    """Draw AUC and TPR of every series over the settings of a group, a column of panels per group."""
    groups = list(findings.groups().values())
    metrics: list[tuple[str, str, float]] = [("auc", "AUC", 0.5)]
    if findings.fpr is not None:
        metrics.append(("tpr", f"TPR at {rate(findings.fpr)} FPR", findings.fpr))
    figure, panels = panel_grid(len(metrics), len(groups), height=1.75)
    drawn = series(findings.settings)  # one legend for all panels
    for column, group in enumerate(groups):
        for row, (metric, _, chance) in enumerate(metrics):
            axes = panels[row][column]
            _over_settings(axes, group, drawn, metric)
            axes.axhline(chance, **GUESSING)
            name_places(axes, [tick(found, group) for found in group])
            if row == 0:
                axes.set_title(f"{group[0].setting.dataset}, {group[0].setting.architecture}")
    for row, (_, label, _) in enumerate(metrics):
        label_lines(panels[row], label)
    shared_legend(figure, panels)
    return figure


def _over_settings(axes: Axes, group: list[Finding], drawn: list[Series], metric: str) -> None:
    chosen = [strongest(found) for found in group]
    slots = len(drawn) + 1
    for slot, one in enumerate(drawn):
        known = [
            (x, getattr(found[one.name], f"{metric}_estimate")) for x, found in enumerate(chosen) if one.name in found
        ]
        offset = (slot - (slots - 1) / 2) * 0.7 / slots
        errorbars(axes, [(x + offset, value) for x, value in known], one.colour, MARKERS[slot], one.name)
    if metric == "auc":
        controls = [(x, found.null.headline) for x, found in enumerate(group) if found.null and found.null.headline]
        offset = (slots - 1 - (slots - 1) / 2) * 0.7 / slots
        values = [(x + offset, next(iter(headline.values()))) for x, headline in controls]
        errorbars(axes, values, "0.45", "x", "null control")


def tradeoff_figure(findings: Findings) -> Figure:
    """Draw AUC against test accuracy, a line per channel through the settings of a group, a panel per group."""
    groups = [[found for found in group if found.test_accuracy] for group in findings.groups().values()]
    groups = [group for group in groups if group]
    figure, panels = panel_grid(1, len(groups), height=2.3)
    for axes, group in zip(panels[0], groups, strict=True):
        for (channel, name), colour, marker in zip(CHANNELS.items(), PALETTE, "osD^", strict=False):
            placed = [(found, found.strongest[channel].auc_estimate) for found in group if channel in found.strongest]
            _tradeoff_line(axes, placed, colour, marker, name)
        axes.axhline(0.5, **GUESSING)
        axes.margins(y=0.12)
        _make_room(axes, group)
        _label_settings(axes, group)
        axes.set_xlabel("test accuracy")
        axes.set_title(f"{group[0].setting.dataset}, {group[0].setting.architecture}")
    label_lines(panels[0], "AUC of the strongest attack")
    shared_legend(figure, panels)
    return figure


def _tradeoff_line(axes: Axes, placed: list[tuple[Finding, Estimate]], colour: str, marker: str, name: str) -> None:
    known = [(found.test_accuracy, leak) for found, leak in placed if found.test_accuracy]
    if not known:
        return
    x, y = [accuracy.mean for accuracy, _ in known], [leak.mean for _, leak in known]
    x_errors = [[a.below for a, _ in known], [a.above for a, _ in known]]
    y_errors = [[v.below for _, v in known], [v.above for _, v in known]]
    axes.plot(x, y, color=colour, linewidth=0.8, alpha=0.5)
    style: dict[str, Any] = {"elinewidth": 0.9, "capsize": 1.8, "capthick": 0.9, "markersize": 3.6}
    axes.errorbar(x, y, xerr=x_errors, yerr=y_errors, fmt=marker, color=colour, label=name, **style)


def _make_room(axes: Axes, group: list[Finding]) -> None:
    """Widen the axis of accuracies by what the settings' names take: the most accurate one's stands on the right."""
    known = [(found.test_accuracy, len(tick(found, group)) + 1) for found in group if found.test_accuracy]
    most = max(accuracy.mean for accuracy, _ in known)
    letters = [[count for one, count in known if (one.mean == most) == right] for right in (False, True)]
    inches = axes.figure.get_size_inches()[0] / axes.get_gridspec().ncols * PANEL  # type: ignore[union-attr]
    left, right = (max(0.08, min(max(counts, default=0) / LABEL_LETTERS_PER_INCH / inches, 0.45)) for counts in letters)
    low = min(accuracy.mean - accuracy.below for accuracy, _ in known)
    high = max(accuracy.mean + accuracy.above for accuracy, _ in known)
    unit = max(high - low, 1e-3) / (1 - left - right)
    axes.set_xlim(low - left * unit, high + right * unit)


def _label_settings(axes: Axes, group: list[Finding]) -> None:
    """Write each setting's name beside its topmost point, on the side that its lines do not leave from."""
    known = [(found, found.test_accuracy) for found in group if found.test_accuracy]
    most = max(accuracy.mean for _, accuracy in known)
    tops = [max(leak.auc_estimate.mean for leak in found.strongest.values()) for found, _ in known]
    low, high = axes.get_ylim()
    points = axes.get_window_extent().height * 72 / axes.get_figure().dpi / (high - low)  # type: ignore[union-attr]
    free = -math.inf
    for top, (found, accuracy) in sorted(zip(tops, known, strict=True), key=lambda pair: pair[0]):
        side = 1 if accuracy.mean == most else -1
        place = (accuracy.mean + side * accuracy.above, top)
        lift = max(0.0, free - top * points) if side < 0 else 0.0  # clear of the label below it
        free = top * points + lift + LINE if side < 0 else free
        style: dict[str, Any] = {"ha": "left" if side > 0 else "right", "va": "center", "fontsize": 7}
        text = tick(found, group).replace("\n", ", ")
        axes.annotate(text, place, xytext=(4 * side, lift), textcoords="offset points", **style)


def tick(found: Finding, group: list[Finding]) -> str:
    """Name a setting as shortly as its group allows."""
    private = {other.setting.mechanism for other in group if other.setting.private}
    setting = found.setting
    if setting.no_guarantee:
        return f"{setting.mechanism}\nε none"
    if not setting.private and not setting.trained and not setting.explained:
        return protection(setting)
    if not setting.private:
        return "no DP" if setting.mechanism == "none" else f"{setting.mechanism}\n(no guarantee)"
    return f"ε = {setting.epsilon}" if len(private) == 1 else f"{setting.mechanism}\nε = {setting.epsilon}"
