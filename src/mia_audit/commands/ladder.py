"""`mia-audit ladder`: run an audit with few models first, and with more while the answer is not as narrow as asked."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mia_audit.commands._rung_zero import ONE, screened, stamp
from mia_audit.config.expand import Setting, settings
from mia_audit.config.load import check_audit, load_audit
from mia_audit.config.schema import Audit
from mia_audit.errors import UserError

if TYPE_CHECKING:
    from mia_audit.evaluation.stopping import Look

Rows = list[dict[str, object]]


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
        help="rate of one forward and one backward pass, for the price of the next rung; without it, no price is printed",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="WORD",
        help="a further word of snakemake's, such as --workflow-profile=DIR",
    )


def run(options: argparse.Namespace) -> None:
    """Run the workflow rung by rung, print what every rung found, stop where `until` says, and finish the audit there."""
    audit = load_audit(options.config)
    trained = [setting for setting in settings(audit) if setting.trained]
    if not trained:
        raise UserError(f"{options.config}: no models are trained; a ladder is of shadow models")
    from mia_audit.evaluation.stopping import enough, rungs
    from mia_audit.sanitise import csv
    from mia_audit.storage import write_text

    results = Path("results", audit.audit)
    looks = rungs(audit.ladder, audit.membership.models)
    rows = _rung_zero(options, audit, trained, results, looks[0])
    for number, models in enumerate(looks, 1):
        _workflow(options, audit, models, [str(results / setting.path / "metrics.parquet") for setting in trained])
        looked = {setting: _look(audit, setting, results, len(looks)) for setting in trained}
        rows += [_row(setting, one) for setting, found in looked.items() for one in found]
        print(f"Rung {number} of {len(looks)}: {models} models, each the target of the others", flush=True)
        for setting, found in looked.items():
            for one in found:
                print(f"  {_sentence(setting, one, audit)}", flush=True)
        if audit.until and enough([one for found in looked.values() for one in found], audit.until):
            print("Every interval is as narrow as asked")
            break
        if number < len(looks):
            print(_next(options, audit, results, models, looks[number]), flush=True)
    import polars as pl

    write_text(results / "ladder.csv", csv(pl.DataFrame(rows, infer_schema_length=None)))
    _workflow(options, audit, models, ["--forcerun", "manifest"])
    if models < audit.membership.models:
        print(
            f"To keep the audit as it is, set membership.models: {models} in {options.config}: the workflow alone trains all of them"
        )


def _rung_zero(options: argparse.Namespace, audit: Audit, trained: list[Setting], results: Path, models: int) -> Rows:
    """Train the first model of every setting, screen it, and print what that says; nothing where persons are the unit."""
    settings = [one for one in trained if not audit.datasets[one.dataset].by_person]
    if not settings:
        return []
    rows: Rows = []
    _workflow(options, audit, models, [str(stamp(setting, results)) for setting in settings], ONE)
    print("Rung 0: one model, and no other", flush=True)
    for setting in settings:
        for how, one in screened(audit, setting, results):
            print(
                f"  {setting.path}, {how}: TPR at {one.fpr:g} is {one.tpr:.4f}, {one.low:.4f} to {one.high:.4f}: {one.verdict()}",
                flush=True,
            )
            key = {"models": 1, "attack": how, "signal": "loss", "likelihood": "none", "metric": f"tpr_at_{one.fpr:g}"}
            numbers = {name: f"{getattr(one, name):.6g}" for name in ("low", "high")}
            rows.append({"setting": setting.path, **key, "mean": f"{one.tpr:.6g}", **numbers})
    return rows


def _at(audit: Audit, models: int) -> dict[str, object]:
    return {**audit.membership.model_dump(exclude_unset=True), "models": models}


def _workflow(
    options: argparse.Namespace,
    audit: Audit,
    models: int,
    words: Sequence[str],
    compute: Mapping[str, int] | None = None,
) -> None:
    from mia_audit.commands import run as workflow

    changed = ["--config", f"membership={json.dumps(_at(audit, models))}"]
    if compute:
        changed.append(f"compute={json.dumps({**audit.compute.model_dump(exclude_unset=True), **compute})}")
    if workflow.start(options.config, options.cores, [*words, *options.option, *changed], options.checkout):
        raise UserError(f"{options.config}: the workflow failed; what failed, and its log, are named above")


def _look(audit: Audit, setting: Setting, results: Path, looks: int) -> "list[Look]":
    from mia_audit.evaluation.stopping import look
    from mia_audit.storage import read_frame

    metrics = read_frame(results / setting.path / "metrics.parquet", "metrics")
    found = look(metrics, list(audit.until) or ["auc"], audit.evaluation.confidence, looks)
    if not found:
        raise UserError(
            f"{results / setting.path}: fewer than four models are left of this setting, which no attack judges"
        )
    return found


def _sentence(setting: Setting, one: "Look", audit: Audit) -> str:
    what = f"{setting.path}, {one.attack} on {one.signal}"
    if one.half != one.half:  # NaN
        return f"{what}: {one.metric} is not resolved by these records"
    asked = f", asked ± {audit.until[one.metric]:g}" if one.metric in audit.until else ""
    return f"{what}: {one.metric} {one.mean:.4f}, {one.low:.4f} to {one.high:.4f} (± {one.half:.4f}{asked})"


def _row(setting: Setting, one: "Look") -> dict[str, object]:
    numbers = {
        name: None if value != value else f"{value:.6g}"
        for name, value in (("mean", one.mean), ("low", one.low), ("high", one.high))
    }
    key = {name: getattr(one, name) for name in ("models", "attack", "signal", "likelihood", "metric")}
    return {"setting": setting.path, **key, **numbers}


def _next(options: argparse.Namespace, audit: Audit, results: Path, models: int, more: int) -> str:
    """Say what the next rung trains, and what it takes where a rate is given."""
    told = f"Next: {more - models} more models a setting"
    if options.records_per_second is None:
        return told
    from mia_audit.planning.costs import Given
    from mia_audit.planning.estimate import estimate, models_of
    from mia_audit.planning.sizes import size_of

    sizes = {name: size_of(audit, name, results, {}) for name in audit.datasets}
    values = audit.model_dump(exclude_unset=True)
    plans = []
    for count in (models, more):
        one = check_audit(values | {"membership": _at(audit, count)}, str(options.config))
        plans.append(estimate(one, sizes, models_of(one, sizes), Given(options.records_per_second), {}).total)
    return f"{told}, about {plans[1] - plans[0]:,.0f} s of one process"
