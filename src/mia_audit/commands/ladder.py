"""`mia-audit ladder`: run an audit with few models first, and add more until its intervals are as narrow as `until` requires."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.commands._screens import Screen, jobs_of, screened, stamp
from mia_audit.config.expand import Setting, settings
from mia_audit.config.load import check_audit, load_audit
from mia_audit.config.recipe import recipe
from mia_audit.config.schema import Audit
from mia_audit.errors import UserError

if TYPE_CHECKING:
    from mia_audit.evaluation.stopping import Look


FEWEST = 4
"""Number of models of the smallest audit that can be planned. With fewer models the cost per model is the same."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "config", type=Path, help="the audit's YAML file: ladder, until, and membership.models as the last rung"
    )
    parser.add_argument("--cores", type=int, default=1, help="jobs at a time (1)")
    parser.add_argument("--checkout", type=Path, default=Path(), help="folder of the workflow (.)")
    parser.add_argument(
        "--records-per-second",
        type=float,
        help="rate of one forward and one backward pass, to estimate the next rung; without it, the time of past jobs is used",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="WORD",
        help="a further option for snakemake, such as --workflow-profile=DIR",
    )


def run(options: argparse.Namespace) -> None:
    """Run the workflow rung by rung, print every rung's results, stop when `until` is reached, and finish the audit."""
    audit = load_audit(options.config)
    trained = [setting for setting in settings(audit) if setting.trained]
    if not trained:
        raise UserError(f"{options.config}: no models are trained; a ladder needs shadow models")
    if own := next((name for name, section in audit.mechanisms.items() if section.models), None):
        raise UserError(
            f"{options.config}: mechanisms.{own}.models: a ladder adds the same number of models to every setting; leave the key"
            " out, or run the audit with mia-audit run"
        )
    models = Ladder(options, audit, trained).climb()
    if models < audit.membership.models:
        print(
            f"To keep the audit as it is, set membership.models: {models} in {options.config}; otherwise the workflow trains all models"
        )


