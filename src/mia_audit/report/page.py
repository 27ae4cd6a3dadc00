"""report.html: one file that loads nothing, with the answer first."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mia_audit.report import charts
from mia_audit.report.answer import TITLES, answer
from mia_audit.report.constants import bounds_sentence, notes, release_sentence, releases
from mia_audit.report.explanations import chart_settings, section
from mia_audit.report.exposed import most_exposed
from mia_audit.report.findings import Finding, Findings, reference
from mia_audit.report.gaps import gap_sentences
from mia_audit.report.inherent import inherent_section
from mia_audit.report.interpretability import Interpretation, interpretations, measure_label
from mia_audit.report.listings import answer_table, attacks_table, null_table, present_channels, settings_table
from mia_audit.report.provenance import guarantee
from mia_audit.report.results import Results
from mia_audit.report.series import curves, series
from mia_audit.report.statements import (
    caught_sentences,
    design_of,
    exposed_sentences,
    guarantee_sentence,
    no_guarantee_sentence,
    null_sentence,
    sampling_name,
    scope,
)
from mia_audit.report.vega import bundle
from mia_audit.report.words import (
    capital,
    count,
    joined,
    protection,
    rate,
)

ROC_CAPTION = (
    "ROC curves on logarithmic axes: mean over targets, read as steps and never interpolated, down to one false alarm among "
    "all records that were not trained on. Above the dashed diagonal an attack beats guessing; the left end is where "
    "records are named with hardly any false alarms. Bands: ± one standard deviation over targets, for the first two. "
    "A click on a name in the legend shows it alone; pointing at a curve shows its numbers."
)
AUC_CAPTION = (
    "AUC of the strongest attack on each kind of information, setting by setting, with intervals. Dashed: guessing."
)
TPR_CAPTION = (
    "The share of training records named at {fpr} false alarms, setting by setting, with intervals. Dashed: guessing."
)
TRADEOFF_CAPTION = "The price of protection: accuracy against leakage, with intervals. Down and to the right is better."

LIKENESS_CAPTION = (
    "How alike explanations are ({measure}; 1 is the same), with intervals: each protected model's beside those of the "
    "unprotected model with the same training set. On the left, two unprotected models with different training sets."
)


def render(results: Results, findings: Findings, sources: Mapping[str, Any]) -> str:
    """Write the page of an audit; `sources` is what provenance.json says."""
    import jinja2

    loader = jinja2.PackageLoader("mia_audit.report", "templates")
    options: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": jinja2.StrictUndefined}
    template = jinja2.Environment(loader=loader, autoescape=True, **options).get_template("report.html.j2")
    specifications: dict[str, dict[str, Any]] = {}
    interpreted = interpretations(results)
    groups = [
        _group(results, findings, group, interpreted.get(place), index, specifications)
        for index, (place, group) in enumerate(findings.groups().items())
    ]
    private_studies = _private_studies(results, specifications) if results.spec.studies else []
    exposed = list(_exposed(results, findings))
    null = null_table(findings)
    spec = results.spec
    private = [found for found in findings.settings if found.setting.private]
    released = releases(results)
    table = settings_table(findings)
    return template.render(
        title=spec.title or spec.audit,
        version=sources["versions"].get("mia-audit", ""),
        scope=f"{scope(results, findings)} {gap_sentences(spec.gaps)}".rstrip(),
        contents=_contents(
            {
                **dict.fromkeys(("curves", "settings", "attacks"), bool(groups)),
                "inherent": bool(spec.inherent),
                "explanations": bool(interpreted),
                "private": bool(private_studies),
                "records": bool(exposed),
                "null": bool(null),
            }
        ),
        level=f"{spec.confidence * 100:g}\u00a0%",
        fpr=rate(findings.fpr) if findings.fpr is not None else "",
        channels={channel for found in findings.settings for channel in found.strongest},
        private=bool(private),
        trained_privately=any(found.setting.trained for found in private),
        sampling=joined(sorted({sampling_name(facts) for found in private if (facts := guarantee(found))})),
        groups=groups,
        settings=table | {"notes": [*table["notes"], *notes(findings.settings, released)]},
        released=bool(released),
        inherent=inherent_section(findings) if spec.inherent else [],
        private_studies=private_studies,
        explained=section(results, findings, interpreted, spec.confidence),
        exposed=exposed,
        null=null,
        facts=list(_facts(results, findings, sources)),
        hashes=sources["inputs_sha256"],
        config=_yaml(spec.config),
        charts=_safe(json.dumps(specifications, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")),
        bundle=_safe(bundle().replace("</script", "<\\/script")),
    )


def _private_studies(results: Results, specifications: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    from mia_audit.report.private_section import private_section  # and all of private explanations with it

    return private_section(results, specifications)


def _safe(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)


def _contents(shown: Mapping[str, bool]) -> list[tuple[str, str]]:
    entries = {
        "answer": "Answer",
        "words": "Words",
        "curves": "Curves",
        "settings": "Settings",
        "inherent": "Inherent explanations",
        "explanations": "Explanations",
        "private": "Private explanations",
        "records": "Exposed records",
        "null": "Null control",
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
    """Describe one data set and architecture; its charts' specifications are added to `specifications` by their id."""
    figures = []
    for name, label, caption, chart in [
        *_charts(results, findings, group),
        *_likeness_chart(group, interpretation),
    ]:
        specifications[f"chart-{index}-{name}"] = chart
        figures.append({"id": f"chart-{index}-{name}", "label": label, "caption": caption})
    return {
        "name": ", ".join(group[0].setting.group),
        "answer": answer(group, findings, results.spec.confidence),
        "whose": "records of the explanation set" if group[0].setting.explained else "training records",
        "channels": [TITLES[channel] for channel in present_channels(group)],
        "trained": any(found.test_accuracy for found in group),
        "rows": answer_table(group),
        "null_sentence": null_sentence(group),
        "figures": figures,
        "attacks": list(attacks_table(group)),
    }


