"""The registry of figures, each with condition, caption and drawing function; their look, parts and files.

The same inputs give the same bytes. Files of figures do not import matplotlib or polars at the top, because the workflow
imports them for the names of an audit's figures.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from mia_audit.errors import UserError, suggest
from mia_audit.registry import Registry
from mia_audit.report.findings import Estimate, Finding, Findings
from mia_audit.report.formatting import broken, fixed, protection, rate, titled
from mia_audit.report.spec import Figures
from mia_audit.sanitise import csv, visible_lines

if TYPE_CHECKING:
    import polars as pl
    from jaxtyping import Float, UInt8
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    from mia_audit.report.results import Results
    from mia_audit.report.spec import ReportedAudit

    Band = Sequence[np.ndarray] | None
    """Lowest and highest value at every x."""
    Step = Literal["post"] | None
    Value = float | Estimate
    Point = tuple[Value, Value] | tuple[Value, Value, str]
    """x and y, and the name of the point or of its place."""

COLUMN, PAGE = 3.4, 7.0
"""Widths of a paper's column and page in inches."""
ACROSS = 3
"""Number of panels side by side on a page."""
PANEL = 0.8
"""Share of a panel's width that its axes fill."""
LETTERS = 14
"""Letters in a line of a setting's label below a panel."""
MANY, CROWDED = 4, 7
"""Numbers of names that fit below a panel at the usual font size, and below one that shares the page's width."""
GUESSING: dict[str, Any] = {"color": "0.55", "linewidth": 0.8, "linestyle": (0, (3, 2)), "zorder": 1}


def blank(width: float, height: float, **padding: Any) -> Figure:
    """Return an empty figure of this size in inches; `padding` is that of matplotlib's constrained layout."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(**padding))


def panel_grid(rows: int, columns: int, height: float, shared: bool = False, names: int = 0) -> tuple[Figure, Any]:
    """Return a figure and its panels [rows, columns], each `height` inches high.

    Columns that do not fit on the page are placed below the first ones, all their rows together, about as many in each
    band. With `shared` the panels of a row have the same y axis. `names` is the largest number of names below a panel.
    """
    crowded = names > CROWDED
    bands = columns if crowded else math.ceil(columns / ACROSS)
    across = math.ceil(columns / bands)
    figure = blank(COLUMN if columns == 1 and not crowded else PAGE, height * rows * bands)
    cells = figure.subplots(rows * bands, across, squeeze=False)
    panels = cells.reshape(bands, rows, across).swapaxes(0, 1).reshape(rows, bands * across)
    for spare in panels[:, columns:].flat:
        spare.remove()
    for *upper, lowest in panels[:, :columns].T:
        for axes in upper:
            axes.sharex(lowest)
            axes.tick_params(labelbottom=False)
    for first, *others in panels[:, :columns] if shared else ():
        for axes in others:
            axes.sharey(first)
    return figure, panels[:, :columns]


def panel_inches(axes: Axes) -> float:
    """Return the width of a panel's axes before the layout."""
    return float(axes.figure.get_size_inches()[0] / axes.get_gridspec().ncols * PANEL)  # type: ignore[union-attr]


def name_places(axes: Axes, names: Sequence[str]) -> None:
    """Label the positions 0, 1, … of the x axis, in a smaller font and shorter lines if there are many."""
    letters = LETTERS
    if len(names) > CROWDED:
        letters = min(LETTERS, int(panel_inches(axes) / len(names) * LETTERS_PER_INCH))
    lines = [[part for line in name.split("\n") for part in broken(line, letters)] for name in names]
    texts = ["\n".join(parts).replace("\u00a0", " ") for parts in lines]
    axes.set_xticks(range(len(names)), texts, fontsize=7 if len(names) <= MANY else 5)
    axes.set_xlim(-0.5, len(names) - 0.5)


def label_lines(row: Iterable[Axes], text: str) -> None:
    """Label the y axis of the first panel of a row of panels, and of every line on which a wrapped row continues."""
    for axes in row:
        place = axes.get_subplotspec()
        if place is not None and place.is_first_col():
            axes.set_ylabel(text)


