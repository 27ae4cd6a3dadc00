"""report.html, with the answer first."""

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from mia_audit.report.data.diverged import gap_sentences
from mia_audit.report.data.explanation_metrics import Interpretation, interpretations
from mia_audit.report.data.findings import Finding, Findings, Leak, reference
from mia_audit.report.data.handed_on import base_names
from mia_audit.report.data.provenance import guarantee
from mia_audit.report.data.results import Results
from mia_audit.report.gate.output import conclusion
from mia_audit.report.gate.output import layout as judged_layout
from mia_audit.report.gate.verdicts import Judged
from mia_audit.report.page.charts import group_charts
from mia_audit.report.page.explanations import section
from mia_audit.report.page.exposed import most_exposed
from mia_audit.report.page.exposed_persons import most_exposed_persons
from mia_audit.report.page.groups import bearers
from mia_audit.report.page.policy import policy
from mia_audit.report.page.tables import answer_table, attacks_layout, null_layout
from mia_audit.report.page.vega import DRAW, bundle
from mia_audit.report.tables.catalogue import tables
from mia_audit.report.tables.columns import estimate_cell
from mia_audit.report.tables.ladder import ladder_layout
from mia_audit.report.tables.layout import Cell, Column, Layout, text
from mia_audit.report.tables.persons import persons_layout
from mia_audit.report.tables.settings import present_channels, settings_layout
from mia_audit.report.text.answer import TITLES, answer
from mia_audit.report.text.cautions import cautions, floors, readings
from mia_audit.report.text.formatting import (
    capital,
    count,
    joined,
    rate,
    unbroken,
)
from mia_audit.report.text.intrinsic import KINDS, compared, intrinsic_sentences
from mia_audit.report.text.scaling_release import bounds_sentence, release_sentence
from mia_audit.report.text.statements import (
    DESIGNS,
    adjacent,
    corrections,
    design_of,
    exposed_sentences,
    exposure_sentences,
    guarantee_sentence,
    no_guarantee_sentence,
    null_ceiling,
    null_sentence,
    randomness_sentence,
    sampling_name,
    scope,
    unrepeatable_sentences,
)
from mia_audit.sanitise import html, html_json


def render(results: Results, findings: Findings, sources: Mapping[str, Any]) -> str:
    """Return the page of an audit; `sources` is the content of provenance.json."""
    import jinja2

    loader = jinja2.PackageLoader("mia_audit.report.page", "templates")
    options: dict[str, Any] = {
        "trim_blocks": True,
        "lstrip_blocks": True,
        "undefined": jinja2.StrictUndefined,
        "finalize": _shown,
    }
    template = jinja2.Environment(loader=loader, autoescape=True, **options).get_template("report.html.j2")
    script = bundle().replace("</script", "<\\/script")
    style = files("mia_audit.report.page").joinpath("templates", "report.css").read_text(encoding="utf-8")
    specifications: dict[str, dict[str, Any]] = {}
    interpreted = interpretations(results)
    groups = [
        _group(results, findings, group, interpreted.get(place), index, specifications)
        for index, (place, group) in enumerate(findings.groups().items())
    ]
    private_studies = _private_studies(results, findings, specifications) if results.spec.studies else []
    exposed = list(_exposed(results, findings))
    by_person = [
        {"name": group[0].setting.place, "table": persons_layout(group, findings.fpr)}
        for group in findings.groups().values()
        if group[0].by_person
    ]
    grouped = list(bearers(results, findings))
    intrinsic = _intrinsic(findings, results.spec.confidence) if results.spec.intrinsic else []
    spec = results.spec
    level = f"{spec.confidence * 100:g}\u00a0%"
    null = null_layout(findings, level)
    models = tables["models"].printed(results, findings)
    ladder = ladder_layout(results)
    published = tables["as_published"].printed(results, findings) if spec.as_published else None
    private = [finding for finding in findings.settings if finding.setting.private]
    gaps, unstable = gap_sentences(spec.gaps), unrepeatable_sentences(results)
    facts = (*corrections(results), *readings(results), *floors(results), gaps, *unstable)
    opening = (scope(results, findings), *facts)
    judged = _judged(results, findings) if spec.policy else []
    return template.render(
        title=spec.title or spec.audit,
        version=sources["versions"].get("mia-audit", ""),
        scope=" ".join(filter(None, opening)),
        cautions=cautions(results, findings),
        contents=_contents(
            {
                **dict.fromkeys(("curves", "settings", "attacks"), bool(groups)),
                "persons": bool(by_person),
                "groups": bool(grouped),
                "intrinsic": bool(intrinsic),
                "explanations": bool(interpreted),
                "private": bool(private_studies),
                "records": bool(exposed),
                "models": bool(models),
                "ladder": bool(ladder),
                "published": bool(published),
                "null": bool(null),
                "policy": bool(judged),
            }
        ),
        level=level,
        fpr=rate(findings.fpr) if findings.fpr is not None else "",
        channels={channel for finding in findings.settings for channel in finding.strongest},
        private=bool(private),
        trained_with_noise=any(finding.setting.trained for finding in private),
        adjacent=adjacent(findings),
        sampling=joined(sorted({sampling_name(known) for one in private if "sampling" in (known := guarantee(one))})),
        groups=groups,
        settings=settings_layout(results, findings, page=True) if groups else None,
        by_person=by_person,
        grouped=grouped,
        exposed_units=_units(findings),
        released=bool(results.releases),
        intrinsic=intrinsic,
        private_studies=private_studies,
        explained=section(results, findings, interpreted, spec.confidence),
        exposed=exposed,
        models=models,
        ladder=ladder,
        published=published,
        null=null,
        null_text=f"{null_sentence(findings.settings)} {null_ceiling(findings)}" if null else "",
        judged=judged_layout(judged) if judged else None,
        judged_text=f"{conclusion(judged)} {DIGESTS if spec.policy and spec.policy.get('digests') else ''}"
        if judged
        else "",
        metadata=list(_metadata(results, findings, sources)),
        hashes=[*_given(sources["given_sha256"]), *sources["inputs_sha256"].items()],
        config=_yaml(base_names(spec.config)),
        charts=_safe(html_json(specifications)),
        policy=policy([script, DRAW], [style]),
        style=_safe(style),
        bundle=_safe(script),
        draw=_safe(DRAW),
    )


