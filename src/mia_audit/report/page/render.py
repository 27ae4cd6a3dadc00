"""report.html, with the answer first.

Pages that load nothing: their templates, their style, and the content security policy that enforces it.

The page's tables of attacks: the answer's bars, all attacks, and the null control.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from mia_audit.report.data.findings import Finding, Findings, Leak, reference, silence
from mia_audit.report.data.groups import groups_of, strongest_only
from mia_audit.report.data.provenance import base_names, guarantee
from mia_audit.report.data.results import Results
from mia_audit.report.data.series import Interpretation, interpretations
from mia_audit.report.gate import Judged, conclusion
from mia_audit.report.gate import layout as judged_layout
from mia_audit.report.page.explanations import section
from mia_audit.report.page.exposed import exposed_section
from mia_audit.report.page.svg import Sheet, group_figures
from mia_audit.report.tables.catalogue import Cell, Column, Layout, auc_cell, estimate_cell, tables, text
from mia_audit.report.tables.settings import (
    groups_layout,
    persons_layout,
    present_channels,
    setting_name,
    settings_layout,
)
from mia_audit.report.text.answer import TITLES, WHOSE, answer, base_rate_sentence
from mia_audit.report.text.cautions import cautions, floors, readings
from mia_audit.report.text.formatting import (
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
from mia_audit.report.text.intrinsic import KINDS, compared, intrinsic_sentences, risk_sentences, small_sentence
from mia_audit.report.text.statements import (
    DESIGNS,
    adjacent,
    corrections,
    design_of,
    gap_sentence,
    guarantee_sentence,
    no_guarantee_sentence,
    null_ceiling,
    null_sentence,
    sampling_name,
    scope,
)
from mia_audit.report.text.steps import next_steps, not_examined
from mia_audit.sanitise import html
from mia_audit.signals.name import read_signal

if TYPE_CHECKING:
    import jinja2


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
    return files("mia_audit.report.page").joinpath("templates", "report.css").read_text(encoding="utf-8")


def policy(css: str) -> str:
    """Return a policy that allows this style and no script (Content Security Policy Level 3, 2.3.1)."""
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


ACCURACIES = (("Train", "training records"), ("Test", "others"))
"""The columns of accuracies, each with the records that it is about."""


def answer_table(group: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return the answer's rows: for each setting, the strongest attack on each channel, as a number and a bar, and the accuracy."""
    present, bounds = present_channels(group), _bounds(group)
    return [_row(finding, present, bounds) for finding in group]


def _bounds(group: Sequence[Finding]) -> tuple[float, float]:
    estimates = [leak.auc_estimate for one in group for leak in one.strongest.values()]
    values = [0.5, *(value for one in estimates for value in (one.mean, one.low, one.high) if not math.isnan(value))]
    margin = 0.06 * (max(values) - min(values)) or 0.01
    return min(values) - margin, max(values) + margin


def _row(finding: Finding, present: Sequence[str], bounds: tuple[float, float]) -> dict[str, Any]:
    known = {"Train": finding.train_accuracy, "Test": finding.test_accuracy}
    return {
        "name": titled(finding.setting),
        "cells": [_cell(channel, finding.strongest.get(channel), bounds) for channel in present],
        "accuracies": {
            phase: (percent(one.mean), percent_interval(one)) if one else None for phase, one in known.items()
        },
    }


def _cell(channel: str, leak: Leak | None, bounds: tuple[float, float]) -> dict[str, Any]:
    cell: dict[str, Any] = {"channel": TITLES[channel], "kind": channel, "known": leak is not None}
    if leak is None:
        return cell
    auc = leak.auc_estimate
    low, high = (auc.mean if math.isnan(value) else value for value in (auc.low, auc.high))
    places = {"chance": 0.5, "low": low, "mean": auc.mean, "high": high}
    cell |= {name: f"{100 * (value - bounds[0]) / (bounds[1] - bounds[0]):.1f}" for name, value in places.items()}
    return cell | {"auc": fixed(auc.mean), "interval": interval(auc), "silence": silence(auc)}


def attacks_layout(group: Sequence[Finding]) -> Layout:
    """Return a table with a row per attack and signal, strongest first in the reference setting."""
    by_setting = [{leak.key: leak for attacks in finding.leaks.values() for leak in attacks} for finding in group]
    first = by_setting[group.index(reference(group) or group[0])]
    keys = list(dict.fromkeys(key for attacks in (first, *by_setting) for key in attacks))
    keys.sort(key=lambda key: -first[key].auc.mean() if key in first else 0.0)
    rows: list[list[Cell | str]] = []
    for key in keys:
        values = [plus_minus(attacks[key].auc_estimate) if key in attacks else "–" for attacks in by_setting]
        rows.append([key[0], read_signal(key[1]).label, *values])
    columns = [
        *text("Attack"),
        Column("Signal", number=False, wide=True),
        *(Column(titled(one.setting)) for one in group),
    ]
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
    columns = [
        *text("Setting", "What is attacked"),
        Column("Attack", number=False, wide=True),
        Column("True membership"),
        Column("Null control"),
        *text("Contains 0.5"),
    ]
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


