"""What to do now, by case, and what an audit did not examine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mia_audit.report.data.findings import Finding, Findings, reference
from mia_audit.report.text.answer import SUBJECTS
from mia_audit.report.text.formatting import count, joined, percent, protected, significant

if TYPE_CHECKING:
    from mia_audit.report.data.spec import Spec

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
    leaking = [finding for finding in attacked if _leaks(finding)]
    return [RELEASE.get(verdict) or _release(attacked, leaking), _protect(attacked, leaking), _collect(attacked)]


def _leaks(finding: Finding) -> bool:
    return any(leak.beats_guessing for leak in finding.strongest.values())


def _release(attacked: Sequence[Finding], leaking: Sequence[Finding]) -> str:
    if any(not finding.learned for finding in attacked):
        return "Release: no advice, because models that have learned nothing cannot reveal anything."
    if leaking:
        names = joined(list(dict.fromkeys(protected(finding.setting) for finding in leaking)), "or")
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
    return f"Protect: {protected(best.setting)} no attack did better than guessing{accuracy}."


def _collect(attacked: Sequence[Finding]) -> str:
    leaks = [leak for finding in attacked for leak in finding.strongest.values()]
    models = min(len(leak.targets) for leak in leaks)
    halves = [(leak.auc_estimate.high - leak.auc_estimate.low) / 2 for leak in leaks]
    widest = max((half for half in halves if not math.isnan(half)), default=math.inf)
    if models >= FEW and widest <= WIDE:
        return (
            f"Collect: {count(models, 'model')} are enough for intervals of AUC of at most ± {significant(widest, 2)}."
        )
    known = f": the intervals of AUC are up to ± {significant(widest, 2)} wide" if math.isfinite(widest) else ""
    key = " (membership.models)" if attacked[0].setting.trained else ""
    return f"Collect: more than {count(models, 'model')}{key}{known}; four times as many halve them."


def not_examined(spec: Spec, findings: Findings) -> Iterator[str]:
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