def shared_legend(figure: Figure, panels: Any) -> None:
    """Draw one legend below all panels, in as many columns as fit."""
    handles: dict[str, Any] = {}
    for axes in panels.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    for columns in range(2 if figure.get_figwidth() < PAGE else 4, 0, -1):
        legend = figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=columns, columnspacing=1.2
        )
        literal_text(legend.get_texts())
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()


def literal_text(texts: Iterable[Text]) -> None:
    """Draw names with dollar signs as text, not as formulas, and without hidden characters."""
    for text in texts:
        text.set_parse_math(False)
        text.set_text(visible_lines(text.get_text()))


def draw_roc(
    axes: Axes, fpr: Any, tpr: Any, colour: str, name: str, auc: float | None = None, band: Band = None, **style: Any
) -> None:
    """Draw a ROC curve as steps, without rates of 0, which a logarithmic axis cannot show; the legend has its name, and its AUC if given."""
    y: Any = np.where(tpr > 0, tpr, np.nan)
    if band is not None:
        y = [Estimate(mean, math.nan, low, high, 0) for mean, low, high in zip(y, *band, strict=True)]
    label = name if auc is None else f"{name}, {fixed(auc)}"
    draw_line(axes, fpr, y, colour, name, alpha=0.15, step="post", label=label, drawstyle="steps-post", **style)


def log_log(axes: Axes, lowest: float, **style: Any) -> None:
    """Make both axes logarithmic, from the lowest FPR to 1, with a dashed diagonal at guessing."""
    axes.plot([lowest, 1], [lowest, 1], **GUESSING, **style)
    axes.set(xscale="log", yscale="log", xlim=(lowest, 1), ylim=(lowest, 1.05), xlabel="false-positive rate")


def metrics_shown(findings: Findings) -> list[tuple[str, str, float]]:
    """Return AUC and, where it is resolved, TPR: their names in findings, their labels, and their values at guessing."""
    metrics = [("auc", "AUC", 0.5)]
    return metrics + ([("tpr", f"TPR at {rate(findings.fpr)} FPR", findings.fpr)] if findings.fpr is not None else [])


def errorbars(
    axes: Axes, points: Sequence[Point], colour: str, marker: str, name: str, shift: float = 0.0, **style: Any
) -> None:
    """Draw points, with the intervals of those coordinates that are estimates.

    The others are places, which `shift` moves in the picture alone. A name that begins with "_" is not in the legend.
    """
    if not points:
        return
    columns = dict(zip(("x", "y", "label"), zip(*points, strict=True), strict=False))
    drawn: dict[str, Any] = {}
    for axis in "xy":
        values = columns[axis]
        if isinstance(values[0], Estimate):
            drawn[axis] = [value.mean for value in values]
            drawn[f"{axis}err"] = [[value.below for value in values], [value.above for value in values]]
        else:
            drawn[axis] = [place + shift for place in values]
    usual = {"elinewidth": 0.9, "capsize": 1.8, "capthick": 0.9, "markersize": 3.4, "markeredgewidth": 0.9}
    axes.errorbar(**drawn, fmt=marker, color=chosen(name, colour), label=name, **(usual | style))
    add_rows(axes, "point", name, **columns)


def draw_line(
    axes: Axes, x: Any, y: Iterable[Value], colour: str, name: str, alpha: float = 0.2, step: Step = None, **style: Any
) -> None:
    """Draw a line, of estimates with a band."""
    means = [value.mean if isinstance(value, Estimate) else value for value in y]
    axes.plot(x, means, color=chosen(name, colour), **({"label": name} | style))
    draw_band(axes, x, y, chosen(name, colour), alpha, step=step)
    add_rows(axes, "line", name, x=x, y=y)


