"""Sentences around the answer: what was audited, the null control, guarantees, intrinsic explanations, groups at risk."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mia_audit.attacks.design import CORRECTION, SENTENCES
from mia_audit.explain.catalogue import explainer_label, intrinsic
from mia_audit.explain.release import release_of
from mia_audit.report.findings import (
    Estimate,
    Finding,
    Findings,
    Leak,
    chosen,
    difference,
    guarantee,
    noise_mask,
)
from mia_audit.report.formatting import (
    at_least,
    at_most,
    capital,
    count,
    fixed,
    interval,
    joined,
    percent,
    power,
    protected,
    rounded_up,
    significant,
    titled,
)
from mia_audit.seeds import AUDIT_ONLY
from mia_audit.signals.name import read_signal

if TYPE_CHECKING:
    from mia_audit.report.results import Results
    from mia_audit.report.series import Group, Groups
    from mia_audit.report.spec import Gap

DESIGNS = {
    "half": "each model trained on its own random half of the pool",
    "bernoulli": "each model trained on the records that a fair coin chose for it",
    "split": "each model trained on its own random {share} of the pool",
}
MANY = 10
"""With this many attacks or more, the strongest one comes with a warning."""


def scope(results: Results, findings: Findings) -> str:
    """Say what was audited."""
    spec = results.spec
    datasets = {setting.dataset: setting.dataset_name for setting in spec.settings}
    pools = {name: results.pool_metadata(dataset) for dataset, name in datasets.items()}
    named = [f"{name} ({sizes_of(metadata)})" if metadata else name for name, metadata in pools.items()]
    models = targets_of(findings, "model") + (" per setting" if len(spec.settings) > 1 else "")
    attacked = "Every model was attacked in turn, with the help of the others."
    finished = [f"{setting.architecture_name} ({setting.finished})" for setting in spec.settings if setting.finished]
    if finished:
        attacked += (
            f" The finished {'model' if len(finished) == 1 else 'models'} {joined(finished)} {'was' if len(finished) == 1 else 'were'}"
            f" attacked with the help of the shadow models{_likeness(results)}. This measures membership, and not another difference"
            " between the records, only if its members and the other records were drawn in the same way."
        )
    if not spec.trained and spec.studies:
        return _studied_scope(results, findings)
    if not spec.trained:
        first = results.metrics[0].row(0, named=True)
        records = count(int(first["members"] + first["non_members"] + first["unscored"]), "record")
        named = [f"{name} ({records})" for name in datasets.values()]
        return f"{joined(named)}: signals and membership of {models} were given. {attacked}"
    design, share = design_of(results)
    how = DESIGNS.get(design, "").format(share=share)
    if any(finding.by_person for finding in findings.settings):
        how += ", drawn by person: all of a person's records or none"
    settings = f"{count(len(spec.settings), 'setting')}, " if len(spec.settings) > 1 else ""
    return f"{joined(named)}: {settings}{models}{', ' + how if how else ''}. {attacked}"


def _likeness(results: Results) -> str:
    """Say whether finished models were found to have the accuracy and loss of their shadow models."""
    from mia_audit.attacks.io.parquet import UNLIKE

    known = [results.facts(setting).get(UNLIKE) for setting in results.spec.settings if setting.finished]
    if any(known):
        return ", from which they differ (see the warnings)"
    return "" if None in known else ", whose accuracy and loss are like their own"


def gap_sentence(gap: Gap) -> str:
    """Say which models of a setting are missing and why, and whether it could be attacked."""
    setting = gap.setting
    where = f"{setting.place}, {setting.mechanism_name} at ε = {setting.epsilon}"
    verdict = "" if gap.attacked else " Too few models are left: this setting is missing from the results below."
    return f"Left out of {where}: {missing_models(gap)}.{verdict}"


def missing_models(gap: Gap) -> str:
    """Say which models of a setting are missing, and why."""
    by_reason: dict[str, list[str]] = {}
    for number, why in sorted(gap.models.items(), key=lambda item: (item[1], item[0])):
        by_reason.setdefault(why, []).append(str(number))
    return "; ".join(f"{count(len(numbers), 'model')} ({joined(numbers)}) {why}" for why, numbers in by_reason.items())


def sizes_of(metadata: Mapping[str, Any]) -> str:
    """Return the number of records of a pool, and of its persons if they are the unit."""
    records = count(metadata["records"], "record")
    return f"{records} of {count(metadata['persons'], 'person')}" if metadata.get("persons") else records


def corrections(results: Results) -> list[str]:
    """State which membership designs were recognised and how attacks were corrected for them, a sentence for each."""
    facts = map(results.facts, results.spec.settings)
    return [SENTENCES[kind] for kind in dict.fromkeys(known[CORRECTION] for known in facts if CORRECTION in known)]


def _studied_scope(results: Results, findings: Findings) -> str:
    """State what was explained and attacked if no model was trained."""
    sentences = []
    for dataset, study in results.spec.studies.items():
        metadata = results.pool_metadata(dataset)
        name = study.get("dataset_label") or dataset
        named = f"{name} ({count(metadata['records'], 'record')})" if metadata else name
        sentences.append(f"{named}: private explanations of {joined(list(study['black_boxes']))}.")
    if not findings.settings:
        return " ".join([*sentences, "No membership was attacked here."])
    sets = targets_of(findings, "explanation set")
    sentences.append(
        f"{sets} per setting, the black box being the same for all. Each was attacked in turn, with the help of the others."
    )
    return " ".join(sentences)


def targets_of(findings: Findings, noun: str) -> str:
    """Return the number of targets of a setting, or the least and the largest of several settings, before its noun."""
    known = [finding.strongest.values() for finding in findings.settings if finding.strongest]
    sizes = {max(len(leak.targets) for leak in leaks) for leaks in known} or {0}
    return f"{min(sizes)} to {count(max(sizes), noun)}" if len(sizes) > 1 else count(max(sizes), noun)


def design_of(results: Results) -> tuple[str, str]:
    """Return the membership design and its share of training records, if the pools or the config state them."""
    pools = (results.pool_metadata(setting.dataset) for setting in results.spec.settings)
    drawn = (metadata["membership"] for metadata in pools if metadata and "membership" in metadata)
    section = next(drawn, results.spec.config.get("membership"))
    known = section if isinstance(section, Mapping) else {}
    return str(known.get("design") or ""), f"{known.get('share') or math.nan:.0%}"


def adjacent(findings: Findings) -> str:
    """Name the adjacency of training sets under the guarantees of an audit's trainings; empty without guarantees."""
    trained = [finding for finding in findings.settings if finding.setting.private and finding.setting.trained]
    units = dict.fromkeys(guarantee(finding).get("unit", "record") for finding in trained)
    return joined([ADDED[unit] for unit in units], "or")


