"""The questions of a dossier, and their answers from an audit, each with its source files.

The first part follows the pyramid of NIST SP 800-226 (Guidelines for Evaluating Differential Privacy Guarantees, 2025) from
its top down; the second part follows article 35(7) of the GDPR. What an audit cannot know is a question for the controller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mia_audit.report.data.findings import Finding
from mia_audit.report.data.opened import PROVENANCE
from mia_audit.report.data.provenance import guarantee
from mia_audit.report.dossier.contents import CARD, CONFIG, LEDGER, REPORT, VERDICTS, Contents
from mia_audit.report.text.formatting import at_least, at_most, count, joined, percent, power, significant
from mia_audit.report.text.statements import guarantee_sentence, no_guarantee_sentence
from mia_audit.storage.manifest import MANIFEST, SIGNATURE

NIST = "Differential privacy (NIST SP 800-226)"
DPIA = "Data protection impact assessment (GDPR, article 35(7))"
RELEASE_CARD, SETTINGS = f"release/{CARD}", "tables/settings.csv"


@dataclass(frozen=True)
class Answer:
    """The sentences that answer a question, their source files, and the question left to the controller."""

    sentences: Sequence[str] = ()
    sources: Sequence[str] = ()
    controller: str = ""


@dataclass(frozen=True)
class Question:
    """One question of a dossier."""

    part: str
    title: str
    text: str
    answer: Callable[[Contents], Answer]


def answers(contents: Contents) -> Iterator[tuple[Question, Answer]]:
    """Yield every question, in order, with its answer."""
    for question in QUESTIONS:
        answer = question.answer(contents)
        assert answer.sentences or answer.controller
        yield question, answer


def _unit(contents: Contents) -> Answer:
    asked = "Is this unit what a person would call their data? Do several records belong to one person or household?"
    if unit := contents.promise.get("unit"):
        return Answer((f"The released model protects one {unit}.",), (RELEASE_CARD,), asked)
    units = joined(sorted({guarantee(one).get("unit", "record") for one in contents.chosen if one.setting.private}))
    sentence = f"One {units}." if units else "No setting promises anything to anybody: there is no unit of privacy."
    return Answer((sentence,), (PROVENANCE,), asked)


def _epsilon(contents: Contents) -> Answer:
    sentences, sources = [], []
    if contents.card:
        sentences.append(f"The released model: {_promised(contents.promise.get('epsilon'))}.")
        sources.append(RELEASE_CARD)
    for one in contents.chosen:
        sentences.append(f"The audited models of {_spent(one)}.")
        sources.append(PROVENANCE)
    if total := contents.ledger.get("total"):
        sentences.append(f"{_total(total)}.")
        sources.append(LEDGER)
    return Answer(sentences, list(dict.fromkeys(sources)), "Is this ε small enough for these data and this purpose?")


def _promised(epsilon: Any) -> str:
    return f"ε = {at_most(float(epsilon))}" if isinstance(epsilon, int | float) else "no ε is finite"


def _total(total: Mapping[str, Any]) -> str:
    """State the total cost of all releases from the records."""
    promised = f"{_promised(total.get('epsilon'))} at δ = {float(total['delta']):g}"
    return f"Everything in the ledger of the data set: {promised}, by {total['composed_by']}"


def _spent(finding: Finding) -> str:
    known, setting = guarantee(finding), finding.setting
    if setting.no_guarantee:
        return no_guarantee_sentence(finding)
    if not setting.private:
        return f"{setting.path}: no ε is finite"
    if "epsilon_spent" in known:
        return f"{setting.path}: at most ε = {at_most(known['epsilon_spent'])} each"
    return f"{setting.path}: ε = {setting.epsilon} is claimed, and not accounted for here"


def _delta(contents: Contents) -> Answer:
    asked = "Is δ far below one over the number of persons?"
    if contents.promise.get("delta"):
        return Answer((f"The released model: δ = {power(float(contents.promise['delta']))}.",), (RELEASE_CARD,), asked)
    known = [one for one in contents.chosen if one.setting.private and one.setting.delta]
    if not known:
        return Answer(("None: there is no guarantee.",), (PROVENANCE,))
    return Answer([_delta_of(one) for one in known], (PROVENANCE,), asked)


def _delta_of(finding: Finding) -> str:
    delta, records = float(finding.setting.delta or 0), guarantee(finding).get("records")
    expected = f"; times {count(records, 'training record')} that is {delta * records:.2g}" if records else ""
    return f"{finding.setting.path}: δ = {power(delta)}{expected}."


def _adjacency(contents: Contents) -> Answer:
    if known := contents.promise.get("adjacency"):
        return Answer((f"The released model: neighbouring data sets differ by this: {known}.",), (RELEASE_CARD,))
    stated = {guarantee(one)["adjacency"] for one in contents.chosen if "adjacency" in guarantee(one)}
    if not stated:
        return Answer(("No guarantee, and so no neighbouring data sets.",), (PROVENANCE,))
    return Answer((f"Neighbouring data sets differ by this: {joined(sorted(stated))}.",), (PROVENANCE,))


def _mechanism(contents: Contents) -> Answer:
    sentences = []
    for one in contents.chosen:
        if one.setting.private:
            sentences.append(f"{one.setting.path}: {guarantee_sentence(one, guarantee(one))}.")
        elif one.setting.no_guarantee:
            sentences.append(f"{no_guarantee_sentence(one)}.")
        else:
            sentences.append(f"{one.setting.path}: no noise, no clipping, no guarantee.")
    terms = contents.promise
    stated = [f"{name.replace('_', ' ')}: {_stated(terms[name])}" for name in CARD_TERMS if terms.get(name) is not None]
    if stated:
        sentences.append(f"The released model: {'; '.join(stated)}.")
    if assumed := contents.card.get("assumptions"):
        sentences += ["The guarantee of the released model rests on these assumptions.", *map(str, assumed)]
    return Answer(sentences, (PROVENANCE, *([RELEASE_CARD] if contents.card else []), CONFIG))


CARD_TERMS = ("accountant", "noise_multiplier", "sampling", "sampling_rate", "steps", "clipping", "noise")


def _stated(value: Any) -> str:
    return significant(value) if isinstance(value, float) else str(value)


def _protected(contents: Contents) -> Answer:
    private = [one for one in contents.chosen if one.setting.private]
    if not private:
        return Answer(("Nothing is protected by differential privacy.",), (PROVENANCE,))
    units = joined(sorted({guarantee(one).get("unit", "record") for one in private}))
    return Answer(
        (
            f"Whether one {units} was among the training records, and its content, against anyone who has the model's weights,"
            " its outputs and explanations computed from it, whatever else they know.",
        ),
        (PROVENANCE, RELEASE_CARD) if contents.card else (PROVENANCE,),
    )


def _not_protected(contents: Contents) -> Answer:
    sentences = [
        "What the records reveal in aggregate: a model that predicts well also reveals facts about persons who are not among them.",
        "The choice of settings by their accuracy on the same records, unless the ledger lists it.",
        "The audit's own models, signals, scores and reports: they were computed from the records without noise, and the"
        " report shows and ranks single records. They are for the auditor.",
    ]
    sources = [REPORT, PROVENANCE]
    if not contents.ledger:
        sentences.append("Other releases from the same records: no ledger of the data set is part of this dossier.")
    else:
        entries = len(contents.ledger["entries"])
        sentences.append(f"Releases other than the {count(entries, 'entry', 'entries')} of the ledger.")
        sources.append(LEDGER)
    return Answer(sentences, sources, "What else was published from these records, and by whom?")


def _composition(contents: Contents) -> Answer:
    asked = "Is every use of the records in the ledger?"
    if not contents.ledger:
        return Answer(controller="What else was, or will be, computed from these records, and what is the total ε?")
    names = joined(sorted({str(entry["what"]) for entry in contents.ledger["entries"]})) or "nothing"
    sentence = (
        f"The ledger {contents.ledger['id']} of the data set has {count(len(contents.ledger['entries']), 'entry', 'entries')}"
        f" ({names}), for one {contents.ledger['unit']}, adjacency {contents.ledger['adjacency']}."
    )
    return Answer((sentence, f"{_total(contents.ledger['total'])}."), (LEDGER,), asked)


def _verified(contents: Contents) -> Answer:
    level = contents.findings.confidence * 100
    sentences, sources = [], [SETTINGS, REPORT]
    for one in contents.chosen:
        if one.bound:
            said = f"{one.setting.path}: the attacks {_proved(one.bound.epsilon)} at δ = {power(one.bound.delta)}"
            sentences.append(f"{said} ({one.bound.method}, {level:g} %), by {count(one.bound.attacks, 'attack')}.")
        if one.null:
            holds = "holds" if one.null.sound else "does not hold: the audit is not to be relied on"
            sentences.append(f"The null control of {one.setting.path} {holds}.")
        for canaries, name in contents.canaries(one):
            number, proved = count(canaries.canaries, "canary", "canaries"), _proved(canaries.epsilon)
            sentences.append(
                f"{one.setting.path}: {number} in one training, trained as a release is, {proved} at δ = {power(canaries.delta)}."
            )
            sources.append(name)
    sentences.append(
        "Attacks can refute a claim and never prove it: the guarantee rests on the mechanism's proof, its implementation and"
        " the randomness of the machine that trained the model."
    )
    if contents.verdicts:
        sentences.append(f"A policy was applied: {contents.verdicts.get('conclusion', '')}")
        sources.append(VERDICTS)
    root = contents.results.root
    if (root / MANIFEST).is_file():
        signed = (root / SIGNATURE).is_file()
        sentences.append(
            f"The SHA-256 of every file of the audit is listed{', and the list is signed' if signed else ''}."
        )
        sources += [MANIFEST, *([SIGNATURE] if signed else [])]
    return Answer(sentences, sources, "Who has reviewed the mechanism and the code, apart from their authors?")


def _proved(epsilon: float) -> str:
    return f"prove ε {at_least(epsilon)}" if epsilon >= 0.01 else "prove no ε above 0"


def _utility(contents: Contents) -> Answer:
    known = [(one, one.test_accuracy) for one in contents.chosen if one.test_accuracy]
    if not known:
        return Answer(controller="How accurate is the model?")
    sentences = [f"{one.setting.path}: test accuracy {percent(value.mean)}, over models." for one, value in known]
    return Answer(sentences, (SETTINGS,), "Is it as accurate for every group of persons that it is used on?")


def _trust(contents: Contents) -> Answer:
    return Answer(
        (
            "Training reads the records without noise: the guarantee is that of a central curator, who is trusted with them.",
        ),
        (CONFIG,),
        "Who has access to the records, the machine, the ledger and the audit's files, and how is that limited?",
    )


def _processing(contents: Contents) -> Answer:
    pools = [_pool(name, pool) for name, pool in sorted(contents.sources.get("pools", {}).items())]
    models = sorted(
        {f"{one.setting.dataset}: {one.setting.model or one.setting.architecture}" for one in contents.chosen}
    )
    return Answer(
        [*pools, f"A classifier is trained on them ({joined(models)})."],
        (PROVENANCE, CONFIG),
        "For which purposes is the model used, by whom, on which legal basis, for how long, and who receives it?",
    )


def _pool(name: str, pool: Mapping[str, Any]) -> str:
    shape = " × ".join(map(str, pool.get("shape", [])))
    persons = f" of {count(pool['persons'], 'person')}" if "persons" in pool else ""
    columns = f"; columns: {', '.join(map(str, pool['features'][:40]))}" if pool.get("features") else ""
    classes = f", {count(len(pool['classes']), 'class', 'classes')}" if pool.get("classes") else ""
    what = {"image": "images", "table": "rows of a table"}.get(str(pool.get("kind")), "records")
    return f"{name}: {count(pool['records'], 'record')}{persons}, {what} ({shape}){classes}{columns}."


def _risks(contents: Contents) -> Answer:
    sentences = []
    for one in contents.chosen:
        for channel, leak in one.strongest.items():
            auc = leak.auc_estimate
            interval = "" if math.isnan(auc.low) else f" [{auc.low:.3f}, {auc.high:.3f}]"
            sentences.append(
                f"{one.setting.path}, {channel}: the strongest of {count(leak.tried, 'attack')} tells training records from"
                f" others with an AUC of {auc.mean:.3f}{interval}; guessing has 0.5."
            )
    sentences.append(
        "That a person was in the training set can itself be sensitive, for example if everyone in it is a patient."
    )
    return Answer(
        sentences,
        (SETTINGS, "tables/summary.csv", REPORT),
        "What would it mean for a person that their membership is known? How likely is such an attack, and by what means?",
    )


def _measures(contents: Contents) -> Answer:
    private = [one for one in contents.chosen if one.setting.private]
    sentences = [f"{_spent(one)}." for one in private]
    if not private:
        sentences.append("No measure against the recognition of training records is part of the training.")
    sources = [PROVENANCE]
    if contents.verdicts:
        sentences.append(f"A policy limits what attacks may find: {contents.verdicts.get('conclusion', '')}")
        sources.append(VERDICTS)
    if contents.ledger:
        sentences.append("A ledger limits what is released from the records.")
        sources.append(LEDGER)
    return Answer(sentences, sources, "Which other measures are taken: access, contracts, monitoring, deletion?")


def _review(contents: Contents) -> Answer:
    stated = contents.sources.get("config_sha256")
    asked = "When is it reviewed? New records, models or attacks are reasons."
    if not stated:
        return Answer(controller=asked)
    return Answer((f"This assessment is about the config with the SHA-256 {stated}.",), (PROVENANCE,), asked)


def _left_to_the_controller(asked: str) -> Callable[[Contents], Answer]:
    """Return the answer to a question that no audit can answer: another question."""
    return lambda contents: Answer(controller=asked)


QUESTIONS = (
    Question(NIST, "Unit of privacy", "Whom, or what, does the guarantee protect?", _unit),
    Question(NIST, "ε", "How much can one unit change what is released?", _epsilon),
    Question(NIST, "δ", "With which probability may the guarantee fail?", _delta),
    Question(NIST, "Adjacency", "Between which data sets does the guarantee hold?", _adjacency),
    Question(NIST, "Mechanism", "By which mechanism, accountant and assumptions?", _mechanism),
    Question(NIST, "Composition", "What else is spent on the same records?", _composition),
    Question(NIST, "What is protected", "What does the guarantee cover?", _protected),
    Question(NIST, "What is not protected", "What does it not cover?", _not_protected),
    Question(NIST, "Verification", "How was the guarantee verified?", _verified),
    Question(NIST, "Utility", "What is the protected model worth?", _utility),
    Question(NIST, "Trust and access", "Who is trusted with the records?", _trust),
    Question(DPIA, "Processing", "What is processed, and for which purposes?", _processing),
    Question(
        DPIA,
        "Necessity and proportionality",
        "Is the processing necessary for them, and proportionate?",
        _left_to_the_controller(
            "Could the purpose be met with fewer records, fewer columns, public or synthetic data, or without explanations?"
        ),
    ),
    Question(DPIA, "Risks", "What are the risks to the rights and freedoms of persons?", _risks),
    Question(DPIA, "Measures", "Which measures address the risks?", _measures),
    Question(
        DPIA,
        "Advice and views",
        "Who was asked?",
        _left_to_the_controller(
            "What did the data protection officer advise, and what did the persons concerned or their representatives say?"
        ),
    ),
    Question(DPIA, "Review", "When is the assessment reviewed?", _review),
)
"""All questions, in the order of the page."""
