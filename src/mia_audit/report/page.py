"""report.html, with the answer first: the sections, their templates and style, and the content security policy.

Figures are those of `report/figures/`, drawn anew in SVG that shares its glyphs and needs no style attribute.
`group_figures` says which figures the page shows, and where.
"""

from __future__ import annotations

import base64
import hashlib
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.report.advice import floors, next_steps, not_examined, readings
from mia_audit.report.answer import ACCURACIES, answer_content, base_rate_sentence, present
from mia_audit.report.explained import exposed_section, section
from mia_audit.report.figures.catalogue import COLUMN, UNDATED, colours_of, draw, drawn, figures, paper_style, rename
from mia_audit.report.findings import TITLES, Estimate, Finding, Findings, guarantee, reference, silence
from mia_audit.report.formatting import (
    capital,
    count,
    fixed,
    interval,
    joined,
    percent,
    percent_interval,
    plus_minus,
    rate,
    significant,
    titled,
    unbroken,
    upper_first,
)
from mia_audit.report.gate import conclusion, judge, overall
from mia_audit.report.gate import layout as judged_layout
from mia_audit.report.opened import find
from mia_audit.report.provenance import base_names, provenance, write_page
from mia_audit.report.results import Results
from mia_audit.report.series import groups_of, interpretations, strongest_only
from mia_audit.report.statements import (
    DESIGNS,
    KINDS,
    adjacent,
    compared,
    corrections,
    design_of,
    gap_sentence,
    guarantee_sentence,
    intrinsic_sentences,
    no_guarantee_sentence,
    null_ceiling,
    null_sentence,
    risk_sentences,
    sampling_name,
    scope,
    small_sentence,
)
from mia_audit.report.tables.attacks import groups_layout, persons_layout, setting_name, settings_layout
from mia_audit.report.tables.catalogue import Cell, Column, Layout, auc_cell, estimate_cell, tables, text, write
from mia_audit.sanitise import html
from mia_audit.signals.name import read_signal

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup
    from matplotlib.figure import Figure


def page_template(package: str, name: str, finalize: Callable[[Any], Any]) -> jinja2.Template:
    """Return a package's template; `finalize` makes every value safe for the page."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader(package, "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
    ).get_template(name)


def style() -> str:
    """Return the style sheet of all pages."""
    return files("mia_audit.report").joinpath("templates", "report.css").read_text(encoding="utf-8")


def policy(css: str) -> str:
    """Return a policy that allows this style and no script (Content Security Policy Level 3, 2.3.1)."""
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


def forest(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the table of the answer's rows: for each setting the strongest attack on each channel, as a number and a bar, and the accuracies."""
    channels, accuracies = present(rows)
    aucs = [attack["auc"] for row in rows for attack in row["attacks"].values()]
    ends = [0.5, *(float(end) for numbers in aucs for end in numbers.values() if end is not None)]
    margin = 0.06 * (max(ends) - min(ends)) or 0.01
    first, last = min(ends) - margin, max(ends) + margin

    def cell(channel: str, row: Mapping[str, Any]) -> dict[str, Any]:
        if channel not in row["attacks"]:
            return {"channel": TITLES[channel], "known": False}
        auc, seeds = Estimate.from_numbers(row["attacks"][channel]["auc"]), row["attacks"][channel].get("by_seed", {})
        low, high = (auc.mean if math.isnan(value) else value for value in (auc.low, auc.high))
        places = {"chance": 0.5, "low": low, "mean": auc.mean, "high": high}
        return {
            **{"channel": TITLES[channel], "kind": channel, "known": True},
            **{name: f"{100 * (value - first) / (last - first):.1f}" for name, value in places.items()},
            **{"auc": fixed(auc.mean), "interval": interval(auc), "silence": silence(auc)},
            "by_seed": {seed: fixed(value) for seed, value in seeds.items()},
        }

    def accuracy(numbers: Mapping[str, Any] | None) -> tuple[str, str] | None:
        value = Estimate.from_numbers(numbers) if numbers else None
        return (percent(value.mean), percent_interval(value)) if value else None

    return {
        "channels": [TITLES[channel] for channel in channels],
        "accuracies": {name.replace("_", " ").capitalize(): ACCURACIES[name] for name in accuracies},
        "span": f"{fixed(first, 2)} to {fixed(last, 2)}",
        "rows": [
            {
                "name": row["setting"],
                "cells": [cell(channel, row) for channel in channels],
                "accuracies": [accuracy(row[name]) for name in accuracies],
            }
            for row in rows
        ],
    }