ADDED = {"record": "one record", "person": "one person with all of their records"}


def explained_adjacency(adjacency: str, by_person: bool) -> str:
    """Name the adjacency of explanation sets."""
    text = ADJACENCY[adjacency]
    return text.replace("one record", "one person").replace("records", "persons") if by_person else text


ADJACENCY = {
    "zero-out": "one record's term taken out of the explanation set, the number of records being public",
    "replacement": "one record of the explanation set replaced by another",
}
"""Adjacencies of private explanations."""
BOUND_METHODS = {
    "one-run": "Membership was drawn by fair coins, so the bound is a proof (one-run bound).",
    "clopper-pearson": (
        "Where nothing leaks it is 0 at this confidence; otherwise it is an estimate, because the records of one model are "
        "treated as independent trials. Membership by fair coins would make it a proof."
    ),
}
"""The assumptions behind a lower bound on ε, by method."""


def bound_sentences(findings: Findings) -> list[str]:
    """State the assumptions behind the lower bounds on ε, and name every bound that exceeds the guarantee."""
    if not findings.settings:
        return []
    tried = count(max(finding.bound.attacks for finding in findings.settings), "attack")
    level = f"{findings.confidence * 100:g}\u00a0% confidence in each setting"
    meaning = f"Lower bound on ε: from {tried} together over all targets, corrected for their number, at {level}."
    methods = dict.fromkeys(finding.bound.method for finding in findings.settings)
    sentences = [" ".join([meaning, *(BOUND_METHODS[method] for method in methods)])]
    private = [finding for finding in findings.settings if finding.setting.private]
    exceeded = [finding for finding in private if finding.bound.epsilon > finding.promised.epsilon]
    sentences += [refuted_sentence(finding, level) for finding in exceeded if finding.setting.claimed]
    if broken := [f"{protected(one.setting)}{_for_person(one)}" for one in exceeded if not one.setting.claimed]:
        sentences.append(
            f"The lower bound exceeds the guarantee {joined(broken)}: either the guarantee does not hold, or the audit is wrong."
        )
    return sentences


