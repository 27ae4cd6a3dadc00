"""The look of all figures, and their files: the same inputs give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from mia_audit.errors import UserError, suggest
from mia_audit.report.figures.layout import COLUMN, literal_text
from mia_audit.report.section import Figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    from mia_audit.report.data.findings import Finding

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
    figure.set_size_inches(scale * figure.get_figwidth(), scale * figure.get_figheight())
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


def _names(figure: Figure) -> set[Text]:
    """Return all texts except the tick labels of logarithmic axes, which are powers."""
    from matplotlib.text import Text

    both = (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) if axis.get_scale() != "linear")
    powers = {tick.label1 for axis in both for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())}
    return set(figure.findobj(Text)) - powers  # type: ignore[arg-type, return-value]


def disclaimed(figure: Figure, settings: Sequence[Finding]) -> Figure:
    """Write above a figure which of its settings have no guarantee, and why."""
    reasons = {
        finding.setting.mechanism_name: finding.setting.no_guarantee
        for finding in settings
        if finding.setting.no_guarantee
    }
    if reasons:
        letters = int(figure.get_figwidth() * LETTERS_PER_INCH)
        lines = [fill(f"{mechanism}: ε none, {why}", letters) for mechanism, why in reasons.items()]
        figure.suptitle("\n".join(lines), fontsize=5.5, color="0.35", x=0.02, ha="left")
    return figure


def notice(text: str) -> Figure:
    """Draw a sentence in the place of a figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN, COLUMN / 2))
    figure.text(0.5, 0.5, text, ha="center", va="center", wrap=True)
    return figure