def attacks_layout(group: Sequence[Finding]) -> Layout:
    """Return a table with a row per attack and signal, strongest first in the reference setting."""
    by_setting = [{leak.key: leak for attacks in finding.leaks.values() for leak in attacks} for finding in group]
    first = by_setting[group.index(reference(group) or group[0])]
    keys = dict.fromkeys(key for attacks in (first, *by_setting) for key in attacks)
    rows: list[list[Cell | str]] = []
    for key in sorted(keys, key=lambda key: -first[key].auc.mean() if key in first else 0.0):
        values = [plus_minus(attacks[key].auc_estimate) if key in attacks else "–" for attacks in by_setting]
        rows.append([key[0], read_signal(key[1]).label, *values])
    signal = Column("Signal", number=False, wide=True)
    columns = [*text("Attack"), signal, *(Column(titled(one.setting)) for one in group)]
    caption = (
        "Mean AUC ± standard deviation over targets, for the headline's likelihood; all likelihoods and false-positive rates are "
        "in tables/summary."
    )
    return Layout(columns, rows, caption)


def null_layout(findings: Findings, level: str) -> Layout | None:
    """Return the table of the strongest attacks' null control; None if there is none."""
    rows: list[list[Cell | str]] = [
        [
            setting_name(finding, findings),
            TITLES[channel].lower(),
            f"{leak.attack} on {read_signal(leak.signal).label}",
            estimate_cell(leak.auc_estimate),
            estimate_cell(null),
            f"no, by {significant(max(null.low - 0.5, 0.5 - null.high), 1)}" if null.excludes(0.5) else "yes",
        ]
        for finding in findings.settings
        if finding.null
        for channel, null in finding.null.headline.items()
        for leak in [finding.strongest[channel]]
    ]
    attack, values = Column("Attack", number=False, wide=True), map(Column, ("True membership", "Null control"))
    columns = [*text("Setting", "What is attacked"), attack, *values, *text("Contains 0.5")]
    caption = (
        f"The strongest attacks on the true membership and on a shuffled one: AUC, {level} interval. Both intervals allow for the models "
        "that targets share as shadow models; the null control's is wider because all of its spread is noise."
    )
    return Layout(columns, rows, caption) if rows else None


CONTENTS = {
    "policy": ("Policy", "judged"),
    "answer": ("Answer", ""),
    "now": ("What to do now", "steps"),
    "evidence": ("Evidence", "groups"),
    "curves": ("Curves", "groups"),
    "settings": ("Settings", "groups"),
    "persons": ("Persons", "by_person"),
    "groups": ("Who bears the risk", "grouped"),
    "intrinsic": ("Intrinsic explanations", "intrinsic"),
    "explanations": ("Explanations", "explained"),
    "private": ("Private explanations", "private_studies"),
    "records": ("Most exposed", "exposed"),
    "models": ("How many models", "models"),
    "published": ("As published", "published"),
    "null": ("Null control", "null"),
    "attacks": ("All attacks", "groups"),
    "limits": ("Limits", ""),
    "unexamined": ("Not examined", ""),
    "words": ("Glossary", ""),
    "provenance": ("Provenance", ""),
}
"""The sections of the page, each with its name in the table of contents and the part of the template's input that it shows."""


def publish(results: Results) -> None:
    """Write tables, figures and page of an audit into its folder."""
    findings = find(results)
    write(results, findings, results.root / "tables")
    draw(results, findings, results.root / "figures")
    write_report(results, findings, results.root / "report.html")


def write_report(results: Results, findings: Findings, path: Path) -> None:
    """Write the page, with answer.json and provenance.json beside it."""
    sources = provenance(results, findings.settings)
    page, answer = render(results, findings, sources), answer_content(results, findings)
    write_page(path, page, answer, sources, results.spec.config)