@dataclass
class Ladder:
    """An audit that grows rung by rung."""

    options: argparse.Namespace
    audit: Audit
    trained: Sequence[Setting]
    rows: list[dict[str, Any]] = field(default_factory=list)
    """The rows of ladder.csv (`evaluation.rungs`)."""

    @property
    def results(self) -> Path:
        """The audit's folder."""
        return Path("results", self.audit.audit)

    @cached_property
    def recipes(self) -> dict[Setting, str]:
        """Digests of everything that a setting's results depend on, except the number of models."""
        return {setting: recipe(self.audit, setting) for setting in self.trained}

    def climb(self) -> int:
        """Run one rung after the other and finish the audit; return the number of its models."""
        from mia_audit.evaluation.stopping import enough, rungs, screens

        looks = rungs(self.audit.ladder, self.audit.membership.models)
        first = [0, *screens(self.audit.ladder)] if self._screened else []
        start = max(len(first), 1)
        last = start + len(looks) - 1
        for number, references in enumerate(first):
            following = first[number + 1] + 1 if number + 1 < len(first) else looks[0]
            self._screen(f"Rung {number} of {last}", references, looks[0], following)
        for number, models in enumerate(looks, start):
            judged = self._look(f"Rung {number} of {last}", models, len(looks))
            stops = bool(self.audit.until) and enough(judged, self.audit.until)
            self._ended(models, looks[looks.index(models) + 1] if models < looks[-1] and not stops else None)
            if stops:
                print("Every interval is as narrow as requested")
                break
        self._workflow(models, ["--forcerun", "manifest"])
        return models

    @cached_property
    def _screened(self) -> list[Setting]:
        """The settings that are screened. There are none if persons are the unit, because their records are not independent."""
        return [one for one in self.trained if not self.audit.datasets[one.dataset].by_person]

    def _screen(self, title: str, references: int, smallest: int, following: int) -> None:
        """Train the first models of every setting, screen its first model, and print the verdict."""
        models = references + 1
        stamps = [str(stamp(setting, self.results, models)) for setting in self._screened]
        self._workflow(smallest, stamps, jobs_of(models))
        helped = f"{references} other{'s' * (references > 1)} as reference{'s' * (references > 1)}"
        print(f"{title}: one model, {f'and {helped}' if references else 'and no other'}", flush=True)
        for setting in self._screened:
            for one in screened(self.audit, setting, self.results, references):
                print(f"  {setting.path}, {one.sentence()}", flush=True)
                self.rows.append(self._key(setting, models, one, f"tpr_at_{one.estimate.fpr:g}") | _screen_cells(one))
        self._ended(models, following)

    def _look(self, title: str, models: int, looks: int) -> "list[Look]":
        """Run the audit with this many models per setting, print its results and return them."""
        metrics = [str(self.results / setting.path / "metrics.parquet") for setting in self.trained]
        self._workflow(models, metrics)
        looked = {setting: _looks_at(self.audit, setting, self.results, looks) for setting in self.trained}
        print(f"{title}: {models} models, each the target of the others", flush=True)
        for setting, screens in looked.items():
            for one in screens:
                requested = self.audit.until.get(one.metric)
                print(f"  {_sentence(setting, one, requested)}", flush=True)
                self.rows.append(self._key(setting, models, one, one.metric) | _look_cells(one, requested))
        return [one for screens in looked.values() for one in screens]

    def _key(self, setting: Setting, models: int, one: "Look | Screen", metric: str) -> dict[str, Any]:
        names = {name: getattr(one, name) for name in ("attack", "signal", "likelihood")}
        known = {"setting": setting.path, "models": models, "recipe": self.recipes[setting]}
        return known | names | {"metric": metric}

    def _ended(self, models: int, following: int | None) -> None:
        """Print the cost of the next rung, and write all rows so far."""
        from mia_audit.evaluation.rungs import FILE, write_rungs

        if following is not None:
            more, seconds = following - models, self._price(models, following)
            takes = "" if seconds is None else f", about {seconds:,.0f} s of one process"
            print(f"Next: {more} more model{'s' * (more > 1)} per setting{takes}", flush=True)
            for row in self.rows:
                if row["models"] == models:
                    row |= {"more": more, "seconds": seconds}
        write_rungs(self.results / FILE, self.rows)

    def _price(self, models: int, following: int) -> float | None:
        """Return the seconds that the next rung takes, from the given rate or the time of past jobs; None if neither is known."""
        if self.options.records_per_second is None:
            from mia_audit.planning.recorded import recorded

            known = recorded(self.results, self.trained)
            return known.price(models, following - models) if known else None
        before = max(models, FEWEST)
        return self._planned(before + following - models) - self._planned(before)

    def _planned(self, models: int) -> float:
        from mia_audit.planning.costs import RateCosts
        from mia_audit.planning.estimate import estimate, models_of
        from mia_audit.planning.sizes import size_of

        sizes = {name: size_of(self.audit, name, self.results, {}) for name in self.audit.datasets}
        values = self.audit.model_dump(exclude_unset=True) | {"membership": _at(self.audit, models)}
        one = check_audit(values, str(self.options.config))
        return estimate(one, sizes, models_of(one, sizes), RateCosts(self.options.records_per_second), {}).total

    def _workflow(self, models: int, words: Sequence[str], compute: Mapping[str, int] | None = None) -> None:
        from mia_audit.commands import run as workflow

        changed = ["--config", f"membership={json.dumps(_at(self.audit, models))}"]
        if compute:
            section = {**self.audit.compute.model_dump(exclude_unset=True), **compute}
            changed.append(f"compute={json.dumps(section)}")
        arguments = [*words, *self.options.option, *changed]
        if workflow.start(self.options.config, self.options.cores, arguments, self.options.checkout):
            raise UserError(f"{self.options.config}: the workflow failed; the failed job and its log are named above")


def _at(audit: Audit, models: int) -> dict[str, object]:
    return {**audit.membership.model_dump(exclude_unset=True), "models": models}


def _looks_at(audit: Audit, setting: Setting, results: Path, looks: int) -> "list[Look]":
    from mia_audit.evaluation.stopping import look
    from mia_audit.storage import read_frame

    metrics = read_frame(results / setting.path / "metrics.parquet", "metrics")
    screens = look(metrics, list(audit.until) or ["auc"], audit.evaluation.confidence, looks)
    if not screens:
        raise UserError(
            f"{results / setting.path}: fewer than four models of this setting are left, too few for any attack"
        )
    return screens


def _sentence(setting: Setting, one: "Look", requested: float | None) -> str:
    what = f"{setting.path}, {one.attack} on {one.signal}"
    if one.half != one.half:  # NaN
        return f"{what}: too few records to resolve {one.metric}"
    wanted = "" if requested is None else f", requested ± {requested:g}"
    return f"{what}: {one.metric} {one.mean:.4f}, {one.low:.4f} to {one.high:.4f} (± {one.half:.4f}{wanted})"


def _look_cells(one: "Look", requested: float | None) -> dict[str, Any]:
    decision = (
        "" if requested is None else "as narrow as requested" if one.narrow(requested) else "wider than requested"
    )
    decision = "too few records" if one.half != one.half else decision
    return {
        "scored": 1.0,
        "mean": one.mean,
        "low": one.low,
        "high": one.high,
        "requested": requested,
        "decision": decision,
    }


def _screen_cells(one: Screen) -> dict[str, Any]:
    estimate = one.estimate
    cells = {"mean": estimate.tpr, "low": estimate.low, "high": estimate.high, "decision": estimate.verdict()}
    return cells | {"scored": one.scored}