def _for_person(finding: Finding) -> str:
    """State the ε of a person that the lower bound is compared with; empty if it is compared with the setting's."""
    records, epsilon = finding.promised.records, at_most(finding.promised.epsilon)
    return f" ({epsilon} for a person with {records} records)" if records > 1 else ""


def refuted_sentence(finding: Finding, level: str) -> str:
    """Say that a claimed guarantee is refuted by a proven lower bound, or contradicted by an estimated one."""
    setting, bound = finding.setting, finding.bound
    least = at_least(bound.epsilon).removeprefix("≥ ")
    verdict, verb = ("refuted", "proves") if bound.method == "one-run" else ("contradicted", "estimates")
    return (
        f"The claim of ε = {setting.epsilon}{_for_person(finding)} by {setting.mechanism_name} on {setting.dataset_name}"
        f" ({setting.architecture_name}) is {verdict}: the audit {verb} an ε of at least {least}"
        f" at δ = {power(bound.delta)}, with {level}. The code that makes the claim protects less than it says."
    )


def setting_notes(findings: Findings) -> list[str]:
    """Return the notes below the table of settings: guarantees and lower bounds on ε."""
    private = [finding for finding in findings.settings if finding.setting.private]
    return [
        *dict.fromkeys(f"{capital(guarantee_sentence(one, guarantee(one)))}." for one in private),
        *([f"These models are {AUDIT_ONLY}."] if any(finding.setting.trained for finding in private) else []),
        *(f"{no_guarantee_sentence(one)}." for one in findings.settings if one.setting.no_guarantee),
        *bound_sentences(findings),
    ]


def null_sentence(group: Sequence[Finding]) -> str:
    """Say whether the null control of these settings holds; empty if there is none."""
    controls = [(finding, finding.null) for finding in group if finding.null]
    if not controls:
        return ""
    holding, intervals = (sum(getattr(null, name) for _, null in controls) for name in ("holding", "intervals"))
    headline = [(finding, channel, one) for finding, null in controls for channel, one in null.headline.items()]
    missed = joined([f"{channel} {protected(one.setting)}" for one, channel, null in headline if null.excludes(0.5)])
    if not all(null.sound for _, null in controls):
        verdict = (
            f"the strongest attacks differ from 0.5 ({missed}) by more than chance explains: do not rely on this audit until the cause"
            " is found"
        )
    elif missed:
        verdict = f"an interval just misses 0.5, which one in twenty does by chance: {missed}"
    else:
        verdict = "the strongest attacks do no better than guessing, as they must: every interval contains 0.5"
    share = (
        f" Of all attacks, {holding} of {count(intervals, 'interval')} contain 0.5. About 95 in 100 do by chance, but not independently:"
        " all share one shuffle."
    )
    return f"Against a shuffled membership {verdict}.{share if intervals > len(headline) else ''}"


def null_ceiling(findings: Findings) -> str:
    """State the AUC that the strongest of many attacks reaches by chance; empty for few attacks."""
    highest = max((finding.null for finding in findings.settings if finding.null), key=lambda null: null.strongest)
    if highest.intervals < MANY:
        return ""
    best = f"The strongest of {count(highest.intervals, 'attack')} reaches an AUC of {fixed(highest.strongest)}"
    return f"{best} where there is nothing to find: an AUC of this size is no evidence."