def draw_band(axes: Axes, x: Any, y: Iterable[Value], colour: str, alpha: float, step: Step = None) -> None:
    """Shade the intervals of a line's estimates, if they are known."""
    known = [value for value in y if isinstance(value, Estimate)]
    if known and not math.isnan(known[0].low):
        low, high = [value.low for value in known], [value.high for value in known]
        axes.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0, step=step)


def chosen(name: str, colour: str) -> str:
    """Return the colour that the config gives to a series, or else this one."""
    known = COLOURS.get({})
    return next((known[start] for start in known if f"{name.removeprefix('_')}, ".startswith(f"{start}, ")), colour)


COLUMNS = ("panel", "series", "kind", "x", "y", "x_low", "x_high", "y_low", "y_high", "label")
COLOURS: ContextVar[Mapping[str, str]] = ContextVar("colours")
"""The colours of series that the config chooses, by name."""
ROWS = "rows"
"""Attribute of a panel with the rows of what is drawn in it."""


def add_rows(axes: Axes, kind: str, series: str | None, **columns: Iterable[Any]) -> None:
    """Add to a figure's data what is drawn in a panel: a row per item of these columns of `COLUMNS`, with the ends of estimates."""
    rows = vars(axes).setdefault(ROWS, [])
    for values in zip(*columns.values(), strict=True):
        row: dict[str, Any] = {"series": series and series.removeprefix("_"), "kind": kind}
        for name, value in zip(columns, values, strict=True):
            known = isinstance(value, Estimate)
            row |= {name: value.mean, f"{name}_low": value.low, f"{name}_high": value.high} if known else {name: value}
        rows.append(row)


def table_of(figure: Figure) -> pl.DataFrame:
    """Return what was recorded while a figure was drawn; maps of records are in explanations.parquet.

    Columns: panel (its label, or its title), series, kind, x, y and the ends of their intervals, and label: the name of
    a point, or of a place on an axis of names, whose number is x or y.
    """
    import polars as pl

    rows: list[dict[str, Any]] = []
    for axes in figure.axes:
        panel = str(axes.get_label()) or axes.get_title(loc="left") or axes.get_title()
        rows += ({"panel": panel, **row} for row in vars(axes).get(ROWS, ()))
    texts = ("panel", "series", "kind", "label")
    table = pl.DataFrame(rows, {name: pl.String if name in texts else pl.Float64 for name in COLUMNS})
    return table.fill_nan(None).drop_nulls("y").with_columns(pl.col(texts).str.replace_all(r"\s+", " "))


def tick(finding: Finding, group: Sequence[Finding]) -> str:
    """Return the shortest name of a setting that is unique in its group."""
    private = {other.setting.mechanism for other in group if other.setting.private}
    setting = finding.setting
    if setting.label:
        return setting.label
    if setting.no_guarantee:
        return f"{setting.mechanism_name}\nε none"
    if not setting.private and not setting.trained and not setting.explained:
        return protection(setting)
    if not setting.private:
        return "no DP" if setting.mechanism == "none" or setting.explained else f"{setting.mechanism_name}\nno DP"
    return f"ε = {setting.epsilon}" if len(private) == 1 else f"{setting.mechanism_name}\nε = {setting.epsilon}"


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
DEFAULT = Figures()
DPI = 300
"""Resolution of PNG files and of images in the others."""
LETTERS_PER_INCH = 25
"""Letters per inch in the smallest font."""


@contextmanager
def paper_style(font: str = "", colours: Mapping[str, str] = {}) -> Iterator[None]:
    """Draw in the style of a paper, whatever the user's own matplotlib settings, with these colours of series; UserError for an unknown font."""
    import matplotlib

    if font:
        from matplotlib.font_manager import fontManager

        if font not in (known := set(fontManager.get_font_names())):
            raise UserError(f"report.figures.font: no font '{font}' is installed here: {suggest(font, sorted(known))}")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for name, value in STYLE.items():
            matplotlib.rcParams[name] = value  # type: ignore[literal-required, index]
        if font:
            matplotlib.rcParams["font.family"] = font
        before = COLOURS.set(colours)
        try:
            yield
        finally:
            COLOURS.reset(before)


