"""The registry of figures, each with condition, caption and drawing function; their look, parts and files.

The same inputs give the same bytes. Files of figures do not import matplotlib or polars at the top, because the workflow
imports them for the names of an audit's figures.
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mia_audit.errors import UserError, suggest
from mia_audit.registry import Registry
from mia_audit.report.formatting import broken, fixed, protection, rate, titled
from mia_audit.report.spec import Figures
from mia_audit.sanitise import csv, visible_lines

if TYPE_CHECKING:
    import polars as pl
    from jaxtyping import Float, UInt8
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    from mia_audit.report.findings import Estimate, Finding, Findings
    from mia_audit.report.results import Results
    from mia_audit.report.spec import ReportedAudit

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


def draw_roc(axes: Axes, fpr: np.ndarray, tpr: np.ndarray, name: str, auc: float | None = None, **style: Any) -> None:
    """Draw a ROC curve as steps, without rates of 0, which a logarithmic axis cannot show; the legend has its name, and its AUC if given."""
    label = name if auc is None else f"{name}, {fixed(auc)}"
    (line,) = axes.plot(fpr, np.where(tpr > 0, tpr, np.nan), drawstyle="steps-post", label=label, **style)
    setattr(line, SERIES, name)


def log_log(axes: Axes, lowest: float, **style: Any) -> None:
    """Make both axes logarithmic, from the lowest FPR to 1, with a dashed diagonal at guessing."""
    axes.plot([lowest, 1], [lowest, 1], **GUESSING, **style)
    axes.set(xscale="log", yscale="log", xlim=(lowest, 1), ylim=(lowest, 1.05), xlabel="false-positive rate")


def metrics_shown(findings: Findings) -> list[tuple[str, str, float]]:
    """Return AUC and, where it is resolved, TPR: their names in findings, their labels, and their values at guessing."""
    metrics = [("auc", "AUC", 0.5)]
    return metrics + ([("tpr", f"TPR at {rate(findings.fpr)} FPR", findings.fpr)] if findings.fpr is not None else [])


def errorbars(
    axes: Axes,
    values: Sequence[tuple[float, Estimate]],
    colour: str,
    marker: str,
    label: str,
    upright: bool = True,
    **more: Any,
) -> None:
    """Draw means with their intervals at positions along the other axis."""
    if not values:
        return
    positions, estimates = zip(*values, strict=True)
    mean = [value.mean for value in estimates]
    errors = [[value.below for value in estimates], [value.above for value in estimates]]
    places: dict[str, Any] = (
        {"x": positions, "y": mean, "yerr": errors} if upright else {"x": mean, "y": positions, "xerr": errors}
    )
    style: dict[str, Any] = {"elinewidth": 0.9, "capsize": 1.8, "capthick": 0.9, "markersize": 3.4}
    style["markeredgewidth"] = 0.9
    axes.errorbar(**places, fmt=marker, color=colour, label=label, **style, **more)


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
def paper_style(font: str = "") -> Iterator[None]:
    """Draw in the style of a paper, whatever the user's own matplotlib settings; UserError for an unknown font."""
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
        yield


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


COLUMNS = ("panel", "series", "kind", "x", "y", "x_low", "x_high", "y_low", "y_high", "label")
SERIES = "series"
"""Attribute of a line whose legend says more than its name."""
Row = dict[str, Any]


def table_of(figure: Figure) -> pl.DataFrame:
    """Return a figure's points, intervals, bars and bands as a table; maps of records are in explanations.parquet.

    Columns: panel (its title, or its number), series (its name in the legend), kind, x, y, x_low, x_high, y_low,
    y_high, and label: the name of a position on a categorical axis, or of a feature. Elements that the panel's legend
    does not name have no series.
    """
    import polars as pl

    rows = [row for number, axes in enumerate(figure.axes, 1) for row in _rows(axes, number)]
    types = {name: pl.String if name in ("panel", "series", "kind", "label") else pl.Float64 for name in COLUMNS}
    return pl.DataFrame(rows, schema=types)


def _rows(axes: Axes, number: int) -> Iterator[Row]:
    from matplotlib.collections import PolyCollection
    from matplotlib.container import BarContainer, ErrorbarContainer

    panel = " ".join((axes.get_title(loc="left") or axes.get_title()).split()) or str(number)
    names = _drawn_names(axes)
    within: set[int] = set()
    for container in axes.containers:
        series = _legend(container)
        if isinstance(container, ErrorbarContainer):
            line, caps, _ = container.lines
            within |= {id(part) for part in (line, *caps) if part is not None}
            yield from ({"panel": panel, "series": series, **row, **names(row)} for row in _errorbars(container))
        elif isinstance(container, BarContainer):
            for bar in container.patches:
                low, left = bar.get_y(), bar.get_x()  # type: ignore[attr-defined]
                row = {"kind": "bar", "x": left + bar.get_width(), "y": low + bar.get_height() / 2, "x_low": left}  # type: ignore[attr-defined]
                if container.orientation == "vertical":
                    row = {"kind": "bar", "x": left + bar.get_width() / 2, "y": low + bar.get_height(), "y_low": low}  # type: ignore[attr-defined]
                yield {"panel": panel, "series": series, **row, **names(row)}
    for line in axes.lines:
        if id(line) in within:
            continue
        x, y = (np.asarray(values, dtype=float) for values in line.get_data())
        for place in range(len(x)):
            row = {"kind": "point", "x": float(x[place]), "y": float(y[place])}
            yield {"panel": panel, "series": _legend(line), **row, **names(row)}
    for collection in axes.collections:
        if isinstance(collection, PolyCollection):
            yield from ({"panel": panel, "kind": "band", **row} for row in _band(collection))