def sampling_name(metadata: Mapping[str, Any]) -> str:
    """Return the name of the sampling of batches that a guarantee assumes."""
    return str(metadata["sampling"]).replace("poisson", "Poisson")


def guarantee_sentence(finding: Finding, metadata: Mapping[str, Any]) -> str:
    """State the ε that a private setting spent, its accountant and its assumptions."""
    setting = finding.setting
    delta = power(setting.delta) if setting.delta else "unknown"
    if terms := setting.explained:
        noise = f"{count(terms['steps'], 'noisy step')}, exact Gaussian DP"
        kept = explained_adjacency(terms["adjacency"], finding.by_person)
        return f"with explanations at the ε of each: δ = {delta}, for {kept}, {noise}; the costs of several add up"
    if setting.finished or setting.claimed:
        named = f"{protected(setting)} {setting.architecture_name if setting.finished else ''}".rstrip()
        whose = "its owner" if setting.finished else "the user's own code" if setting.trained else "their owner"
        return (
            f"{named}: ε = {setting.epsilon} at δ = {delta} is what {whose} claims; this audit has not accounted for it, and only sets"
            f" a lower bound beside it{'' if setting.finished else worth_clause(finding)}"
        )
    if not metadata:
        return f"{protected(setting)}, δ = {delta}; the amount spent is unknown"
    spent = f"at most ε = {at_most(metadata['epsilon_spent'])} spent at δ = {delta}"
    accountants = (
        f"by the {(setting.accountant or '').upper()} accountant ({at_most(metadata['epsilon_spent_rdp'])} by RDP)"
    )
    by_person = metadata.get("unit") == "person"
    clipped = (
        f"person (the mean of at most {count(metadata['records_per_person'], 'record')})" if by_person else "record"
    )
    noise = f"noise multiplier {significant(metadata['noise_multiplier'])}, {setting.clipping} clipping per {clipped}"
    if mask := noise_mask(finding):
        noise += f", noise scaled by the importance of channels{_covered(finding)}, computed from {mask}"
    sampling = f"{sampling_name(metadata)} sampling at rate {significant(metadata['sampling_rate'])}, {metadata['steps']} steps"
    who = "one person, with all of their records," if by_person else "one record"
    text = f"{protected(setting)}: {spent} {accountants} when {who} is added or removed, {sampling}, {noise}"
    size, units = (metadata["persons"], "persons") if by_person else (metadata["records"], "training records")
    if setting.delta and setting.delta * size >= 1:
        text += f"; δ is not below 1/{size}, so it permits revealing one of the {units} outright"
    return text + worth_clause(finding)


def worth_clause(finding: Finding) -> str:
    """State what a guarantee for records is worth to persons with several; empty if unknown, or if the guarantee is for persons."""
    if not finding.worth:
        return ""
    values = [
        f"no guarantee for {one.records}"
        if math.isinf(one.epsilon)
        else f"{at_most(one.epsilon)} for {one.records} (δ = {power(rounded_up(one.delta, 2))})"
        for one in finding.worth
    ]
    return f"; that ε is for a record: for a person with several records it is {joined(values)}"


def no_guarantee_sentence(finding: Finding) -> str:
    """Say why a setting with a nominal ε guarantees nothing."""
    setting = finding.setting
    covered = f"; the mask scales the noise{_covered(finding)}" if finding.mask_coverage is not None else ""
    return (
        f"{setting.mechanism_name} at a {setting.nominal.replace('nominal', 'nominal ε =')}: no ε is guaranteed, since"
        f" {setting.no_guarantee}{covered}"
    )


def _covered(finding: Finding) -> str:
    """Say how many of the trained parameters a mask covers."""
    return "" if finding.mask_coverage is None else f" on {percent(finding.mask_coverage)} of the trained parameters"