def _charts(
    results: Results, findings: Findings, group: list[Finding]
) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yield id, label, caption and specification of the charts of a group."""
    drawn = series(group)
    named = [(capital(protection(found.setting)), found) for found in group]
    lines = {name: curves(results, found, drawn, charts.EVERY) for name, found in named}
    if any(lines.values()):
        yield "roc", "Log-log ROC curves", ROC_CAPTION, charts.roc_chart(lines, drawn)
    if len(group) > 1:
        yield "auc", "AUC in every setting", AUC_CAPTION, charts.leak_chart(named, drawn, "auc", None)
        if findings.fpr is not None:
            caption = TPR_CAPTION.format(fpr=rate(findings.fpr))
            yield "tpr", "TPR in every setting", caption, charts.leak_chart(named, drawn, "tpr", findings.fpr)
        if sum(found.test_accuracy is not None for found in group) > 1:
            yield "tradeoff", "Accuracy against leakage", TRADEOFF_CAPTION, charts.tradeoff_chart(named)


def _likeness_chart(
    group: list[Finding], interpretation: Interpretation | None
) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    settings, drawn = chart_settings(group, interpretation) if interpretation else ([], [])
    if interpretation and interpretation.headline and settings:
        title = measure_label(interpretation.headline)
        chart = charts.likeness_chart(settings, drawn, title[:1].upper() + title[1:])
        yield "likeness", "Likeness of explanations", LIKENESS_CAPTION.format(measure=title), chart


def _exposed(results: Results, findings: Findings) -> Iterator[dict[str, Any]]:
    """Describe the most exposed records of every data set, in the setting that its private ones are compared with."""
    seen: set[str] = set()
    for group in findings.groups().values():
        found = reference(group) or group[0]
        listed = most_exposed(results, found, findings.fpr) if found.setting.dataset not in seen else None
        if listed is None or not listed[1]:
            continue
        seen.add(found.setting.dataset)
        leak, records = listed
        maps, bars = (any(getattr(one, name) for one in records) for name in ("maps", "bars"))
        yield {
            "name": found.setting.dataset,
            "text": exposed_sentences(found, leak, len(records), maps, bars),
            "records": [
                vars(one)
                | {
                    "told": caught_sentences(
                        one.caught, one.inside, one.false_alarms, one.outside, one.percentile, findings.fpr
                    )
                }
                for one in records
            ],
        }


def _facts(results: Results, findings: Findings, sources: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "Audit", f"{sources['audit']}" + (f", seed {sources['seed']}" if sources["seed"] is not None else "")
    if sources["config_sha256"]:
        yield "Config", f"SHA-256 {sources['config_sha256']}"
    for name, facts in sources["pools"].items():
        noise = (results.spec.config.get("datasets", {}).get(name) or {}).get("label_noise")
        parts = [
            count(facts["records"], "audited record"),
            f"{count(facts['public'], 'public record')} set aside",
            f"{count(facts.get('duplicates') or 0, 'duplicate')} dropped",
            *([f"{noise * 100:g}\u00a0% of labels replaced"] if noise else []),
        ]
        yield f"Pool {name}", ", ".join(parts)
        if release := facts.get("release"):
            yield f"Constants of {name}", f"{release_sentence(name, release)} {bounds_sentence(release)}"
    design, share = design_of(results)
    if design and findings.settings:
        told = DESIGNS.get(design, design).format(share=share)
        yield "Membership", f"{told} (design {design}); one draw, shared by all settings of a data set"
    private = [found for found in findings.settings if found.setting.private]
    if private:
        told = "; ".join(dict.fromkeys(guarantee_sentence(found, guarantee(found)) for found in private))
        trained = (
            " Adjacency of trainings: one record added or removed."
            if any(found.setting.trained for found in private)
            else ""
        )
        yield "Guarantees", f"{capital(told)}.{trained}"
    for found in findings.settings:
        if found.setting.no_guarantee:
            yield "No guarantee", f"{no_guarantee_sentence(found)}."
    if findings.settings:
        yield "Read-out", READ_OUT.format(variance=results.spec.variance)
    yield "Versions", ", ".join(f"{name} {version}" for name, version in sources["versions"].items())


DESIGNS = {
    "half": "every model trains on its own uniformly random half of the pool",
    "bernoulli": "a fair coin for every record and model",
    "split": "every model trains on its own uniformly random {share} of the pool",
}
READ_OUT = (
    "Exact ROC over all thresholds, ties as one vertex; TPR at an FPR is the largest at or below it; AUC with ties at ½; "
    "means over targets with Student-t intervals; likelihood ratios with the {variance} variance."
)


def _yaml(config: Mapping[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)) if config else ""