def render(results: Results, findings: Findings, sources: Mapping[str, Any]) -> str:
    """Return the page of an audit; `sources` is the content of provenance.json."""
    from markupsafe import Markup

    spec = results.spec
    css, sheet = style(), Sheet()
    interpreted = interpretations(results)
    groups = [
        _group(results, findings, group, interpreted.get(place), sheet) for place, group in findings.groups().items()
    ]
    level = f"{spec.confidence * 100:g}\u00a0%"
    private = [finding for finding in findings.settings if finding.setting.private]
    null = null_layout(findings, level)
    judged = _judged(results, findings)
    digests = DIGESTS if spec.policy and spec.policy.get("digests") else ""
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
        "private_studies": _private_studies(results, findings, sheet) if spec.studies else [],
        "exposed": list(exposed_section(results, findings)),
        "models": tables["models"].printed(results, findings),
        "published": tables["as_published"].printed(results, findings) if spec.as_published else None,
        "null": null,
        "null_text": f"{null_sentence(findings.settings)} {null_ceiling(findings)}" if null else "",
        "steps": next_steps(findings, _verdict(judged)),
        "judged": judged_layout(judged) if judged else None,
        "judged_text": f"{conclusion(judged)} {digests}" if judged else "",
    }
    return page_template("mia_audit.report.page", "report.html.j2", _shown).render(
        **shown,
        title=spec.title or spec.audit,
        version=sources["versions"].get("mia-audit", ""),
        scope=" ".join(filter(None, _opening(results, findings))),
        cautions=cautions(results, findings),
        unexamined=list(not_examined(spec, findings)),
        points=any("point" in f"{one['answer'].conclusion}{one['answer'].items}" for one in groups),
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
        exposed_units=_units(findings),
        metadata=list(_metadata(results, findings, sources)),
        hashes=[*_given(sources["given_sha256"]), *sources["inputs_sha256"].items()],
        config=_yaml(base_names(spec.config)),
        glyphs=sheet.glyphs,
        policy=policy(css),
        style=Markup(css),
    )


def _opening(results: Results, findings: Findings) -> Iterator[str]:
    """Yield the sentences below the title: what was audited, and what a reader has to know about it."""
    yield scope(results, findings)
    yield from (*corrections(results), *readings(results), *floors(results))
    yield from map(gap_sentence, results.spec.gaps)


def _shown(value: Any) -> Any:
    """Return text for the template, without hidden characters and with no line break within ε = 8."""
    text = html(value.text if isinstance(value, Cell) else value)
    return unbroken(text) if type(text) is str else text


def _units(findings: Findings) -> str:
    units = dict.fromkeys("persons" if finding.by_person else "records" for finding in findings.settings)
    return joined(list(units))


def _private_studies(results: Results, findings: Findings, sheet: Sheet) -> list[dict[str, Any]]:
    from mia_audit.report.page.private import private_section  # and the privacy accounting with it

    return private_section(results, findings, sheet)


DIGESTS = "This page is one of the files and cannot check digests itself: mia-audit gate checks them when the audit has ended."


def _verdict(judged: Sequence[Judged]) -> str:
    from mia_audit.report.gate import overall

    return overall(judged).value if judged else ""


def _judged(results: Results, findings: Findings) -> list[Judged]:
    from mia_audit.report.gate import judge
    from mia_audit.report.policy import Policy

    return judge(results, Policy.model_validate(results.spec.policy), findings) if results.spec.policy else []


def _group(
    results: Results,
    findings: Findings,
    group: list[Finding],
    interpretation: Interpretation | None,
    sheet: Sheet,
) -> dict[str, Any]:
    """Return the part of one data set and architecture, with its figures."""
    guessing, rows = results.guessing(group[0].setting), answer_table(group)
    return {
        "name": group[0].setting.place,
        "answer": answer(group, findings),
        "whose": WHOSE[group[0].setting.explained is not None, group[0].by_person],
        "channels": [TITLES[channel] for channel in present_channels(group)],
        "rows": rows,
        "span": " to ".join(fixed(end, 2) for end in _bounds(group)),
        "accuracies": [one for one in ACCURACIES if any(row["accuracies"][one[0]] for row in rows)],
        "null_sentence": null_sentence(group),
        "base_rate": base_rate_sentence(guessing.accuracy if guessing else None),
        "figures": list(group_figures(results, findings, group, interpretation, sheet)),
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
    return [
        {
            "name": dataset,
            "items": [
                {"term": name, "text": sentences}
                for name in comparison.protections
                if (sentences := " ".join(intrinsic_sentences(comparison, name)))
            ],
            "table": Layout(
                [*text("What is attacked", "Kind"), *map(Column, comparison.protections)],
                [
                    [
                        f"{source.architecture}: {source.label}",
                        KINDS[source.kind],
                        *(auc_cell(source.leaks.get(name)) for name in comparison.protections),
                    ]
                    for source in comparison.sources
                ],
                f"AUC of the strongest attack on every explainer, means over models with {findings.confidence * 100:g}\u00a0% intervals: all "
                "explain the same records, and target k has the same training set everywhere. The same as a figure: "
                f"figures/intrinsic_{dataset}.",
            ),
        }
        for dataset, comparison in compared(findings).items()
    ]


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


def _given(digests: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the files that no audit wrote, with their digests, and with their setting if there are several settings."""
    for setting, given in digests.items():
        for name, digest in given.items():
            yield (f"{name} (given)" if len(digests) == 1 else f"{name} (given, {setting})"), digest


READ_OUT = (
    "Exact ROC over all thresholds, ties as one vertex; TPR at an FPR is the largest at or below it; AUC with ties at ½; "
    "means over targets with intervals that allow for the shadow models which targets share; likelihood ratios with the {likelihood} likelihood."
)


def _yaml(config: Mapping[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)) if config else ""
