"""The page's interactive charts, as Vega-Lite: log-log ROC, attacks over settings, accuracy against leakage."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mia_audit.report.data.explanation_metrics import Interpretation, explainer_series, measure_label, similarity
from mia_audit.report.data.findings import Estimate, Finding, Findings, reference
from mia_audit.report.data.series import CHANNELS, PALETTE, Curve, Series, roc_curves, series, strongest
from mia_audit.report.text.formatting import broken, rate, titled, upper_first

if TYPE_CHECKING:
    import altair as alt

    from mia_audit.report.data.results import Results

Chart = tuple[str, str, str, dict[str, Any]]
"""Id, label, caption and Vega-Lite specification."""
BESIDE, ROOM = 16, 110
"""Letters per line of a name beside a point, and the largest width of names in pixels: wider ones would reverse the axis on a phone."""
BELOW, LONGEST, SHORTEST = 38, 22, 8
"""Number of letters that fit below a chart on a phone; the largest and the smallest number per line of a setting's name."""
EVERY = 4
"""Only every fourth FPR of a curve is drawn."""
X_SHAPE = "M-1,-.5L-.5,-1L0,-.5L.5,-1L1,-.5L.5,0L1,.5L.5,1L0,.5L-.5,1L-1,.5L-.5,0Z"
SHAPES = {
    **{"o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "P": "cross"},
    "X": X_SHAPE,
}
"""Vega's name or outline for each marker of the figures."""
WITHIN = "datum.value > -1e-9 && datum.value < 1 + 1e-9 ? datum.label : ''"
"""Labels of an axis of rates, which may extend beyond 0 and 1 for padding."""
ROC_CAPTION = (
    "ROC curves on logarithmic axes: mean over targets, as steps, never interpolated, down to one false alarm among "
    "all records that were not trained on. Above the dashed diagonal an attack beats guessing; the left end is where "
    "records are recognised with hardly any false alarms. Bands: ± one standard deviation over targets, for the first two. "
    "Click a name in the legend to show it alone; point at a curve to see its numbers."
)
AUC_CAPTION = (
    "AUC of the strongest attack on each kind of information, setting by setting, with intervals. Dashed: guessing."
)
TPR_CAPTION = (
    "The share of training records recognised at an FPR of {fpr}, setting by setting, with intervals. Dashed: guessing."
)
TRADEOFF_CAPTION = "The price of protection: leakage against accuracy, with intervals. Down and to the right is better."
TWO = "Two unprotected"
"""The name of the similarity between two unprotected models."""
SIMILARITY_CAPTION = (
    "Similarity of explanations ({measure}; 1 means identical), with intervals: each protected model's beside those of the "
    "unprotected model with the same training set. On the left, two unprotected models with different training sets."
)


def group_charts(
    results: Results, findings: Findings, group: list[Finding], interpretation: Interpretation | None
) -> Iterator[Chart]:
    """Yield the charts of one data set and architecture."""
    drawn = series(group, findings.settings)
    named = [(titled(finding.setting), finding) for finding in group]
    lines = {name: roc_curves(results, finding, drawn, EVERY) for name, finding in named}
    if any(lines.values()):
        yield "roc", "Log-log ROC curves", ROC_CAPTION, roc_chart(lines, drawn)
    if len(group) > 1:
        yield "auc", "AUC in every setting", AUC_CAPTION, leak_chart(named, drawn, "auc", None)
        if findings.fpr is not None:
            caption = TPR_CAPTION.format(fpr=rate(findings.fpr))
            yield "tpr", "TPR in every setting", caption, leak_chart(named, drawn, "tpr", findings.fpr)
        if sum(finding.test_accuracy is not None for finding in group) > 1:
            yield "tradeoff", "Accuracy against leakage", TRADEOFF_CAPTION, tradeoff_chart(named)
    yield from _similarity_chart(group, findings.settings, interpretation)


def _similarity_chart(
    group: list[Finding], everyone: list[Finding], interpretation: Interpretation | None
) -> Iterator[Chart]:
    if interpretation is None or interpretation.headline is None:
        return
    base, settings = reference(group), []
    for finding in group:
        if values := similarity(finding, base, interpretation):
            name = TWO if finding is base else titled(finding.setting)
            settings.append((name, {one.label: value for one, value in values.items()}))
    if settings:
        title = measure_label(interpretation.headline)
        drawn = list(explainer_series(group, everyone, interpretation).values())
        chart = similarity_chart(settings, drawn, upper_first(title))
        yield "similarity", "Similarity of explanations", SIMILARITY_CAPTION.format(measure=title), chart


def roc_chart(lines: dict[str, list[Curve]], drawn: Sequence[Series]) -> dict[str, Any]:
    """Draw log-log ROC curves of one setting at a time; `lines` are the curves by setting."""
    import altair as alt

    rows = [row for setting, curves in lines.items() for curve in curves for row in _curve_rows(setting, curve)]
    lowest = min(row["fpr"] for row in rows)
    bound = {"bind": choice(list(lines))} if len(lines) > 1 else {}
    chosen = alt.param(name="setting", value=next(iter(lines)), **bound)
    legend = alt.selection_point(name="shown", fields=["series"], bind="legend")
    hover = alt.selection_point(name="at", on="pointerover", nearest=True, fields=["fpr", "series"], empty=False)
    base = alt.Chart(alt.NamedData("curves")).transform_filter(
        "datum.setting === setting"
    )  # altair copies inline data at every step
    x = alt.X("fpr:Q").scale(type="log", domain=[lowest, 1], nice=False).title("False-positive rate")
    x = x.axis(labelFlush=False)  # or the first two labels overlap
    y = alt.Y("tpr:Q").scale(type="log", domain=[lowest, 1], nice=False, clamp=True).title("True-positive rate")
    faded = alt.condition(legend, alt.value(1), alt.value(0.12))
    band = base.transform_filter("datum.banded").mark_area(interpolate="step-after", opacity=0.14)
    band = band.encode(x, alt.Y("low:Q"), alt.Y2("high:Q"), colour(drawn, lines=True)).transform_filter(legend)
    line = base.transform_filter("datum.tpr > 0").mark_line(interpolate="step-after", strokeWidth=2)
    line = line.encode(x, y, colour(drawn, lines=True), _dash(drawn), opacity=faded).add_params(chosen, legend)
    tooltip = [
        alt.Tooltip("series:N", title="read"),
        alt.Tooltip("attack:N", title="attack"),
        alt.Tooltip("fpr:Q", title="false-positive rate", format=".3~p"),
        alt.Tooltip("tpr:Q", title="true-positive rate", format=".3~p"),
        alt.Tooltip("sd:Q", title="± over targets", format=".2~p"),
        alt.Tooltip("auc:Q", title="AUC", format=".3f"),
    ]
    point = base.transform_filter("datum.tpr > 0").mark_point(filled=True, size=55)
    point = point.encode(
        x, y, colour(drawn, lines=True), tooltip=tooltip, opacity=alt.condition(hover, alt.value(1), alt.value(0))
    )
    ends = alt.InlineData(values=[{"fpr": lowest, "tpr": lowest}, {"fpr": 1, "tpr": 1}])
    diagonal = alt.Chart(ends).mark_line(strokeDash=[5, 4], strokeWidth=1, color="#8a8a8a").encode(x, y)
    described = (
        "Log-log ROC curves: true-positive rate over false-positive rate, mean over targets, for one setting at a time."
    )
    chart = finish(diagonal + band + line + point.add_params(hover), described, 400)
    chart["datasets"]["curves"] = rows
    return chart


def choice(names: list[str]) -> Any:
    """Return an input for the choice of a name: buttons, or a list where there are many."""
    import altair as alt

    kind = alt.binding_radio if len(names) <= 4 else alt.binding_select
    return kind(options=names, name="")


def _curve_rows(setting: str, curve: Curve) -> list[dict[str, Any]]:
    metadata = {
        "setting": setting,
        "series": curve.series.name,
        "attack": f"{curve.leak.attack} on {curve.leak.signal}",
        "auc": short(curve.leak.auc_estimate.mean),
        "banded": curve.series.colour in PALETTE[:2],
    }
    floor = float(curve.fpr[0]) / 2
    rows = [
        metadata
        | {
            "fpr": short(fpr),
            "tpr": short(tpr),
            "sd": short(sd),
            "low": short(max(tpr - sd, floor)),
            "high": short(min(tpr + sd, 1)),
        }
        for fpr, tpr, sd in zip(curve.fpr.tolist(), curve.mean.tolist(), curve.sd.tolist(), strict=True)
    ]
    # the first of a run of equal rates draws the whole step
    return [row for i, row in enumerate(rows) if i in (0, len(rows) - 1) or row["tpr"] != rows[i - 1]["tpr"]]


def leak_chart(
    group: Sequence[tuple[str, Finding]], drawn: Sequence[Series], metric: str, fpr: float | None
) -> dict[str, Any]:
    """Draw AUC, or TPR at the headline FPR, of every series over the settings of a group, with intervals."""
    import altair as alt

    title, chance = ("AUC", 0.5) if metric == "auc" else (f"TPR at {rate(fpr or 0)} FPR", fpr or 0)
    rows = [
        {
            "setting": name,
            "series": one.name,
            "attack": f"{leak.attack} on {leak.signal}",
            **ends(getattr(leak, f"{metric}_estimate")),
        }
        for name, finding in group
        for one in drawn
        if (leak := strongest(finding).get(one.name))
    ]
    dots = by_setting(rows, drawn, title, [alt.Tooltip("attack:N")], axis={"labelExpr": WITHIN})
    return finish(guessing(chance) + dots, f"{title} of the strongest attacks in every setting, with intervals.", 240)


def similarity_chart(
    settings: Sequence[tuple[str, dict[str, Estimate]]], drawn: Sequence[Series], title: str
) -> dict[str, Any]:
    """Draw the similarity of explanations by explainer in every setting, with intervals."""
    rows = [
        {"setting": name, "series": one.name, **ends(finding[one.name])}
        for name, finding in settings
        for one in drawn
        if one.name in finding
    ]
    return finish(by_setting(rows, drawn, title, []), f"{title} of explanations in every setting, with intervals.", 240)


def by_setting(
    rows: Sequence[dict[str, Any]],
    drawn: Sequence[Series],
    title: str,
    more: Sequence[Any],
    panel: bool = False,
    axis: Mapping[str, Any] | None = None,
) -> Any:
    """Draw estimates side by side, a group per setting in the order of the rows; with `panel`, only those of the chosen panel."""
    import altair as alt

    chart = alt.Chart(alt.InlineData(values=list(rows)))
    base = (chart.transform_filter("datum.panel === panel") if panel else chart).encode(
        alt.X("setting:N")
        .sort(list(dict.fromkeys(row["setting"] for row in rows)))
        .title(None)
        .axis(labelAngle=0, labelLimit=140, **_broken([row["setting"] for row in rows])),
        alt.XOffset("series:N").sort([one.name for one in drawn]),
        colour(drawn),
        tooltip=[
            alt.Tooltip("setting:N"),
            alt.Tooltip("series:N", title="read"),
            *more,
            alt.Tooltip("mean:Q", title=title, format=".3~f"),
            alt.Tooltip("low:Q", title="interval from", format=".3~f"),
            alt.Tooltip("high:Q", title="to", format=".3~f"),
        ],
    )
    y = alt.Y("low:Q", axis=alt.Axis(**(axis or {}))).scale(zero=False, padding=10).title(title)
    bars = base.mark_rule(strokeWidth=2).encode(y, alt.Y2("high:Q"))
    means = alt.Y("mean:Q").scale(zero=False).title(title)
    return bars + base.mark_point(filled=True, size=46, opacity=1).encode(means, _shape(drawn))


def _broken(names: Sequence[str]) -> dict[str, Any]:
    """Break the names below an axis into lines if they would run into each other on a phone."""
    different = list(dict.fromkeys(names))
    letters = min(max(BELOW // max(len(different), 1), SHORTEST), LONGEST)
    lines = {name: broken(name, letters) for name in different if len(name) > letters}
    return {"labelExpr": f"({json.dumps(lines)})[datum.value] || datum.label"} if lines else {}


def tradeoff_chart(group: Sequence[tuple[str, Finding]]) -> dict[str, Any]:
    """Draw the AUC of the strongest attack per channel against test accuracy, with intervals."""
    import altair as alt

    rows = [
        {
            "setting": name,
            "name": "\n".join(broken(name, BESIDE)),
            "end": short(finding.test_accuracy.mean if math.isnan(low) else low),
            "order": order,
            "series": CHANNELS[channel],
            **ends(leak.auc_estimate),
            **ends(finding.test_accuracy, "accuracy_"),
        }
        for order, (name, finding) in enumerate(group)
        if finding.test_accuracy
        for low in [finding.test_accuracy.low]
        for channel, leak in finding.strongest.items()
    ]
    channels = [name for name in CHANNELS.values() if any(row["series"] == name for row in rows)]
    looks = dict(zip(CHANNELS.values(), zip(PALETTE, "osD^", strict=False), strict=True))
    drawn = [Series(name, looks[name][0], (), looks[name][1]) for name in channels]
    base = alt.Chart(alt.InlineData(values=rows)).encode(colour(drawn))
    longest = max(len(line) for name, _ in group for line in broken(name, BESIDE))
    beside = min(6 * longest + 12, ROOM)
    within = alt.Axis(labelExpr=WITHIN, labelFlush=False)  # or the first two labels overlap
    x = alt.X("accuracy_mean:Q", axis=within).scale(zero=False, padding=max(72, beside)).title("Test accuracy")
    y = alt.Y("mean:Q", axis=within).scale(zero=False, padding=12).title("AUC of the strongest attack")
    tooltip = [
        alt.Tooltip("setting:N"),
        alt.Tooltip("series:N", title="read"),
        alt.Tooltip("mean:Q", title="AUC", format=".3~f"),
        alt.Tooltip("accuracy_mean:Q", title="test accuracy", format=".3~f"),
    ]
    line = base.mark_line(strokeWidth=1, opacity=0.55).encode(x, y, alt.Order("order:Q"))
    across = base.mark_rule(strokeWidth=2).encode(alt.X("accuracy_low:Q"), alt.X2("accuracy_high:Q"), y)
    upright = base.mark_rule(strokeWidth=2).encode(x, alt.Y("low:Q"), alt.Y2("high:Q"))
    dots = base.mark_point(filled=True, size=60, opacity=1).encode(x, y, _shape(drawn), tooltip=tooltip)
    names = base.transform_filter(f"datum.series === '{channels[0]}'").mark_text(
        dx=-6, dy=-3, align="right", baseline="bottom", lineBreak="\n", lineHeight=12
    )
    names = names.encode(alt.X("end:Q"), y, alt.Text("name:N"), color=alt.value("#7d7d7d"))
    layers = guessing(0.5) + line + across + upright + dots + names
    return finish(layers, "AUC of the strongest attack against test accuracy, with intervals, for every setting.", 280)


def guessing(chance: float) -> Any:
    """Draw a dashed line at guessing."""
    import altair as alt

    rule = alt.Chart(alt.InlineData(values=[{"guessing": chance}])).mark_rule(strokeDash=[5, 4], color="#8a8a8a")
    return rule.encode(alt.Y("guessing:Q"))


def colour(drawn: Sequence[Series], lines: bool = False) -> alt.Color:
    """Colour by series, with a legend below the chart."""
    import altair as alt

    scale = alt.Scale(domain=[one.name for one in drawn], range=[one.colour for one in drawn])
    return alt.Color("series:N", scale=scale, legend=_legend(lines))


def _dash(drawn: Sequence[Series]) -> alt.StrokeDash:
    import altair as alt

    dashes = [[2 * length for length in one.dash] or [1, 0] for one in drawn]
    return alt.StrokeDash(
        "series:N", scale=alt.Scale(domain=[one.name for one in drawn], range=dashes), legend=_legend(lines=True)
    )


def _shape(drawn: Sequence[Series]) -> alt.Shape:
    import altair as alt

    scale = alt.Scale(domain=[one.name for one in drawn], range=[SHAPES[one.marker] for one in drawn])
    return alt.Shape("series:N", scale=scale, legend=_legend())


def _legend(lines: bool = False) -> alt.Legend:
    import altair as alt

    symbols: dict[str, Any] = {"symbolType": "stroke", "symbolSize": 400} if lines else {}
    return alt.Legend(orient="bottom", direction="horizontal", title=None, labelLimit=260, **symbols)


def finish(chart: Any, description: str, height: int) -> dict[str, Any]:
    """Return the Vega-Lite specification of a chart in the page's style."""
    finished = chart.properties(width="container", height=height, description=description)
    finished = finished.configure(background="transparent", font="system-ui, sans-serif").configure_view(stroke=None)
    finished = finished.configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal", gridOpacity=0.35)
    specification: dict[str, Any] = finished.configure_legend(
        labelFontSize=12, symbolStrokeWidth=2, symbolOpacity=1
    ).to_dict()
    return specification


def ends(value: Estimate | None, prefix: str = "") -> dict[str, float | None]:
    """Return the mean of an estimate and the ends of its interval, null where unknown."""
    values = {part: getattr(value, part) for part in ("mean", "low", "high")} if value else {}
    return {f"{prefix}{part}": None if math.isnan(known) else short(known) for part, known in values.items()}


def short(value: float) -> float:
    """Round to four significant digits."""
    return float(f"{value:.4g}")