def save(figure: Figure, folder: Path, name: str, caption: str = "", look: Figures = DEFAULT) -> None:
    """Write a figure in every format, with its caption in the metadata and nothing that differs between runs."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    from mia_audit.storage import atomic_write

    literal_text(_names(figure))
    scale = float(look.column.removesuffix("in")) / COLUMN
    figure.set_size_inches(scale * figure.get_figwidth(), scale * look.height * figure.get_figheight())
    if look.font_size != DEFAULT.font_size:
        _scale_text(figure, look.font_size / DEFAULT.font_size)
    if engine := figure.get_layout_engine():
        for _ in range(2):  # the second pass uses the ticks and sizes of the first
            engine.execute(figure)
        figure.set_layout_engine("none")
    # savefig would lay the figure out twice for every format.
    canvas = {"pdf": FigureCanvasPdf, "svg": FigureCanvasSVG, "png": FigureCanvasAgg}
    captioned = {"pdf": {"Subject": caption}, "svg": {"Description": caption}, "png": {"Description": caption}}
    for suffix in look.formats:
        figure.set_dpi(DPI)
        with atomic_write(folder / f"{name}.{suffix}") as partial:
            getattr(canvas[suffix](figure), f"print_{suffix}")(partial, metadata=UNDATED[suffix] | captioned[suffix])


def _scale_text(figure: Figure, factor: float) -> None:
    """Scale all text, with the ticks that are made only when the figure is drawn."""
    from matplotlib.text import Text

    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        if labels := axis.get_ticklabels():
            axis.set_tick_params(labelsize=factor * float(labels[0].get_fontsize()))
    ticks = {
        id(one.label1) for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for one in axis.get_major_ticks()
    }
    for text in (one for one in figure.findobj(Text) if id(one) not in ticks):
        text.set_fontsize(factor * text.get_fontsize())  # type: ignore[attr-defined, operator]


def _names(figure: Figure) -> set[Text]:
    """Return all texts except the tick labels of logarithmic axes, which are powers."""
    from matplotlib.text import Text

    both = (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) if axis.get_scale() != "linear")
    powers = {tick.label1 for axis in both for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())}
    return set(figure.findobj(Text)) - powers  # type: ignore[arg-type, return-value]


def disclaimed(figure: Figure, settings: Sequence[Finding]) -> Figure:
    """Write above a figure which of its settings have no guarantee, and why."""
    reasons = {one.setting.mechanism_name: one.setting.no_guarantee for one in settings if one.setting.no_guarantee}
    if reasons:
        letters = int(figure.get_figwidth() * LETTERS_PER_INCH)
        text = "\n".join(fill(f"{mechanism}: ε none, {why}", letters) for mechanism, why in reasons.items())
        figure.suptitle(text, fontsize=5.5, color="0.35", x=0.02, ha="left")
        figure.set_figheight(figure.get_figheight() + 0.1 * (1 + text.count("\n")))  # panels keep their height
    return figure


def notice(text: str) -> Figure:
    """Draw a sentence in the place of a figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN, COLUMN / 2))
    figure.text(0.5, 0.5, text, ha="center", va="center", wrap=True)
    return figure


FINEST = 64
"""Largest number of cells along a side of an attribution map; finer maps are averaged."""
NEGATIVE, ZERO, POSITIVE = (np.array(colour, dtype=float) for colour in ((0, 114, 178), (247, 247, 247), (213, 94, 0)))


def record_picture(record: UInt8[np.ndarray, "C H W"]) -> str:
    """Return an image record as a data URI: in colour with three channels, otherwise their mean in grey."""
    pixels = displayed(record)
    return data_uri((pixels if pixels.ndim == 3 else np.stack([pixels] * 3, axis=2)).astype(np.uint8))


def displayed(record: np.ndarray) -> np.ndarray:
    """Return an image record [C, H, W] as [H, W, 3] in colour, or the mean over its channels [H, W] in grey."""
    return record.transpose(1, 2, 0) if record.shape[0] == 3 else record.mean(axis=0)