def _errorbars(container: ErrorbarContainer) -> Iterator[Row]:
    line, _, bars = container.lines
    if line is None:
        return
    x, y = (np.asarray(values, dtype=float) for values in line.get_data())
    ends: dict[str, np.ndarray] = {}
    axes = [axis for axis, there in (("x", container.has_xerr), ("y", container.has_yerr)) if there]
    for axis, bar in zip(axes, bars, strict=False):
        segments = np.array([segment[:, "xy".index(axis)] for segment in bar.get_segments()], dtype=float)
        ends |= {f"{axis}_low": segments.min(axis=1), f"{axis}_high": segments.max(axis=1)}
    for place in range(len(x)):
        limits = {name: float(values[place]) for name, values in ends.items() if len(values) == len(x)}
        yield {"kind": "interval", "x": float(x[place]), "y": float(y[place]), **limits}


def _band(collection: Any) -> Iterator[Row]:
    """Yield lowest and highest y of a filled band at every x of its outline."""
    for path in collection.get_paths():
        edges: dict[float, list[float]] = {}
        for x, y in path.vertices:
            edges.setdefault(float(x), []).append(float(y))
        yield from ({"x": x, "y_low": min(ys), "y_high": max(ys)} for x, ys in sorted(edges.items()))


def _legend(artist: Any) -> str | None:
    name = str(getattr(artist, SERIES, artist.get_label()))
    return None if name.startswith("_") else name


def _drawn_names(axes: Axes) -> Any:
    """Return a function from a row to the label of its position, for axes whose ticks are names."""
    places: dict[str, dict[int, str]] = {}
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        ticks = axis.get_ticklocs()
        # also if this panel shares the labels of another one
        texts = axis.get_major_formatter().format_ticks(ticks.tolist())
        known = {round(float(tick)): " ".join(text.split()) for tick, text in zip(ticks, texts, strict=False) if text}
        if not all(re.fullmatch(r"[−-]?\d*\.?\d+\.?", text) for text in texts if text):
            places[name] = known

    def label(row: Row) -> Row:
        names = [places[name].get(round(row[name])) for name in places if np.isfinite(row[name])]
        words = [text for text in names if text and "$" not in text]
        return {"label": ", ".join(words)} if words else {}

    return label


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
    with paper_style(look.font):
        for kind in (figures[name] for name in figures):
            for name, subject in kind.subjects(results.spec.planned).items():
                shown = drawn(kind, results, findings, subject)
                if isinstance(shown, str):
                    shown = notice(shown)
                with atomic_write(folder / f"{name}.{CSV}") as partial:
                    partial.write_text(csv(table_of(shown)), encoding="utf-8")
                restyle(shown, results.spec)
                save(shown, folder, name, kind.caption, look)


def drawn(kind: FigureKind, results: Results, findings: Findings, subject: Any) -> Figure | str:
    """Draw a figure with the names of those of its settings that have no guarantee; a sentence if there is nothing to draw."""
    shown = kind(results, findings, subject)
    if isinstance(shown, str):
        return shown
    known = {one.setting.path: {one.setting, one.setting.group, one.setting.dataset} for one in findings.settings}
    inside = [one for one in findings.settings if subject in known[one.setting.path]]
    return disclaimed(shown, inside or findings.settings)


def restyle(figure: Figure, spec: ReportedAudit) -> None:
    """Give settings and explainers the colours and names that the config gives them."""
    from matplotlib.text import Text

    from mia_audit.explain.catalogue import explainer_label

    if spec.figures.colours:
        _recolour(figure, spec)
    for text in figure.findobj(Text) if spec.figures.names else ():
        for name, shown in spec.figures.names.items():
            text.set_text(text.get_text().replace(explainer_label(name), shown))  # type: ignore[attr-defined]


def _recolour(figure: Figure, spec: ReportedAudit) -> None:
    """Replace the colour of each series that has one in the config, wherever that colour stands in the figure."""
    from matplotlib.colors import is_color_like, to_hex, to_rgba

    from mia_audit.explain.catalogue import explainer_label

    chosen = spec.figures.colours
    wanted = {explainer_label(name): colour for name, colour in chosen.items()}
    for one in spec.settings:
        if colour := chosen.get(f"{one.mechanism}-eps{one.epsilon}", chosen.get(one.mechanism)):
            wanted |= dict.fromkeys((protection(one), titled(one)), colour)

    def colours(artist: Any, part: str) -> tuple[str, float | None] | None:
        """Return an artist's only colour, without and with its opacity."""
        value = getattr(artist, f"get_{part}")()
        rows = value if is_color_like(value) else value[0] if len(np.atleast_2d(value)) == 1 and len(value) else None
        return (to_hex(rows), to_rgba(rows)[3]) if rows is not None and is_color_like(rows) else None

    new: dict[str, str] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            first = handle[0] if isinstance(handle, tuple) else handle
            part = "color" if hasattr(first, "get_color") else "facecolor"
            label = next((label for label in wanted if name == label or name.startswith(f"{label}, ")), None)
            if label and (known := colours(first, part)):
                new[known[0]] = wanted[label]
    changes = [
        (getattr(artist, f"set_{part}"), to_rgba(new[known[0]], known[1]))
        for artist in figure.findobj()
        for part in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")
        if hasattr(artist, f"get_{part}") and (known := colours(artist, part)) and known[0] in new
    ]
    for change, rgba in changes:
        change(rgba)