def render(results: Results, findings: Findings, sources: Mapping[str, Any]) -> str:
    """Return the page of an audit; `sources` is the content of provenance.json."""
    import yaml
    from markupsafe import Markup

    spec = results.spec
    css, sheet = style(), Sheet()
    interpreted = interpretations(results)
    content, listed = answer_content(results, findings), findings.groups().values()
    groups = [
        _group(results, findings, said, group, sheet) for said, group in zip(content["groups"], listed, strict=False)
    ]
    level = f"{spec.confidence * 100:g}\u00a0%"
    private = [finding for finding in findings.settings if finding.setting.private]
    null, gaps = null_layout(findings, level), map(gap_sentence, spec.gaps)
    judged = judge(results, spec.policy, findings) if spec.policy else []
    digests = DIGESTS if spec.policy and spec.policy.digests else ""
    shown: dict[str, Any] = {
        "groups": groups,
        "settings": settings_layout(results, findings, page=True) if groups else None,
        "comparisons": tables["comparisons"].printed(results, findings) if spec.compare else None,
        "by_person": [
            {"name": group[0].setting.place, "table": persons_layout(group, findings.fpr)}
            for group in findings.groups().values()
            if group[0].by_person
        ],
        "grouped": list(_grouped(results, findings)),
        "intrinsic": _intrinsic(findings) if spec.intrinsic else [],
        "explained": section(results, findings, interpreted),
        "private_studies": list(private_studies(results, findings, sheet)) if spec.studies else [],
        "exposed": list(exposed_section(results, findings)),
        "models": tables["models"].printed(results, findings),
        "published": tables["as_published"].printed(results, findings) if spec.as_published else None,
        "null": null,
        "null_text": f"{null_sentence(findings.settings)} {null_ceiling(findings)}" if null else "",
        "steps": next_steps(findings, overall(judged).value if judged else ""),
        "judged": judged_layout(judged) if judged else None,
        "judged_text": f"{conclusion(judged)} {digests}" if judged else "",
    }
    units = dict.fromkeys("persons" if one.by_person else "records" for one in findings.settings)
    config = yaml.safe_dump(base_names(dict(spec.config)), sort_keys=False, allow_unicode=True)
    several = len(sources["given_sha256"]) > 1
    given = [  # the files that no audit wrote
        (f"{name} (given, {setting})" if several else f"{name} (given)", digest)
        for setting, digests in sources["given_sha256"].items()
        for name, digest in digests.items()
    ]
    return page_template("mia_audit.report", "report.html.j2", _shown).render(
        **shown,
        title=spec.title or spec.audit,
        version=sources["versions"].get("mia-audit", ""),
        scope=" ".join([scope(results, findings), *corrections(results), *readings(results), *floors(results), *gaps]),
        cautions=content["cautions"],
        unexamined=list(not_examined(spec, findings)),
        points=any("point" in f"{one['conclusion']}{one['sentences']}" for one in groups),
        guessed=any(not leak.beats_guessing for one in findings.settings for leak in one.strongest.values()),
        unit="person" if findings.settings and all(one.by_person for one in findings.settings) else "record",
        contents=[(anchor, name) for anchor, (name, part) in CONTENTS.items() if not part or shown[part]],
        level=level,
        fpr=rate(findings.fpr) if findings.fpr is not None else "",
        channels={channel for finding in findings.settings for channel in finding.strongest},
        private=bool(private),
        trained=bool(spec.trained),
        trained_with_noise=any(finding.setting.trained for finding in private),
        adjacent=adjacent(findings),
        sampling=joined(sorted({sampling_name(known) for one in private if "sampling" in (known := guarantee(one))})),
        exposed_units=joined(list(units)),
        metadata=list(_metadata(results, findings, sources)),
        hashes=[*given, *sources["inputs_sha256"].items()],
        config=config if spec.config else "",
        glyphs=sheet.glyphs,
        policy=policy(css),
        style=Markup(css),
    )


def _shown(value: Any) -> Any:
    """Return text for the template, without hidden characters and with no line break within ε = 8."""
    text = html(value.text if isinstance(value, Cell) else value)
    return unbroken(text) if type(text) is str else text


def private_studies(results: Results, findings: Findings, sheet: Sheet) -> Iterator[dict[str, Any]]:
    """Yield every study's part of the section on private explanations, with its figures."""
    from mia_audit.report.private import private_section  # and the privacy accounting with it

    for dataset, part in zip(results.spec.studies, private_section(results, findings), strict=True):
        yield part | {"figures": list(private_figures(results, findings, dataset, sheet))}


DIGESTS = "This page is one of the files and cannot check digests itself: mia-audit gate checks them when the audit has ended."


def _group(
    results: Results, findings: Findings, said: Mapping[str, Any], group: list[Finding], sheet: Sheet
) -> dict[str, Any]:
    """Return the part of one data set and architecture: its answer as in answer.json, with table and figures."""
    return {
        **said,
        "table": forest(said["rows"]),
        "null_sentence": null_sentence(group),
        "base_rate": base_rate_sentence(said["base_rate"]),
        "figures": list(group_figures(results, findings, group, sheet)),
        "attacks": attacks_layout(group),
    }


def _grouped(results: Results, findings: Findings) -> Iterator[dict[str, Any]]:
    """Yield the risk of every group of records, for each data set and architecture with results by group."""
    grouped = strongest_only(groups_of(results, findings))
    for place in dict.fromkeys(one.finding.setting.group for one in grouped):
        alike = [one for one in grouped if one.finding.setting.group == place]
        yield {
            "name": ", ".join(place),
            "sentences": [risk_sentences(one, findings.confidence) for one in alike],
            "small": small_sentence(alike),
            "table": groups_layout(alike, findings.confidence),
        }


