"""Sentences around the answer: what was audited, what the null control says, what a guarantee means."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mia_audit.report.findings import Finding, Findings, Leak
from mia_audit.report.provenance import noise_mask
from mia_audit.report.results import Results
from mia_audit.report.signals import read_signal
from mia_audit.report.words import at_most, count, fixed, joined, power, protected, rate, significant

DESIGNS = {
    "half": "each trained on its own random half of them",
    "bernoulli": "each trained on the records that a fair coin chose for it",
    "split": "each trained on its own random {share} of them",
}

MANY = 10
"""Attacks from which on the strongest of them is worth a warning."""


def scope(results: Results, findings: Findings) -> str:
    """Say in a sentence or two what was audited."""
    spec = results.spec
    datasets = dict.fromkeys(setting.dataset for setting in spec.settings)
    pools = {dataset: results.pool_facts(dataset) for dataset in datasets}
    named = [f"{name} ({count(facts['records'], 'record')})" if facts else name for name, facts in pools.items()]
    models = count(most_targets(findings), "model") + (" per setting" if len(spec.settings) > 1 else "")
    attacked = "Every model was attacked in turn, with the help of the others."
    if spec.studies and not any(setting.trained for setting in spec.settings):
        return _studied_scope(results, findings)
    if not any(setting.trained for setting in spec.settings):
        named = [f"{name} ({count(_judged(results), 'record')})" for name in datasets]
        return f"{joined(named)}: signals and membership of {models} were given. {attacked}"
    design, share = design_of(results)
    how = DESIGNS.get(design, "").format(share=share)
    settings = f"{count(len(spec.settings), 'setting')}, " if len(spec.settings) > 1 else ""
    return f"{joined(named)}: {settings}{models}{', ' + how if how else ''}. {attacked}"


def _studied_scope(results: Results, findings: Findings) -> str:
    """Say what was explained where no model was trained, and who was attacked."""
    told = []
    for dataset, study in results.spec.studies.items():
        facts = results.pool_facts(dataset)
        named = f"{dataset} ({count(facts['records'], 'record')})" if facts else dataset
        told.append(f"{named}: private explanations of {joined(list(study['black_boxes']))}.")
    if not findings.settings:
        return " ".join([*told, "No membership was attacked here."])
    sets = count(most_targets(findings), "explanation set")
    told.append(
        f"{sets} per setting, the black box being the same for all. Each was attacked in turn, with the help of the others."
    )
    return " ".join(told)


def _judged(results: Results) -> int:
    """Return how many records the first attack judges."""
    first = results.metrics[0].row(0, named=True)
    return int(first["members"] + first["non_members"] + first["unscored"])


def most_targets(findings: Findings) -> int:
    """Return the largest number of targets of any attack."""
    return max((len(leak.targets) for found in findings.settings for leak in found.strongest.values()), default=0)


def design_of(results: Results) -> tuple[str, str]:
    """Return the membership design and the share that it trains on, as far as the audit's pools or its config know them."""
    pools = (results.pool_facts(setting.dataset) for setting in results.spec.settings)
    drawn = (facts["membership"] for facts in pools if facts and "membership" in facts)
    section = next(drawn, results.spec.config.get("membership"))
    known = section if isinstance(section, Mapping) else {}
    return str(known.get("design") or ""), f"{known.get('share') or math.nan:.0%}"


TAKEN = {
    "zero-out": "one record's term taken out of the explanation set, the number of records being public",
    "replacement": "one record of the explanation set replaced by another",
}
"""Adjacencies of explanations that are private themselves."""

PROVED = {
    "one-run": "Membership was drawn by fair coins, so that it is a proof (one-run bound).",
    "clopper-pearson": (
        "Where nothing leaks it is 0 but for that error; as an amount it is an estimate, since the records of one model are "
        "taken as independent trials. Membership by fair coins would make it a proof."
    ),
}
"""What lower bounds on ε rest on, by method."""


def proof_sentences(findings: Findings) -> list[str]:
    """Say what the lower bounds on ε rest on, and name every bound above what was promised."""
    proofs = [(found, found.proof) for found in findings.settings if found.proof]
    if not proofs:
        return []
    tried = count(max(proof.attacks for _, proof in proofs), "attack")
    level = f"{findings.confidence * 100:g}\u00a0% confidence in each setting"
    told = f"ε shown: what {tried} show together over all targets, corrected for their number, at {level}."
    sentences = [" ".join([told, *(PROVED[method] for method in dict.fromkeys(proof.method for _, proof in proofs))])]
    private = [(found.setting, proof) for found, proof in proofs if found.setting.private]
    broken = [protected(setting) for setting, proof in private if proof.epsilon > float(setting.epsilon)]
    if broken:
        sentences.append(
            f"More than was promised is shown {joined(broken)}: either the promise does not hold, or the audit is wrong."
        )
    return sentences


