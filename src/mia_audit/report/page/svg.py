"""The page's figures: those of `report/figures/`, drawn anew in SVG that shares its glyphs and needs no style attribute.

`group_figures` says which figures the page shows, and where.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.report.data.findings import Finding, Findings
from mia_audit.report.data.series import Interpretation
from mia_audit.report.figures.catalogue import drawn, figures, restyle
from mia_audit.report.figures.style import COLUMN, UNDATED, paper_style
from mia_audit.report.text.formatting import titled

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

    from mia_audit.report.data.results import Results

PRIVATE = ("private_loss", "private_spending", "private_losses", "private_steps", "private_queries")
"""The figures of a study of private explanations that the page shows."""
DROPPED = re.compile(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>|(?<=<g) id=\"[^\"]*\"", re.DOTALL)
GLYPH = re.compile(r'<path id="(\w[\w.-]*-[0-9a-f]+)"(?: d="([^"]*)")? transform="scale\(0\.015625\)"/>')
STYLE = re.compile(r' style="([^"]*)"')
PLACES = re.compile(r'(?<= d=")[^"]*|(?<=translate\()[^)]*|(?<=[ xy]=")[\d.-]+')
LONG = re.compile(r"-?\d+\.\d{2,}")
LINE = re.compile(r" L (-?[\d.]+) (-?[\d.]+)")
USED = re.compile(r'(<use href="#g\d+") transform="translate\(([\d.-]+) ([\d.-]+)\)"/>')
EMPTY = re.compile(r"<g>\s*</g>|<defs>\s*</defs>")


class Sheet:
    """Collects the page's figures: every glyph is written once, however many figures use it."""

    def __init__(self) -> None:
        self._glyphs: dict[str, tuple[str, str]] = {}
        """The short id and the outline of every glyph, by its font and number."""

    def add(self, figure: Figure, label: str) -> dict[str, Any]:
        """Return a figure for the template: the content of its SVG, an accessible name, and whether it is wider than a column."""
        from markupsafe import Markup
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        written, wide = io.StringIO(), bool(figure.get_figwidth() > COLUMN + 0.1)
        undated = UNDATED["svg"] | {"Format": None, "Type": None}
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(written, metadata=undated)
        svg = DROPPED.sub("", written.getvalue().partition("<svg")[2])
        for name, outline in GLYPH.findall(svg):
            self._glyphs.setdefault(name, (f"g{len(self._glyphs)}", outline))
        svg = STYLE.sub(_attributes, GLYPH.sub("", svg))
        svg = PLACES.sub(lambda places: _steps(LONG.sub(_rounded, " ".join(places[0].split()))), svg)
        svg = re.sub(
            r'xlink:href="#([^"]*)"', lambda link: f'href="#{self._glyphs.get(link[1], link.groups())[0]}"', svg
        )
        # glyphs are scaled to about a tenth, so that whole numbers place them to a twentieth of a point
        svg = USED.sub(lambda use: f'{use[1]} x="{float(use[2]):.0f}" y="{float(use[3]):.0f}"/>', svg)
        svg = svg.replace(' y="0"/>', "/>")
        while svg != (svg := EMPTY.sub("", svg)):
            pass
        width, height = (72 * inches for inches in figure.get_size_inches())
        body = re.sub(r"\n\s*", "\n", svg.partition(">")[2].rpartition("</svg>")[0])
        # matplotlib writes names as outlines
        return {"label": label, "box": f"0 0 {width:g} {height:g}", "svg": Markup(body), "wide": wide}

    @property
    def glyphs(self) -> Markup:
        """Return the outlines of all glyphs, to which the figures refer."""
        from markupsafe import Markup

        outlines = "\n".join(
            f'<path id="{short}" d="{" ".join(outline.split())}" transform="scale(0.015625)"/>'
            for short, outline in self._glyphs.values()
        )
        return Markup(outlines)


def _attributes(style: re.Match[str]) -> str:
    """Return a style attribute as presentation attributes, which the content security policy allows."""
    pairs = (part.partition(":") for part in style[1].split(";") if ":" in part)
    return "".join(f' {name.strip()}="{value.strip()}"' for name, _, value in pairs)


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}".removesuffix(".0")


def _steps(outline: str) -> str:
    """Write an outline's lines by their differences, and level or upright ones that continue each other as one."""
    written: list[str] = []
    end, first, last, way = 0, (0.0, 0.0), (0.0, 0.0), (0, 0)
    for line in LINE.finditer(outline):
        here = float(line[1]), float(line[2])
        there = int(np.sign(here[0] - last[0])), int(np.sign(here[1] - last[1]))
        if line.start() != end or not written:
            written.append(outline[end : line.end()])
            way = (0, 0)
        elif any(there):
            if there == way and 0 in way:
                written.pop()
            else:
                first, way = last, there
            written.append(_moved(here[0] - first[0], here[1] - first[1]))
        end, last = line.end(), here
    return "".join([*written, outline[end:]])


def _moved(right: float, down: float) -> str:
    right_text, down_text = (re.sub(r"^(-?)0\.", r"\1.", f"{one:.1f}".removesuffix(".0")) for one in (right, down))
    return f"l{right_text} {down_text}" if right and down else f"h{right_text}" if right else f"v{down_text}"


def group_figures(
    results: Results, findings: Findings, group: Sequence[Finding], interpretation: Interpretation | None, sheet: Sheet
) -> Iterator[dict[str, Any]]:
    """Yield the figures of one data set and architecture: a panel of ROC curves per setting, then the settings side by side."""
    place = group[0].setting.group
    yield _figure(results, findings, "roc", {titled(one.setting): one.setting for one in group}, sheet)
    if len(group) > 1:
        yield _figure(results, findings, "attack_by_epsilon", {"AUC and TPR in every setting": place}, sheet)
        if sum(finding.test_accuracy is not None for finding in group) > 1:
            yield _figure(results, findings, "tradeoff", {"Accuracy against leakage": place}, sheet)
    if interpretation is not None:
        label = "Accuracy, similarity of explanations and leakage"
        yield _figure(results, findings, "explanation_metrics", {label: place}, sheet)
        if results.spec.releases:
            label = "Leakage against what each release keeps"
            yield _figure(results, findings, "releases", {label: place}, sheet)


def private_figures(results: Results, findings: Findings, dataset: str, sheet: Sheet) -> Iterator[dict[str, Any]]:
    """Yield the figures of one study of private explanations, and of the attacks on the models' own."""
    for name in (*PRIVATE, "private_attacks"):
        figure = _figure(results, findings, name, {figures[name].caption: dataset}, sheet)
        if figure["panels"]:
            yield figure


def _figure(results: Results, findings: Findings, name: str, subjects: dict[str, Any], sheet: Sheet) -> dict[str, Any]:
    """Draw a kind of figure for these subjects, each with an accessible name; subjects with nothing to draw are left out."""
    kind, panels = figures[name], []
    with paper_style(results.spec.figures.font):
        for label, subject in subjects.items():
            shown = drawn(kind, results, findings, subject)
            if not isinstance(shown, str):
                restyle(shown, results.spec)
                panels.append(sheet.add(shown, label))
    return {"name": name, "caption": kind.caption, "panels": panels}