def attribution_picture(attribution: Float[np.ndarray, "C H W"], scale: float) -> str:
    """Return an attribution summed over channels as a data URI; see `attribution_pixels`."""
    return data_uri(attribution_pixels(attribution, scale))


def attribution_pixels(attribution: Float[np.ndarray, "C H W"], scale: float) -> UInt8[np.ndarray, "h w 3"]:
    """Colour an attribution summed over channels: blue below 0, orange above, saturated at ± `scale`."""
    cells = _coarse(attribution.sum(axis=0)) / (scale or 1.0)
    return blend(np.broadcast_to(ZERO, (*cells.shape, 3)), cells, np.clip(np.abs(cells), 0, 1))


def blend(
    background: Float[np.ndarray, "h w 3"], values: Float[np.ndarray, "h w"], weight: Float[np.ndarray, "h w"]
) -> UInt8[np.ndarray, "h w 3"]:
    """Blend a background with the colours of the values' signs, by weights between 0 and 1."""
    colours = np.where(values[..., None] < 0, NEGATIVE, POSITIVE)
    return np.asarray((background + (colours - background) * weight[..., None]).round().astype(np.uint8))


def attribution_scale(attributions: list[Float[np.ndarray, "C H W"]]) -> float:
    """Return the largest absolute value that any of these maps shows, as a common scale."""
    return max(float(np.abs(_coarse(attribution.sum(axis=0))).max()) for attribution in attributions)


