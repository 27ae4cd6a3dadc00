"""The registry of figures: every file of this package registers one or more, each with condition, caption and drawing function.

These files do not import matplotlib or polars at the top, because the workflow imports them for the names of an audit's figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.registry import Registry
from mia_audit.sanitise import csv

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mia_audit.report.data.findings import Finding, Findings
    from mia_audit.report.data.results import Results
    from mia_audit.report.data.spec import Spec

    Subjects = Callable[[Spec], Mapping[str, Any]]
    Drawing = Callable[[Results, Findings, Any], Figure | str]

CSV = "csv"
"""Suffix of a figure's data."""


@dataclass(frozen=True)
class FigureKind:
    """A kind of figure.

    `subjects` maps the names of an audit's figures to the subject of each: a setting, a group (data set, architecture),
    a data set, or another value. `draw` returns a figure, or a sentence if there is nothing to draw. `private` figures
    are drawn with the tables of private explanations.
    """

    subjects: Subjects
    caption: str
    draw: Drawing
    private: bool = False

    def __call__(self, results: Results, findings: Findings, subject: Any = None) -> Figure | str:
        """Draw the figure of one subject."""
        return self.draw(results, findings, subject)


figures: Registry[FigureKind] = Registry("figure", "mia_audit.report.figures")


def figure(name: str, subjects: Subjects, caption: str, private: bool = False) -> Callable[[Drawing], FigureKind]:
    """Register the decorated drawing as a kind of figure."""
    return lambda draw: figures.register(name)(FigureKind(subjects, caption, draw, private))


def once(name: str, condition: Callable[[Spec], object] = lambda spec: True) -> Subjects:
    """Return the subjects of a figure that an audit has at most once."""
    return lambda spec: {name: None} if condition(spec) else {}


def once_for(prefix: str, chosen: Callable[[Spec], Iterable[Any]]) -> Subjects:
    """Return the subjects of a figure that an audit has once for each of these names, or groups; they follow the prefix in its name."""

    def name(subject: Any) -> str:
        return f"{prefix}_{subject if isinstance(subject, str) else '_'.join(subject)}"

    return lambda spec: {name(subject): subject for subject in chosen(spec)}


def figure_files(spec: Spec, private: bool = False) -> list[str]:
    """List the file names of an audit's figures, in every format and as data."""
    names = [name for kind in figures for name in figures[kind].subjects(spec) if figures[kind].private == private]
    return [f"{name}.{suffix}" for name in names for suffix in (*spec.figures.formats, CSV)]


def draw(results: Results, findings: Findings, folder: Path, private: bool = False) -> None:
    """Draw the figures of an audit into a folder, each with its data; settings that could not be attacked get a notice.

    Raises UserError for a font that is not installed.
    """
    from mia_audit.report.figures.style import notice, paper_style, save, table_of
    from mia_audit.storage import atomic_write

    look = results.spec.figures
    with paper_style(look.font):
        for kind in (figures[name] for name in figures if figures[name].private == private):
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

    from mia_audit.report.figures.style import disclaimed

    shown = kind(results, findings, subject)
    return shown if isinstance(shown, str) or kind.private else disclaimed(shown, _shown_in(findings, subject))


def restyle(figure: Figure, spec: Spec) -> None:
    """Give settings and explainers the colours and names that the config gives them."""
    from matplotlib.text import Text

    from mia_audit.explain.catalogue import explainer_label

    if spec.figures.colours:
        _recolour(figure, spec)
    for text in figure.findobj(Text) if spec.figures.names else ():
        for name, shown in spec.figures.names.items():
            text.set_text(text.get_text().replace(explainer_label(name), shown))  # type: ignore[attr-defined]


def _recolour(figure: Figure, spec: Spec) -> None:
    """Replace the colour of each series that has one in the config, wherever that colour stands in the figure."""
    import numpy as np
    from matplotlib.colors import is_color_like, to_hex, to_rgba

    from mia_audit.explain.catalogue import explainer_label
    from mia_audit.report.text.formatting import protection, titled

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


def _shown_in(findings: Findings, subject: Any) -> list[Finding]:
    """Return the settings that a figure shows: all, unless its subject is a setting, a group or a data set."""
    places = {subject} & {
        place for one in findings.settings for place in (one.setting, one.setting.group, one.setting.dataset)
    }
    return [
        one for one in findings.settings if not places or places & {one.setting, one.setting.group, one.setting.dataset}
    ]
