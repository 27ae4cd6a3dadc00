"""`mia-audit tune`: release the best of a random number of private training runs, under one budget (Papernot and Steinke 2022).

The number of runs is drawn from a truncated negative binomial distribution. The candidate of each run is drawn
uniformly. The model with the best accuracy on the public records is released. The guarantee covers the whole selection,
and holds as long as nobody learns the number of runs or the other models.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.config.specs import TrainingSpec
from mia_audit.errors import UserError
from mia_audit.learners import Compute, Records, TrainingTask, open_learner
from mia_audit.learners.naming import BUILT_IN
from mia_audit.pools.store import read_records
from mia_audit.privacy import spending
from mia_audit.privacy.accounting import epsilon_spent
from mia_audit.privacy.catalogue import Mechanism
from mia_audit.privacy.dataset_ledger import RESTART
from mia_audit.privacy.selection import draw_runs
from mia_audit.privacy.spending import PoissonGaussian, Selection, terms_of
from mia_audit.releasing.recipe import PROTECTED, Recipe
from mia_audit.releasing.release import charge_for, write_release
from mia_audit.releasing.unfinished import unfinished
from mia_audit.training.section import Training

if TYPE_CHECKING:
    from mia_audit.learners import TrainedModel

TUNING = "tuning"
"""The name of a selection in the ledger."""

NARROW = 1e-3
"""Largest share of the budget that the calibration may leave unused."""

HALVINGS = 20

LARGEST = 2.0**12
"""Largest factor of the noise that the calibration tries."""


@dataclass(frozen=True)
class Search:
    """The search space: learning rates, batches and clipping norms (the setting's own if none are listed), and the number of training runs.

    This number has a distribution with the given mean and shape η; shape 0 is the logarithmic distribution, 1 the
    geometric one.
    """

    learning_rates: Sequence[float] = ()
    batches: Sequence[int] = ()
    clip_norms: Sequence[float] = ()
    mean: float = 10.0
    shape: float = 1.0

    def candidates(self, recipe: Recipe) -> list[Recipe]:
        """Return a recipe for every combination. Raises UserError for values that are invalid for the setting."""
        spec = recipe.spec
        if self.clip_norms and spec.mechanism.model_dump().get("clipping") != "flat":
            raise UserError(
                f"--clip-norms: mechanisms.{recipe.setting.mechanism}.clipping is automatic, which has no norm to tune; choose flat"
            )
        rates = self.learning_rates or (spec.training.learning_rate,)
        batches = self.batches or (spec.training.batch,)
        norms = self.clip_norms or (None,)
        tried = []
        for rate, batch, norm in product(rates, batches, norms):
            given = spec.training.model_dump(exclude_none=True) | {"learning_rate": rate, "batch": batch}
            mechanism = {**spec.mechanism.model_dump(), "accountant": "rdp"}
            if norm is not None:
                mechanism["clip_norm"] = norm
            tried.append(_tried(recipe, spec, Training(**given), Mechanism(**mechanism)))
        return tried

    def charge(self, runs: Sequence[spending.Charge]) -> Selection:
        """Return the charge of a selection among training runs."""
        return Selection(float(self.mean), float(self.shape), tuple(map(terms_of, runs)))


def at(candidate: Recipe, epsilon: float) -> Recipe:
    """Return a candidate whose training has another ε."""
    spec = candidate.spec
    return replace(candidate, tried=spec.model_copy(update={"epsilon": repr(epsilon)}))


def calibrated(search: Search, candidates: Sequence[Recipe], epsilon: float, delta: float) -> list[Recipe]:
    """Return the candidates with the least noise for which the whole selection is (ε, δ)-DP, to a thousandth of the budget.

    Their noise multipliers have the same ratios as if every training run had the same ε. Raises UserError if no noise
    is enough, because the selection itself costs more than the budget.
    """
    apart = [_steps(at(one, max(1.0, epsilon / 4))) for one in candidates]

    def runs(scale: float) -> list[PoissonGaussian]:
        return [replace(one, noise_multiplier=scale * one.noise_multiplier) for one in apart]

    def whole(scale: float) -> float:
        return spending.epsilon_by_orders([search.charge(runs(scale))], delta)

    low = high = 1.0
    while whole(high) > epsilon:
        low, high = high, 2 * high
        if high > LARGEST:
            raise UserError(
                f"ε = {epsilon:g} at δ = {delta:g} is too small to select the best of {search.mean:g} training runs on average:"
                " lower --runs, or raise ε"
            )
    while whole(low) <= epsilon and low > 1 / LARGEST:
        low, high = low / 2, low
    for _ in range(HALVINGS):
        if epsilon - whole(high) <= NARROW * epsilon:
            break
        middle = math.sqrt(low * high)
        low, high = (low, middle) if whole(middle) <= epsilon else (middle, high)
    spent = [epsilon_spent(one.noise_multiplier, one.sampling_rate, one.steps, delta, "rdp") for one in runs(high)]
    return [at(one, each) for one, each in zip(candidates, spent, strict=True)]


def _steps(recipe: Recipe) -> PoissonGaussian:
    charge = recipe.charge
    assert isinstance(charge, PoissonGaussian)  # tuning is only for settings that the built-in loop protects
    return charge


def tune(
    recipe: Recipe, search: Search, config_digest: str, out: Path, compute: Compute, to: str = "anybody"
) -> dict[str, Any]:
    """Write the release of the best candidate, and return its card, which states ε of the whole selection.

    The budget is the setting's ε and δ. Raises UserError, and charges nothing, if the setting cannot be tuned, there
    are no public records for scoring models, or the ledger refuses the charge. After a kill the whole selection is
    charged again.
    """
    if out.exists():
        raise UserError(f"{out}: exists already; name a new folder for the release")
    if recipe.promise != PROTECTED or recipe.learner != BUILT_IN or recipe.constants is not None:
        raise UserError(
            f"{recipe.setting.path}: only private training by the built-in loop can be tuned, and only on columns whose constants"
            " are not released with the model"
        )
    public = Records.of(read_records(recipe.pool, "public"))
    if not len(public):
        raise UserError(
            f"datasets.{recipe.setting.dataset}.public: 0, but candidates are scored on public records: set public to a number of"
            " records, and run the audit again"
        )
    delta, budget = recipe.spec.mechanism.delta, float(recipe.spec.epsilon)
    candidates = calibrated(search, search.candidates(recipe), budget, delta)
    charge = search.charge([one.charge for one in candidates])
    records = Records.of(recipe.stored)
    _, learner = open_learner(recipe.architecture_file, compute)
    with unfinished(out, {**recipe.identity(), "search": repr(search)}) as work:
        what = RESTART if TUNING in work.begun else TUNING
        receipt = charge_for(recipe, work, [(what, charge)], to)
        best: tuple[float, Recipe, TrainedModel] | None = None
        for _ in range(draw_runs(search.mean, search.shape, (secrets.randbits(53) + 0.5) / 2**53)):
            chosen = candidates[secrets.randbelow(len(candidates))]
            model = learner.train(
                TrainingTask(
                    records,
                    np.ones(len(records), dtype=bool),
                    chosen.spec.training,
                    chosen.spec.mechanism,
                    float(chosen.spec.epsilon),
                    None,
                    public=public,
                    start=chosen.start,
                )
            )
            score = _accuracy(model, public)
            if best is None or score > best[0]:
                best = score, chosen, model
        assert best is not None
        score, chosen, model = best
        tuning = {
            "candidates": len(candidates),
            "mean": search.mean,
            "shape": search.shape,
            "epsilon_of_run": float(chosen.spec.epsilon),
            "public_records": len(public),
            "public_accuracy": score,
        }
        return write_release(chosen, work, model, out, config_digest, receipt, to, {"tuning": tuning})


def _tried(recipe: Recipe, spec: TrainingSpec, training: Training, mechanism: Mechanism) -> Recipe:
    return replace(recipe, tried=spec.model_copy(update={"training": training, "mechanism": mechanism}))


def _accuracy(model: TrainedModel, public: Records) -> float:
    """Return the share of public records that a model classifies correctly; 0 if its outputs are not finite."""
    logits = model.logits(public)
    return float(np.mean(logits.argmax(axis=1) == public.labels)) if np.isfinite(logits).all() else 0.0