def exposed_sentences(finding: Finding, leak: Leak, records: int, maps: bool, bars: bool) -> str:
    """Introduce the list of the most exposed records, and say how to read their attributions."""
    described = f"{leak.attack} on {read_signal(leak.signal).label}"
    if finding.setting.finished:
        return (
            f"The {count(records, 'training record')} of {finding.setting.architecture_name} whose membership score ({described}) is the"
            " highest: those that the finished model exposes most."
        )
    when = "in the explanation set" if finding.setting.explained else "trained on"
    unit = "person" if finding.by_person else "record"
    text = (
        f"The {count(records, unit)} that an attack ({described}) reveals most when they are {when}, {protected(finding.setting)}."
        " They were chosen with one half of the models; counts are those of the other half, attacked without the first."
        " Estimates allow for the choice and for all other records (empirical Bayes)."
    )
    if finding.by_person:
        return f"{text} Their records follow, the most revealing first."
    explained = finding.strongest.get("explanations")
    if explained is None or not (maps or bars):
        return text
    signal = read_signal(explained.signal)
    if release_of(signal.explainer or "")[0] == "saliency":  # a size without a sign
        side = "the stronger the colour, the more the input would change the output, in either direction"
    elif maps:
        side = "orange counts for the class, blue against it"
    else:
        side = "bars to the right count for the class, to the left against it"
    shown = f"{signal.explainer_label} of the {signal.quantity} of the {signal.explained_class} class"
    models = "by a model that was trained on the record and by one that was not, on one scale"
    return f"{text} Beside each record, the {shown}, {models}: {side}. Attacks on explanations exploit this difference."


KINDS = {"outputs": "outputs", "intrinsic": "intrinsic explanations", "post-hoc": "post-hoc explanations"}


@dataclass(frozen=True)
class LeakSource:
    """The outputs or one explainer of an architecture, with the strongest attack on this source under every protection."""

    architecture: str
    explainer: str
    kind: str
    leaks: dict[str, Leak]

    @property
    def label(self) -> str:
        """The explainer in prose."""
        return explainer_label(self.explainer) if self.explainer else "outputs"


@dataclass(frozen=True)
class Comparison:
    """The sources of a data set's architectures, and the protections under which they were attacked, in the order of the audit."""

    protections: list[str]
    sources: list[LeakSource]

    def strongest(self, kind: str, protection: str, architecture: str | None = None) -> LeakSource | None:
        """Return the source of a kind with the largest leak under a protection, which is corrected for this choice."""
        known = [
            source
            for source in self.sources
            if source.kind == kind and protection in source.leaks and architecture in (None, source.architecture)
        ]
        if not known:
            return None
        leaks = [source.leaks[protection] for source in known]
        place = max(range(len(known)), key=lambda place: float(leaks[place].auc.mean()))
        return replace(known[place], leaks={protection: chosen(leaks)})


def compared(findings: Findings) -> dict[str, Comparison]:
    """Compare the explainers of every data set that has intrinsic ones; architectures of a sweep are left out."""
    groups = [group for group in findings.groups().values() if group[0].setting.trained and not group[0].setting.swept]
    comparisons = {}
    for dataset in dict.fromkeys(group[0].setting.dataset for group in groups):
        of_it = [group for group in groups if group[0].setting.dataset == dataset]
        protections = dict.fromkeys(titled(one.setting) for group in of_it for one in group)
        comparison = Comparison(list(protections), [source for group in of_it for source in _sources(group)])
        if any(source.kind == "intrinsic" for source in comparison.sources):
            comparisons[dataset] = comparison
    return comparisons


def _sources(group: Sequence[Finding]) -> Iterator[LeakSource]:
    """Yield the outputs of an architecture, its intrinsic explainers and its post-hoc ones."""
    leaks: dict[str, dict[str, Leak]] = {"": {}}
    for finding in group:
        name = titled(finding.setting)
        if "outputs" in finding.strongest:
            leaks[""][name] = finding.strongest["outputs"]
        rivals: dict[str, list[Leak]] = {}
        for leak in finding.leaks.get("explanations", ()):
            if explainer := read_signal(leak.signal).explainer:
                rivals.setdefault(explainer, []).append(leak)
        for explainer, attacks in rivals.items():
            leaks.setdefault(explainer, {})[name] = chosen(attacks)
    kinds = {one: ("intrinsic" if intrinsic(one) else "post-hoc") if one else "outputs" for one in leaks}
    for explainer in sorted(leaks, key=lambda explainer: list(KINDS).index(kinds[explainer])):
        yield LeakSource(group[0].setting.architecture_name, explainer, kinds[explainer], leaks[explainer])