def null_sentence(group: Sequence[Finding]) -> str:
    """Say whether the null control of these settings holds; nothing where there is none."""
    controls = [(found, found.null) for found in group if found.null]
    if not controls:
        return ""
    holding = sum(null.holding for _, null in controls)
    total = count(sum(null.intervals for _, null in controls), "interval")
    headline = [(found, channel, one) for found, null in controls for channel, one in null.headline.items()]
    told = f"Of all attacks, {holding} of {total} hold 0.5. About 95 in 100 do by chance, but not independently: all share one shuffle."
    share = told if sum(null.intervals for _, null in controls) > len(headline) else ""
    missed = [f"{channel} {protected(found.setting)}" for found, channel, one in headline if one.excludes(0.5)]
    if not all(null.sound for _, null in controls):
        failure = f"the strongest attacks do not come out at 0.5 ({joined(missed)}), by more than chance explains"
        return f"Against a shuffled membership {failure}: do not rely on this audit before the cause is found. {share}".rstrip()
    if missed:
        chance = f"which one in twenty does by chance: {joined(missed)}"
        return f"Against a shuffled membership an interval just misses 0.5, {chance}. {share}".rstrip()
    passed = "the strongest attacks do no better than guessing, as they must: every interval holds 0.5"
    return f"Against a shuffled membership {passed}. {share}".rstrip()


def null_ceiling(findings: Findings) -> str:
    """Say how high the strongest of many attacks comes where there is nothing to find; nothing where they are few."""
    highest = max((found.null for found in findings.settings if found.null), key=lambda null: null.strongest)
    if highest.intervals < MANY:
        return ""
    best = f"The best-looking of {count(highest.intervals, 'attack')} reaches an AUC of {fixed(highest.strongest)}"
    return f"{best} where there is nothing to find: so much says nothing."


def sampling_name(facts: Mapping[str, Any]) -> str:
    """Name the sampling of batches that a guarantee assumes."""
    return str(facts["sampling"]).replace("poisson", "Poisson")


def guarantee_sentence(found: Finding, facts: Mapping[str, Any]) -> str:
    """Say what a private setting's ε means: how much was spent, by which accountant, under which assumption."""
    setting = found.setting
    delta = power(setting.delta) if setting.delta else "unknown"
    if terms := setting.explained:
        noise = f"{count(terms['steps'], 'noisy step')}, exact Gaussian DP"
        return f"with explanations at the ε of each: δ = {delta}, for {TAKEN[terms['adjacency']]}, {noise}; what several cost adds up"
    if not facts:
        return f"{protected(setting)}, δ = {delta}; how much was spent is not known"
    spent = f"at most ε = {at_most(facts['epsilon_spent'])} spent at δ = {delta}"
    accountants = (
        f"by the {(setting.accountant or '').upper()} accountant ({at_most(facts['epsilon_spent_rdp'])} by RDP)"
    )
    noise = f"noise multiplier {significant(facts['noise_multiplier'])}, {setting.clipping} clipping per record"
    if mask := noise_mask(found):
        noise += f", noise scaled by the importance of channels, read off {mask}"
    sampling = f"{sampling_name(facts)} sampling at rate {significant(facts['sampling_rate'])}, {facts['steps']} steps"
    text = f"{protected(setting)}: {spent} {accountants} when one record is added or removed, {sampling}, {noise}"
    if setting.delta and setting.delta * facts["records"] >= 1:
        return f"{text}; δ is not below 1/{facts['records']}, so that it allows giving one of the training records away outright"
    return text


def no_guarantee_sentence(found: Finding) -> str:
    """Say why a setting that is named by an ε promises nothing."""
    setting = found.setting
    return f"{setting.mechanism} at a nominal ε = {setting.epsilon}: no ε is guaranteed, since {setting.no_guarantee}"


def exposed_sentences(found: Finding, leak: Leak, records: int, maps: bool, bars: bool) -> str:
    """Introduce the most exposed records, and say how to read their attributions where there are any."""
    described = f"{leak.attack} on {read_signal(leak.signal).label}"
    when = "in the explanation set" if found.setting.explained else "trained on"
    score = f"whose membership score ({described}) rises most when they are {when}"
    text = f"The {count(records, 'record')} {score}, {protected(found.setting)}: those with most to lose."
    explained = found.strongest.get("explanations")
    if explained is None or not (maps or bars):
        return text
    signal = read_signal(explained.signal)
    if signal.explainer == "saliency":  # a size without a sign
        side = "the stronger, the more it would move the answer, whichever way"
    elif maps:
        side = "orange counts for the class, blue against it"
    else:
        side = "bars to the right count for the class, to the left against it"
    what = (
        f"{signal.explainer_label} of the {signal.quantity} of the {'true' if signal.true_class else 'predicted'} class"
    )
    models = "by a model that was trained on the record and by one that was not, on one scale"
    return f"{text} Beside each its {what}, {models}: {side}. The difference is what attacks on explanations live on."


def caught_sentences(
    caught: int, inside: int, false_alarms: int, outside: int, percentile: float, fpr: float | None
) -> str:
    """Say how often a record is named, rightly and wrongly."""
    above = f"Trained on, it scores above {math.floor(percentile * 1000) / 10:.1f}\u00a0% of all records on average."
    if fpr is None:
        return above
    named = f"{caught} of the {count(inside, 'model')} trained on it give it away at {rate(fpr)} false alarms"
    return f"{named}; {false_alarms} of the {outside} others accuse it wrongly. {above}"