def _shown(value: Any) -> Any:
    """Return text for the template, without hidden characters and with no line break within ε = 8."""
    text = html(value.text if isinstance(value, Cell) else value)
    return unbroken(text) if type(text) is str else text


def _units(findings: Findings) -> str:
    units = dict.fromkeys("persons" if finding.by_person else "records" for finding in findings.settings)
    return joined(list(units))


def _private_studies(
    results: Results, findings: Findings, specifications: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    from mia_audit.report.page.private_section import private_section  # and the privacy accounting with it

    return private_section(results, findings, specifications)


DIGESTS = "This page is one of the files and cannot check digests itself: mia-audit gate checks them when the audit has ended."


def _judged(results: Results, findings: Findings) -> list[Judged]:
    from mia_audit.report.gate.judge import judge
    from mia_audit.report.gate.policy import Policy

    return judge(results, Policy.model_validate(results.spec.policy), findings)


def _safe(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)


def _contents(shown: Mapping[str, bool]) -> list[tuple[str, str]]:
    entries = {
        "answer": "Answer",
        "words": "Words",
        "curves": "Curves",
        "settings": "Settings",
        "persons": "Persons",
        "groups": "Who bears the risk",
        "intrinsic": "Intrinsic explanations",
        "explanations": "Explanations",
        "private": "Private explanations",
        "records": "Most exposed",
        "models": "How many models",
        "ladder": "Ladder",
        "published": "As published",
        "null": "Null control",
        "policy": "Policy",
        "attacks": "All attacks",
        "limits": "Limits",
        "provenance": "Provenance",
    }
    return [(anchor, name) for anchor, name in entries.items() if shown.get(anchor, True)]


def _group(
    results: Results,
    findings: Findings,
    group: list[Finding],
    interpretation: Interpretation | None,
    index: int,
    specifications: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """Return the part of one data set and architecture, and add its charts to `specifications` by id."""
    figures = []
    for name, label, caption, chart in group_charts(results, findings, group, interpretation):
        specifications[f"chart-{index}-{name}"] = chart
        figures.append({"id": f"chart-{index}-{name}", "label": label, "caption": caption})
    return {
        "name": group[0].setting.place,
        "answer": answer(group, findings, results.spec.confidence),
        "whose": WHOSE[group[0].setting.explained is not None, group[0].by_person],
        "channels": [TITLES[channel] for channel in present_channels(group)],
        "trained": any(finding.test_accuracy for finding in group),
        "rows": answer_table(group),
        "null_sentence": null_sentence(group),
        "figures": figures,
        "attacks": attacks_layout(group),
    }


WHOSE = {
    (False, False): "training records",
    (False, True): "persons in the training set",
    (True, False): "records of the explanation set",
    (True, True): "persons in the explanation set",
}
"""The units that an attack recognises, by whether explanation sets are attacked, and whether the unit is the person."""


def _exposed(results: Results, findings: Findings) -> Iterator[dict[str, Any]]:
    """Yield the most exposed records of every data set's reference setting, and of every finished model."""
    seen: set[str] = set()
    for group in findings.groups().values():
        finding = reference(group) or group[0]
        setting = finding.setting
        name = setting.place if setting.finished else setting.dataset_name
        most = most_exposed_persons if finding.by_person else most_exposed
        listed = most(results, finding, findings.fpr) if name not in seen else None
        if listed is None or not listed[1]:
            continue
        seen.add(name)
        leak, records = listed
        maps, bars = (any(getattr(one, name) for one in records) for name in ("maps", "bars"))
        yield {
            "name": name,
            "text": exposed_sentences(finding, leak, len(records), maps, bars),
            "records": [
                vars(one)
                | {
                    "sentences": exposure_sentences(
                        one.recognised,
                        one.inside,
                        one.false_alarms,
                        one.outside,
                        one.percentile,
                        findings.fpr,
                        "persons" if finding.by_person else "records",
                    )
                }
                for one in records
            ],
        }


def _intrinsic(findings: Findings, confidence: float) -> list[dict[str, Any]]:
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
                        *(_leak_cell(source.leaks.get(name)) for name in comparison.protections),
                    ]
                    for source in comparison.sources
                ],
                f"AUC of the strongest attack on every explainer, means over models with {confidence * 100:g}\u00a0% intervals: all "
                "explain the same records, and target k has the same training set everywhere. The same as a figure: "
                f"figures/intrinsic_{dataset}.",
            ),
        }
        for dataset, comparison in compared(findings).items()
    ]


def _leak_cell(leak: Leak | None) -> Cell:
    return estimate_cell(leak.auc_estimate if leak else None)


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
        if release := metadata.get("release"):
            yield f"Constants of {name}", f"{release_sentence(name, release)} {bounds_sentence(release)}"
    design, share = design_of(results)
    if design and findings.settings:
        drawn = DESIGNS.get(design, design).format(share=share)
        yield (
            "Membership",
            f"{drawn[:1].upper()}{drawn[1:]} (design {design}); one draw, shared by all settings of a data set",
        )
    if said := randomness_sentence(results.spec.explainers.get("randomness")):
        yield "Random draws of explainers", said
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