def intrinsic_sentences(comparison: Comparison, name: str) -> Iterator[str]:
    """Compare the strongest attack on intrinsic explanations with the strongest on each architecture's post-hoc ones, under one protection."""
    strongest = comparison.strongest("intrinsic", name)
    if strongest is None:
        return
    yield (
        f"The strongest attack on intrinsic explanations reads {strongest.label} of {strongest.architecture}:"
        f" AUC {_with_interval(strongest.leaks[name].auc_estimate)}."
    )
    listed: dict[str, list[str]] = {
        "Among post-hoc explanations, attacks are stronger on": [],
        "Among post-hoc explanations, attacks are weaker on": [],
        "No difference could be measured from attacks on the post-hoc explanations": [],
    }
    for architecture in dict.fromkeys(source.architecture for source in comparison.sources):
        other = comparison.strongest("post-hoc", name, architecture)
        if other is None or set(strongest.leaks[name].targets).isdisjoint(other.leaks[name].targets):
            continue
        gap = difference(other.leaks[name], strongest.leaks[name])
        auc = fixed(other.leaks[name].auc_estimate.mean)
        text = f"{other.label} of {architecture} ({auc}; difference {_with_interval(gap)})"
        listed[list(listed)[0 if gap.low > 0 else 1 if gap.high < 0 else 2]].append(text)
    yield from (f"{start} {joined(texts)}." for start, texts in listed.items() if texts)


def _with_interval(value: Estimate) -> str:
    return fixed(value.mean) if math.isnan(value.low) else f"{fixed(value.mean)}, {interval(value)}"


def risk_sentences(grouped: Groups, confidence: float) -> str:
    """Say which groups of a setting the attack recognises better than everybody else, and which worse."""
    different = [one for one in grouped.listed if one.difference and one.p <= 1 - confidence]
    higher = sorted((one for one in different if _gap(one) > 0), key=lambda one: -_gap(one))
    lower = sorted((one for one in different if _gap(one) < 0), key=_gap)
    head = f"{titled(grouped.finding.setting)}: "
    if not different:
        return (
            f"{head}no group differs from everybody else beyond chance ({len(grouped.listed)} groups,"
            f" {confidence * 100:g}\u00a0% level over all of them)."
        )
    parts = []
    if higher and grouped.highest:
        more = f", and above all others' for {count(len(higher) - 1, 'more group')}" if len(higher) > 1 else ""
        gap = f"AUC +{fixed(grouped.highest.mean)} against all others, {interval(grouped.highest)}"
        parts.append(f"the risk is highest for {higher[0].column} {higher[0].label} ({gap}){more}")
    if lower:
        parts.append(f"{'it is ' if higher else 'the risk is '}lowest for {lower[0].column} {lower[0].label}")
    return f"{head}{'; '.join(parts)}."


def _gap(group: Group) -> float:
    return group.difference.mean if group.difference else math.nan


def small_sentence(grouped: Sequence[Groups]) -> str:
    """Say how many groups are not shown because they are small, and why; empty if there are none."""
    from mia_audit.evaluation.groups import LEAST  # and polars with it

    lost = {column: number for one in grouped for column, number in one.small.items() if number}
    if not lost:
        return ""
    unit = "persons" if any(one.finding.by_person for one in grouped) else "records"
    columns = joined([f"{count(number, 'group')} of {column}" for column, number in lost.items()])
    return (
        f"Not shown, having fewer than {LEAST} {unit}: {columns}. Their intervals would be too wide to tell them from others, and a"
        f" row about so few {unit} would reveal something about each of them."
    )