def _coarse(values: Float[np.ndarray, "H W"]) -> Float[np.ndarray, "h w"]:
    factor = max(1, -(-max(values.shape) // FINEST))
    height, width = (size - size % factor for size in values.shape)
    blocks = values[:height, :width].reshape(height // factor, factor, width // factor, factor)
    return np.asarray(blocks.mean(axis=(1, 3)))


def data_uri(pixels: UInt8[np.ndarray, "H W 3"]) -> str:
    """Return pixels as a data URI of a PNG, which the page enlarges without smoothing."""
    from PIL import Image

    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "png", optimize=True)
    return png_uri(written.getvalue())


def png_uri(content: bytes) -> str:
    """Return the content of a PNG file as a data URI."""
    return "data:image/png;base64," + base64.b64encode(content).decode()


def signed_colours() -> Any:
    """Return the colour map from blue over white to orange."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("signed", [colour / 255 for colour in (NEGATIVE, ZERO, POSITIVE)])


def draw_cell(axes: Axes, values: np.ndarray, shape: tuple[int, ...], scale: float | None, aspect: Any = None) -> None:
    """Draw a record (no scale) or a signed map (saturated at ± scale) in a framed cell; rows of tables are strips of columns."""
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set(visible=True, linewidth=0.3, color="0.7")
    pixels = np.asarray(values, dtype=np.float64).reshape(shape if len(shape) == 3 else (1, 1, -1))
    aspect = aspect or ("equal" if len(shape) == 3 else "auto")
    if scale is None:
        shown = displayed(pixels)
        axes.imshow(shown / 255 if shown.ndim == 3 else shown, cmap="gray", aspect=aspect)
    else:
        axes.imshow(pixels.sum(axis=0), cmap=signed_colours(), vmin=-scale or -1, vmax=scale or 1, aspect=aspect)


Name = TypeVar("Name", bound=Hashable)

if TYPE_CHECKING:
    Subjects = Callable[[ReportedAudit], Mapping[str, Any]]
    Drawing = Callable[[Results, Findings, Any], Figure | str]


CSV = "csv"
"""Suffix of a figure's data."""


@dataclass(frozen=True)
class FigureKind:
    """A kind of figure.

    `subjects` maps the names of an audit's figures to the subject of each: a setting, a group (data set, architecture),
    a data set, or another value. `draw` returns a figure, or a sentence if there is nothing to draw.
    """

    subjects: Subjects
    caption: str
    draw: Drawing

    def __call__(self, results: Results, findings: Findings, subject: Any = None) -> Figure | str:
        """Draw the figure of one subject."""
        return self.draw(results, findings, subject)


figures: Registry[FigureKind] = Registry("figure", "mia_audit.report.figures")


def figure(name: str, subjects: Subjects, caption: str) -> Callable[[Drawing], FigureKind]:
    """Register the decorated drawing as a kind of figure."""
    return lambda draw: figures.register(name, draw)(FigureKind(subjects, caption, draw))


def once(name: str, condition: Callable[[ReportedAudit], object] = lambda spec: spec.settings) -> Subjects:
    """Return the subjects of a figure that an audit has at most once; without a condition, every audit of settings."""
    return lambda spec: {name: None} if condition(spec) else {}


def once_for(prefix: str, chosen: Callable[[ReportedAudit], Iterable[Any]]) -> Subjects:
    """Return the subjects of a figure that an audit has once for each of these names, or groups; they follow the prefix in its name."""

    def name(subject: Any) -> str:
        return f"{prefix}_{subject if isinstance(subject, str) else '_'.join(subject)}"

    return lambda spec: {name(subject): subject for subject in chosen(spec)}


def with_several(pairs: Iterable[tuple[Name, str]], least: int = 2) -> list[Name]:
    """Return the names that stand with at least so many different values, in the order of the pairs."""
    values: dict[Name, set[str]] = {}
    for name, value in pairs:
        values.setdefault(name, set()).add(value)
    return [name for name, several in values.items() if len(several) >= least]


def figure_files(spec: ReportedAudit) -> list[str]:
    """List the file names of an audit's figures, in every format and as data."""
    names = [name for kind in figures for name in figures[kind].subjects(spec)]
    return [f"{name}.{suffix}" for name in names for suffix in (*spec.figures.formats, CSV)]


def draw(results: Results, findings: Findings, folder: Path) -> None:
    """Draw the figures of an audit into a folder, each with its data; settings that could not be attacked get a notice.

    Raises UserError for a font that is not installed.
    """
    from mia_audit.storage import atomic_write

    look = results.spec.figures
    with paper_style(look.font, colours_of(results.spec)):
        for kind in (figures[name] for name in figures):
            for name, subject in kind.subjects(results.spec.planned).items():
                shown = drawn(kind, results, findings, subject)
                if isinstance(shown, str):
                    shown = notice(shown)
                with atomic_write(folder / f"{name}.{CSV}") as partial:
                    partial.write_text(csv(table_of(shown)), encoding="utf-8")
                rename(shown, look.names)
                save(shown, folder, name, kind.caption, look)


def drawn(kind: FigureKind, results: Results, findings: Findings, subject: Any) -> Figure | str:
    """Draw a figure with the names of those of its settings that have no guarantee; a sentence if there is nothing to draw."""
    shown = kind(results, findings, subject)
    if isinstance(shown, str):
        return shown
    known = {one.setting.path: {one.setting, one.setting.group, one.setting.dataset} for one in findings.settings}
    inside = [one for one in findings.settings if subject in known[one.setting.path]]
    return disclaimed(shown, inside or findings.settings)


def rename(figure: Figure, names: Mapping[str, str]) -> None:
    """Give explainers the names that the config gives them."""
    from matplotlib.text import Text

    from mia_audit.explain.catalogue import explainer_label

    for text in figure.findobj(Text) if names else ():
        for name, shown in names.items():
            text.set_text(text.get_text().replace(explainer_label(name), shown))  # type: ignore[attr-defined]


def colours_of(spec: ReportedAudit) -> dict[str, str]:
    """Return the colours that the config gives to explainers and settings, by the names of their series."""
    from mia_audit.explain.catalogue import explainer_label

    given = spec.figures.colours
    colours = {explainer_label(name): colour for name, colour in given.items()}
    for one in spec.settings:
        if colour := given.get(f"{one.mechanism}-eps{one.epsilon}", given.get(one.mechanism)):
            colours |= dict.fromkeys((protection(one), titled(one)), colour)
    return colours