def _intrinsic(findings: Findings) -> list[dict[str, Any]]:
    """Return the comparison of intrinsic with post-hoc explanations for every data set: a table, and sentences by protection."""
    parts = []
    for dataset, comparison in compared(findings).items():
        said = {name: " ".join(intrinsic_sentences(comparison, name)) for name in comparison.protections}
        rows: list[list[Cell | str]] = []
        for source in comparison.sources:
            cells = [auc_cell(source.leaks.get(name)) for name in comparison.protections]
            rows.append([f"{source.architecture}: {source.label}", KINDS[source.kind], *cells])
        columns = [*text("What is attacked", "Kind"), *map(Column, comparison.protections)]
        caption = (
            f"AUC of the strongest attack on every explainer, means over models with {findings.confidence * 100:g}\u00a0% intervals: all "
            "explain the same records, and target k has the same training set everywhere. The same as a figure: "
            f"figures/intrinsic_{dataset}."
        )
        items = [{"term": name, "text": sentences} for name, sentences in said.items() if sentences]
        parts.append({"name": dataset, "items": items, "table": Layout(columns, rows, caption)})
    return parts


def _metadata(results: Results, findings: Findings, sources: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "Audit", f"{sources['audit']}" + (f", seed {sources['seed']}" if sources["seed"] is not None else "")
    if sources["config_sha256"]:
        yield "Config", f"SHA-256 {sources['config_sha256']}"
    for name, metadata in sources["pools"].items():
        noise = (results.spec.config.get("datasets", {}).get(name) or {}).get("label_noise")
        parts = [
            count(metadata["records"], "audited record"),
            f"{count(metadata['public'], 'public record')} set aside",
            f"{count(metadata.get('duplicates') or 0, 'duplicate')} dropped",
            *([f"{noise * 100:g}\u00a0% of labels replaced"] if noise else []),
        ]
        yield f"Pool {name}", ", ".join(parts)
    design, share = design_of(results)
    if design and findings.settings:
        drawn = DESIGNS.get(design, design).format(share=share)
        yield ("Membership", f"{upper_first(drawn)} (design {design}); one draw, shared by all settings of a data set")
    private = [finding for finding in findings.settings if finding.setting.private]
    if private:
        guarantees = "; ".join(dict.fromkeys(guarantee_sentence(finding, guarantee(finding)) for finding in private))
        changed = adjacent(findings)
        trained = f" Adjacency of trainings: {changed} added or removed." if changed else ""
        yield "Guarantees", f"{capital(guarantees)}.{trained}"
    for finding in findings.settings:
        if finding.setting.no_guarantee:
            yield "No guarantee", f"{no_guarantee_sentence(finding)}."
    if findings.settings:
        yield "Read-out", READ_OUT.format(likelihood=results.spec.likelihood)
    yield "Versions", ", ".join(f"{name} {version}" for name, version in sources["versions"].items())


READ_OUT = (
    "Exact ROC over all thresholds, ties as one vertex; TPR at an FPR is the largest at or below it; AUC with ties at ½; "
    "means over targets with intervals that allow for the shadow models which targets share; likelihood ratios with the {likelihood} likelihood."
)


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
    results: Results, findings: Findings, group: Sequence[Finding], sheet: Sheet
) -> Iterator[dict[str, Any]]:
    """Yield the figures of one data set and architecture: a panel of ROC curves per setting, then the settings side by side.

    The latter are of a group here; in figures/, where an audit has each of them once, they are of all groups.
    """
    place = group[0].setting.group
    measured = place in results.spec.measured_groups
    shown = {
        "attack_by_epsilon": ("AUC and TPR in every setting", len(group) > 1),
        "tradeoff": ("Accuracy against leakage", sum(one.test_accuracy is not None for one in group) > 1),
        "explanation_metrics": ("Accuracy, similarity of explanations and leakage", measured),
        "releases": ("Leakage against what each release keeps", measured and results.spec.releases),
    }
    yield _figure(results, findings, "roc", {titled(one.setting): one.setting for one in group}, sheet)
    for name, (label, there) in shown.items():
        if there:
            yield _figure(results, findings, name, {label: place}, sheet)


def private_figures(results: Results, findings: Findings, dataset: str, sheet: Sheet) -> Iterator[dict[str, Any]]:
    """Yield the figures of one study of private explanations, and of the attacks on the models' own."""
    for name in (*PRIVATE, "private_attacks"):
        figure = _figure(results, findings, name, {figures[name].caption: dataset}, sheet)
        if figure["panels"]:
            yield figure


def _figure(results: Results, findings: Findings, name: str, subjects: dict[str, Any], sheet: Sheet) -> dict[str, Any]:
    """Draw a kind of figure for these subjects, each with an accessible name; subjects with nothing to draw are left out."""
    kind, panels = figures[name], []
    with paper_style(results.spec.figures.font, colours_of(results.spec)):
        for label, subject in subjects.items():
            shown = drawn(kind, results, findings, subject)
            if not isinstance(shown, str):
                rename(shown, results.spec.figures.names)
                panels.append(sheet.add(shown, label))
    return {"name": name, "caption": kind.caption, "panels": panels}
