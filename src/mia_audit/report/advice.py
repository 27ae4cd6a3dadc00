"""Warnings above the answer, what to do now, and what an audit did not examine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mia_audit.attacks.io.outliers import OUTLIERS
from mia_audit.attacks.io.parquet import DERIVED, UNLIKE, UNREAD
from mia_audit.report.findings import SUBJECTS, Finding, Findings, reference, shadow_estimate
from mia_audit.report.formatting import count, fixed, joined, percent, percent_interval, power, protected, significant
from mia_audit.report.results import Guessing

if TYPE_CHECKING:
    from mia_audit.report.results import Results
    from mia_audit.report.spec import AuditedSetting, ReportedAudit

LARGE_DELTA = 1e-2
"""With a δ this large or larger, a guarantee is almost meaningless for any number of records."""
RULE = (
    "the noise in a step's mean gradient is the noise multiplier over the batch, so take the largest batch that time permits, keep"
    " the number of steps (more epochs), then try learning rates from a tenth of this one upwards (rule of thumb: De et al. 2022;"
    " Ponomareva et al. 2023, How to DP-fy ML)"
)
"""Advice for a model that is trained with noise."""


def cautions(results: Results, findings: Findings) -> list[str]:
    """Return the warnings; those about signals come first."""
    return [
        *_unlearned(results, findings),
        *_inverted(findings),
        *_unlike(results),
        *_outliers(results),
        *_unread(results),
        *_guessed(results, findings),
        *_spoilt(results, findings),
        *_mixed(results),
        *_deltas(findings),
    ]


def readings(results: Results) -> list[str]:
    """State which signals were derived from others, and how."""
    derived = {
        (name, source)
        for setting in results.spec.settings
        for name, source in results.facts(setting).get(DERIVED, {}).items()
    }
    return [f"The {name} is derived from the {source}, {CLIPPED[source]}." for name, source in sorted(derived)]


def floors(results: Results) -> list[str]:
    """State the test accuracy required of first models, and the settings with this requirement."""
    by_floor: dict[float, list[str]] = {}
    for setting in results.spec.settings:
        if setting.floor:
            by_floor.setdefault(setting.floor, []).append(setting.path)
    return [
        f"The audit required a test accuracy of {percent(floor)} from the first model of every training job (training.floor), and"
        f" would have stopped otherwise: {joined(paths)}."
        for floor, paths in sorted(by_floor.items())
    ]


CLIPPED = {
    "loss": "a loss of 0 counting as the smallest positive one",
    "probability": "0 and 1 counting as the closest other probabilities",
    "confidence": "exactly",
}
"""How a signal is clipped before another is derived from it."""


def _mixed(results: Results) -> Iterator[str]:
    """Name the settings whose locally linear maps are mixed evenly, so that they explain no more than a single linear map."""
    for dataset, row in results.evenly_mixed:
        yield (
            f"No map stands out in {dataset}, {row['architecture']}, {row['setting']}: the top map's mean share is"
            f" {fixed(row['top_share'])}; in an even mixture of {row['maps']} maps it is {fixed(row['even_share'])}. The model is"
            " therefore one linear map per class, and its maps explain no more than that."
        )


def _unlearned(results: Results, findings: Findings) -> Iterator[str]:
    """Name the settings whose models have not learned their own training records."""
    for finding in findings.settings:
        chance = results.guessing(finding.setting)
        if not finding.learned and chance is not None and finding.train_accuracy is not None:
            yield (
                f"The models {protected(finding.setting)} ({finding.setting.place}) have learned nothing: their accuracy on their own training"
                f" records is {percent(finding.train_accuracy.mean)}, where the most frequent class has {percent(chance.accuracy)}. That no"
                " leak is found in them says nothing about models that learn: look for constant outputs, the learning rate, and layers"
                " that erase the input."
            )


def _inverted(findings: Findings) -> Iterator[str]:
    """Ask whether membership is the wrong way round where members have the larger losses in every model."""
    for finding in findings.settings:
        for leak in finding.leaks.get("outputs", []):
            if leak.attack == "threshold" and leak.auc_estimate.high < 0.5 and (leak.auc < 0.5).all():
                yield (
                    f"Is membership the wrong way round? In every model of {finding.setting.path}, the records that count as members have the"
                    f" worse {leak.signal} (AUC {fixed(leak.auc_estimate.mean)}), and models are seldom worse on what they were trained on."
                )
                break


def _unlike(results: Results) -> Iterator[str]:
    """Name the finished models whose accuracy or loss is not that of shadow models, so that these are of another recipe."""
    for setting in results.spec.settings:
        unlike = results.facts(setting).get(UNLIKE) if setting.finished else None
        if unlike:
            parts = [
                f"{name.replace('_', ' ')} {fixed(own)} where those have {fixed(low)} to {fixed(high)}"
                for name, (own, low, high) in unlike.items()
            ]
            yield (
                f"{setting.architecture_name} ({setting.finished}) is unlike the shadow models that help to attack it: {joined(parts)}."
                " It was trained by another recipe, so the attack on it may be much weaker than it could be, and its AUC too low."
            )


def _outliers(results: Results) -> Iterator[str]:
    """Name the cells and models of signals that no ordinary training produces."""
    for setting in results.spec.settings:
        for sentences in results.facts(setting).get(OUTLIERS, {}).values():
            yield from (f"{setting.path}: {sentence}." for sentence in sentences)


def _unread(results: Results) -> Iterator[str]:
    """Name the attacks that were asked for but had no signal to read, in all settings or in some."""
    asked = [setting for setting in results.spec.settings if not setting.explained]
    lacking: dict[str, list[AuditedSetting]] = {}
    for setting in asked:
        for attack in results.facts(setting).get(UNREAD, ()):
            lacking.setdefault(attack, []).append(setting)
    by_settings: dict[tuple[AuditedSetting, ...], list[str]] = {}
    for attack, settings in lacking.items():
        by_settings.setdefault(tuple(settings), []).append(attack)
    for those, attacks in by_settings.items():
        where = "" if len(those) == len(asked) else f" in {joined([setting.path for setting in those])}"
        verb = "was" if len(attacks) == 1 else "were"
        yield f"{joined(attacks)} {verb} asked for, but found no signal to read{where}."


def _guessed(results: Results, findings: Findings) -> Iterator[str]:
    """Name the settings whose models are worse than guessing, or overconfident, with advice for those trained with noise."""
    for finding in findings.settings:
        chance = results.guessing(finding.setting)
        if chance is None or not (worse := _worse(finding, chance, findings.confidence)):
            continue
        accuracy, where = finding.test_accuracy, f"{protected(finding.setting)} ({finding.setting.place})"
        noisy = finding.shadows is not None and bool((finding.shadows["noise_multiplier"].fill_null(0) > 0).any())
        rule = f" {_steps(finding)}{RULE}." if noisy else ""
        if accuracy is None or accuracy.mean < chance.accuracy:
            yield f"Worse than guessing {where}: {joined(worse)}.{rule}"
        else:
            yield (
                f"Overconfident {where}: {joined(worse)}, although the test accuracy, {percent(accuracy.mean)}, is not below"
                f" that of guessing. Some wrong answers are given with great confidence.{rule}"
            )


def _spoilt(results: Results, findings: Findings) -> Iterator[str]:
    """Name the settings whose training has made models worse than their public start, beyond the interval."""
    for finding in findings.settings:
        start, accuracy = results.starts.get(finding.setting.group), finding.test_accuracy
        if start is not None and accuracy is not None and accuracy.high < start.accuracy:
            yield (
                f"Worse than the public start {protected(finding.setting)} ({finding.setting.place}): the test accuracy is"
                f" {percent(accuracy.mean)} ({percent_interval(accuracy)}), and {percent(start.accuracy)} before training on"
                " these records. The start reveals none of them; to gain from training, take more records, larger batches or another"
                " learning rate."
            )


def _worse(finding: Finding, chance: Guessing, confidence: float) -> list[str]:
    accuracy, loss = finding.test_accuracy, shadow_estimate(finding.shadows, "test_loss", confidence)
    worse = []
    if accuracy is not None and accuracy.mean < chance.accuracy:
        share = f"the most frequent class alone has {percent(chance.accuracy)}"
        worse.append(f"the test accuracy is {percent(accuracy.mean)} where {share}")
    if loss is not None and loss.mean > chance.loss:
        worse.append(
            f"the test loss is {fixed(loss.mean)} where answering the classes' shares has {fixed(chance.loss)}"
        )
    return worse


def _steps(finding: Finding) -> str:
    """Say how the noisiest model of a setting was trained."""
    assert finding.shadows is not None
    worst = finding.shadows.sort("noise_multiplier", descending=True).row(0, named=True)
    batch, epochs = worst["sampling_rate"] * worst["records"], worst["steps"] * worst["sampling_rate"]
    return (
        f"Trained in {worst['steps']} steps of about {significant(batch)} of {worst['records']} records ({significant(epochs)} epochs) at a"
        f" noise multiplier of {significant(worst['noise_multiplier'])}: "
    )


def _deltas(findings: Findings) -> Iterator[str]:
    """Name every δ that is large enough to permit revealing a record outright."""
    for finding in findings.settings:
        delta, size = finding.setting.delta, _units(finding)
        if finding.setting.private and delta and (delta >= LARGE_DELTA or delta * size >= 1):
            least = f"; choose one well below 1/{size}" if size else ""
            yield (
                f"δ = {power(delta)} {protected(finding.setting)} ({finding.setting.place}) permits revealing one record in"
                f" {significant(1 / delta)} outright, whatever ε is{least}."
            )


def _units(finding: Finding) -> int:
    """Return the number of records, or persons, in a training set; 0 where it is unknown."""
    shadows = finding.shadows
    if shadows is None:
        return 0
    by_person = "unit" in shadows.columns and shadows["unit"][0] == "person"
    return int(shadows["persons" if by_person else "records"].max() or 0)  # type: ignore[arg-type]


FEW, WIDE = 16, 0.02
"""More models are recommended below this number, or above this half of the widest interval of an AUC."""
RELEASE = {
    "pass": "Release: the policy is met, so mia-audit release may train the model that is to be published.",
    "fail": "Release: not yet, the policy is not met.",
    "cannot tell": "Release: not yet, the policy asks for more than this audit can show.",
}


def next_steps(findings: Findings, verdict: str = "") -> list[str]:
    """Return three sentences: whether to release, how to protect, and whether to train more models; none without attacks.

    `verdict` is that of the policy, empty without one.
    """
    attacked = [finding for finding in findings.settings if finding.strongest]
    if not attacked:
        return []
    leaking = [finding for finding in attacked if finding.leaking]
    return [RELEASE.get(verdict) or _release(attacked, leaking), _protect(attacked, leaking), _collect(attacked)]


def _release(attacked: Sequence[Finding], leaking: Sequence[Finding]) -> str:
    if any(not finding.learned for finding in attacked):
        return "Release: no advice, because models that have learned nothing cannot reveal anything."
    if leaking:
        tried, leak = (Counter(protected(finding.setting) for finding in some) for some in (attacked, leaking))
        some = {name: f" ({leak[name]} of {tried[name]} settings)" if leak[name] < tried[name] else "" for name in leak}
        names = joined([f"{name}{number}" for name, number in some.items()], "or")
        return f"Release: no model trained {names} if who was in the training set is confidential."
    return "Release: no attack speaks against it; state what is acceptable in a policy (mia-audit gate) before you rely on that."


def _protect(attacked: Sequence[Finding], leaking: Sequence[Finding]) -> str:
    private = [finding for finding in attacked if finding.setting.private]
    held = [finding for finding in private if finding not in leaking]
    if not leaking:
        return "Protect: these attacks do not require it; only a guarantee (ε) also holds against attacks that nobody knows yet."
    if not private:
        return "Protect: train with dp-sgd, or with own for a script, at several ε, and audit what each of them costs and hides."
    if not held:
        return "Protect: every ε that was tried leaks; try a smaller one, or publish fewer outputs and explanations."
    best = max(held, key=lambda one: one.test_accuracy.mean if one.test_accuracy else 0.0)
    accuracy = f", at a test accuracy of {percent(best.test_accuracy.mean)}" if best.test_accuracy else ""
    several = len({finding.setting.place for finding in attacked}) > 1
    place = f" ({best.setting.place})" if several else ""
    return f"Protect: {protected(best.setting)}{place} no attack did better than guessing{accuracy}."


def _collect(attacked: Sequence[Finding]) -> str:
    leaks = [leak for finding in attacked for leak in finding.strongest.values()]
    models = min(len(leak.targets) for leak in leaks)
    halves = [(leak.auc_estimate.high - leak.auc_estimate.low) / 2 for leak in leaks]
    widest = max((half for half in halves if not math.isnan(half)), default=math.inf)
    half = f"± {significant(widest, 2)}"
    if models >= FEW and widest <= WIDE:
        return f"Collect: {count(models, 'model')} are enough for intervals of AUC of at most {half}."
    known = f": the intervals of AUC are up to {half} wide" if math.isfinite(widest) else ""
    key = " (membership.models)" if attacked[0].setting.trained else ""
    return f"Collect: more than {count(models, 'model')}{key}{known}; four times as many halve them."


def not_examined(spec: ReportedAudit, findings: Findings) -> Iterator[str]:
    """Yield what the config left out, and what no audit of this kind examines."""
    group = findings.settings
    tried = {channel for finding in group for channel in finding.strongest}
    if group and (missing := [SUBJECTS[name] for name in ("outputs", "explanations") if name not in tried]):
        yield f"No attack read {joined(missing, 'or')}."
    if group and not any(one.by_person or one.setting.explained for one in group):
        yield "Every record counts for itself; if several belong to one person, name the person of each record (person)."
    if group and not any(setting.grouped for setting in spec.settings):
        key = " (groups)" if spec.trained else ""
        yield f"Whether some groups of people are more exposed than others{key}."
    if group and all(reference([one]) is None for one in group):
        yield "What training without protection would reveal: no setting is without it."
    yield (
        "Attackers who read weights or gradients, who change the training data, or who want to know anything about a record"
        " other than its membership."
    )
