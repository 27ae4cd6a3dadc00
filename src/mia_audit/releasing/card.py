"""The card of a released model: its description, its guarantee and the guarantee's assumptions, as JSON and as Markdown.

About the records it states only their number, which is public, and values that the stated ε covers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from platform import python_version
from typing import Any

from mia_audit.learners.naming import BUILT_IN
from mia_audit.privacy import accounting
from mia_audit.privacy.accounting import Charge, PoissonGaussian
from mia_audit.privacy.catalogue import Terms
from mia_audit.privacy.ledger import KEPT, Receipt, remembered
from mia_audit.releasing.recipe import CLAIMED, PROTECTED, UNPROTECTED, ReleaseRecipe
from mia_audit.report.formatting import at_most
from mia_audit.report.provenance import base_names
from mia_audit.sanitise import visible

KIND, FORMAT = "mia-audit model card", 1
PAGE = "card.md"

ADJACENCY = {
    "record": "one record added to the pool or removed from it; the number of records is public",
    "person": "one person, with all of their records, added to the pool or removed from it; the number of persons is public",
}
NOISE = (
    "Gaussian on the clipped sum: each normal number is the sum of four others, divided by 2 (Holohan and Braghin 2021), in double precision,"
    " rounded to single precision once; AES-256 in counter mode, keyed by 256 bits of the operating system's entropy"
)
OWN_NOISE = "added by the user's own mechanism"
PACKAGES = ("mia-audit", "torch", "numpy", "cryptography", "opacus")


def spent(charges: Sequence[Charge], delta: float, accountant: str) -> tuple[float, str]:
    """Return ε at δ of all charges for a release, and the accountant."""
    from mia_audit.privacy.accounting import epsilon_spent

    steps = [one for one in charges if isinstance(one, PoissonGaussian)]
    alike = {(one.noise_multiplier, one.sampling_rate) for one in steps}
    if len(steps) == len(charges) and len(alike) == 1:
        multiplier, rate = alike.pop()
        return epsilon_spent(multiplier, rate, sum(one.steps for one in steps), delta, accountant), accountant
    return accounting.epsilon_by_losses(charges, delta), "pld"


def delta_of(charges: Sequence[Charge], delta: float) -> float:
    """Return the δ at which all charges together have a finite ε: the mechanism's, or the sum of their δs if several are (ε, δ) guarantees.

    A guarantee that is known only as (ε, δ) uses up its whole δ, so nothing is left for a second charge.
    """
    stated = [one.delta for one in charges if isinstance(one, accounting.Stated)]
    if not stated or len(charges) == 1:
        return delta
    return max(delta, sum(stated) + (delta if len(stated) < len(charges) else 0.0))


def card(
    recipe: ReleaseRecipe,
    release_id: str,
    audit: Mapping[str, Any],
    config_digest: str,
    charged: Sequence[Mapping[str, Any]],
    architecture: Mapping[str, Any],
    pool: Mapping[str, Any],
    files: Sequence[str],
    receipt: Receipt | None,
    to: str,
) -> dict[str, Any]:
    """Return the card of a release in JSON form; docs/how-to/release.md explains every key."""
    setting = recipe.setting
    return {
        "kind": KIND,
        "format": FORMAT,
        "id": release_id,
        "date": datetime.now(UTC).date().isoformat(),
        "to": to,
        "audit": dict(audit),
        "setting": {
            "name": setting.path,
            "dataset": setting.dataset,
            "architecture": setting.architecture,
            "mechanism": setting.mechanism,
            "epsilon": setting.epsilon,
        },
        "guarantee": recipe.promise,
        "privacy": _privacy(recipe, charged),
        "ledger": _ledger(receipt),
        "assumptions": list(_assumptions(recipe)),
        "training": _training(recipe),
        "model": base_names(
            {
                "learner": architecture["learner"],
                "model": architecture["model"],
                "arguments": architecture.get("arguments", {}),
                "input_shape": architecture["input_shape"],
                "normalisation": architecture.get("normalisation"),
                "pretrained": recipe.audit.architectures[setting.architecture].pretrained,
            }
        )
        | {"files": sorted(files)},
        "data": {
            "kind": pool["kind"],
            "classes": pool["classes"],
            "features": pool.get("features"),
            "unit": recipe.unit,
            "units": recipe.units,
            "preprocessing": {
                key: pool[key] for key in ("mean", "std", "standardise", "centre", "scale") if key in pool
            },
        },
        "config": {"sha256": config_digest},
        "versions": {"python": python_version()} | {name: version(name) for name in PACKAGES},
    }


def _training(recipe: ReleaseRecipe) -> dict[str, Any] | None:
    """Return the keys of `training` that the built-in loop read; None for other learners, which are not known to read them."""
    if recipe.learner != BUILT_IN:
        return None
    unread = set() if recipe.spec.mechanism.kind.per_record else {"per_record"}
    return recipe.spec.training.model_dump(mode="json", exclude_none=True, exclude=unread)


def _privacy(recipe: ReleaseRecipe, charged: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if recipe.promise == UNPROTECTED:
        return {
            "epsilon": None,
            "delta": None,
            "unit": recipe.unit,
            "adjacency": ADJACENCY[recipe.unit],
        } | dict.fromkeys(("accountant", "noise_multiplier", "sampling", "sampling_rate", "steps", "clipping", "noise"))
    charges = [accounting.charge_of(terms) for terms in charged]
    delta = delta_of(charges, recipe.spec.mechanism.delta)
    terms, steps = recipe.terms
    epsilon, accountant = spent(charges, delta, terms.accountant if terms else "pld")
    stated = {
        "epsilon": epsilon if math.isfinite(epsilon) else None,
        "delta": delta,
        "unit": recipe.unit,
        "adjacency": ADJACENCY[recipe.unit],
        "accountant": accountant if recipe.promise == PROTECTED else "none: the user's own code claims ε",
        "target_epsilon": float(recipe.spec.epsilon),
        "charged": [dict(one) for one in charged],
    }
    return stated | (_steps(terms, steps, OWN_NOISE if _own_mechanism(recipe) else NOISE) if terms else {})


def _own_mechanism(recipe: ReleaseRecipe) -> bool:
    return ":" in recipe.spec.mechanism.mechanism


def _steps(terms: Terms, steps: int, noise: str) -> dict[str, Any]:
    return {
        "noise_multiplier": terms.noise_multiplier,
        "sampling": terms.sampling,
        "sampling_rate": terms.sampling_rate,
        "steps": steps,
        "clipping": terms.clipping,
        "noise": noise,
        "noise_mask": terms.noise_mask,
        "records_per_person": terms.records_per_person or None,
    }


def _ledger(receipt: Receipt | None) -> dict[str, Any] | None:
    if receipt is None:
        return None
    total = receipt.total
    return {
        "id": receipt.ledger,
        "entries": receipt.entries,
        "head": receipt.head,
        "unit": total.unit,
        "adjacency": total.adjacency,
        "epsilon": total.epsilon if math.isfinite(total.epsilon) else None,
        "delta": total.delta,
        "budget": total.budget if math.isfinite(total.budget) else None,
        "composed_by": total.composed_by,
    }


def _assumptions(recipe: ReleaseRecipe) -> Iterator[str]:
    terms, _ = recipe.terms
    unit = recipe.unit
    if recipe.promise == UNPROTECTED:
        yield "None: nothing is promised, and what the model reveals about its records has no bound."
    if recipe.promise == CLAIMED:
        yield (
            f"The user's own code is (ε, δ)-DP with respect to one {unit}, draws its randomness from a source that nobody can"
            " reproduce, and writes nothing else into the model's files. None of this was verified here."
        )
    if recipe.promise == PROTECTED and _own_mechanism(recipe):
        yield (
            "The user's own mechanism trained as it stated: with this sampling, this clipping and this noise, in every step."
            " None of this was verified here."
        )
    if recipe.promise == PROTECTED and terms is not None:
        yield (
            f"In every step each {unit} is in the batch with probability {terms.sampling_rate:.6g}, independently of all others."
        )
        yield (
            "The batches and the noise of training stay secret; their key was held in the memory of one process and never written to disk."
        )
        yield "AES-256 in counter mode is indistinguishable from random bits."
        if terms.noise_mask != "none":
            yield f"The mask of the noise is computed from data that are public, or that ε already covers: {terms.noise_mask}."
    section = recipe.audit.datasets[recipe.setting.dataset]
    if recipe.promise != UNPROTECTED and ":" in section.source:
        yield (
            "The user's own code that reads the records computes each of them from itself alone, and its columns and classes do not"
            " depend on them. This was not verified here."
        )
    drawn = section.records is not None
    yield (
        f"The following is public: the number of {unit}s ({recipe.units:,}), the classes, the columns and their bounds,"
        f"{f' which {unit}s of the file were drawn,' if drawn else ''} and the public records."
    )
    yield (
        "Architecture, start weights, hyperparameters, and the decision to release were fixed without looking at the records."
        " An audit does look at the records, and its publications are not covered."
    )
    if recipe.promise != UNPROTECTED:
        yield "If the training was killed, the time of the kill did not depend on the records. The interrupted part is counted twice."
    if not recipe.audit.privacy.ledger:
        later = {known["ledger"] for path in recipe.kept(KEPT) if (known := remembered(path))}
        others = len({one.released.get("id") for one in recipe.earlier()}) - 1
        besides = f"Besides {others} begun before, nothing" if others > 0 else "Nothing"
        yield (
            f"While it was trained, other releases from these records were charged to a ledger ({', '.join(sorted(later))}), and this"
            " one too."
            if later
            else f"{besides} else was released from these records; no ledger was kept (privacy.ledger)."
        )


def page(values: Mapping[str, Any]) -> str:
    """Return a card as Markdown."""
    return "\n".join(_page(values)) + "\n"


def _page(values: Mapping[str, Any]) -> Iterator[str]:
    setting, privacy, data, ledger = (values[key] for key in ("setting", "privacy", "data", "ledger"))
    yield f"# Model card: {setting['name']}\n"
    yield from _promise(values)
    yield "\n## Privacy\n"
    yield from _rows(privacy, leave_out=("charged", "epsilon"))
    yield "\nAssumptions of this guarantee:\n"
    yield from (f"- {sentence}" for sentence in values["assumptions"])
    yield "\n## All releases from these records\n"
    if ledger:
        whole = "∞" if ledger["epsilon"] is None else at_most(ledger["epsilon"], 4)
        yield (
            f"With this release, ε = {whole} at δ = {ledger['delta']} per {ledger['unit']}, by {ledger['composed_by']}"
            f" (ledger `{ledger['id']}`, {ledger['entries']} {'entry' if ledger['entries'] == 1 else 'entries'})."
        )
        if ledger["budget"] is not None:
            yield (
                "\nIf releases were chosen by the results of earlier ones, the guarantee of all together is the budget,"
                f" ε = {at_most(ledger['budget'], 6)}."
            )
    else:
        yield "No ledger was named, so other releases are not known here. They would add to the ε above."
    yield "\n## Model\n"
    yield from _rows(values["model"])
    yield "\n## Training\n"
    if values["training"]:
        yield from _rows(values["training"])
    else:
        yield "The learner trains in its own way; its arguments are above."
    yield "\n## Data\n"
    yield from _rows({key: value for key, value in data.items() if key != "preprocessing"})
    yield from _rows(data["preprocessing"], head=False)
    yield "\n## Audit\n"
    yield from _audit(values["audit"])
    yield "\n## Origin\n"
    origin = {
        "release": values["id"],
        "date": values["date"],
        "to": values["to"],
        "audit": f"{values['audit']['name']} ({values['audit']['id']})",
        "config, SHA-256": values["config"]["sha256"],
    }
    yield from _rows(origin | dict(values["versions"]))


def _audit(audit: Mapping[str, Any]) -> Iterator[str]:
    trained, gate = audit["training_sha256"], audit["gate"]
    yield (
        f"The audit measured this training, on parts of the data (`{trained}`)."
        if trained
        else "No finished audit of this training is known."
    )
    if gate is None:
        yield "\nNo policy was checked."
        return
    yield (
        f"\n**Policy: {gate['verdict']}.** The policy `{gate['policy_sha256']}` was checked on that audit, with the verdicts"
        f" `{gate['verdicts_sha256']}`."
    )


def _promise(values: Mapping[str, Any]) -> Iterator[str]:
    privacy = values["privacy"]
    if values["guarantee"] == UNPROTECTED:
        yield (
            "**This model was trained without differential privacy.** Anyone who has it, or can query it, may find out whether"
            " somebody's data was in its training set, and may be able to reconstruct some of these data. There is no bound on how reliably."
        )
        return
    epsilon = "∞" if privacy["epsilon"] is None else at_most(privacy["epsilon"], 4)
    yield f"**ε = {epsilon} at δ = {privacy['delta']} per {privacy['unit']}** ({privacy['adjacency']})."
    if values["guarantee"] == CLAIMED:
        yield "\nThe code that trained the model claims this; nothing here verified the claim."


def _rows(values: Mapping[str, Any], leave_out: Sequence[str] = (), head: bool = True) -> Iterator[str]:
    if head:
        yield "| key | value |"
        yield "|---|---|"
    for key, value in values.items():
        if key not in leave_out and value is not None:
            yield f"| {key} | {escape(visible(_text(value).replace(chr(10), ' ')), quote=False).replace('|', chr(92) + '|')} |"


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
