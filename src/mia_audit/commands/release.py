"""Commands for releases: train one model on the whole pool, and show or extend the data set's ledger."""

import argparse
import json
import math
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.commands._arguments import add_batch, add_device, compute_of
from mia_audit.errors import UserError
from mia_audit.report.formatting import at_most
from mia_audit.sanitise import console, visible

if TYPE_CHECKING:
    from mia_audit.privacy.accounting import Charge
    from mia_audit.privacy.ledger import Entry, LedgerHeader, Total


def release_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, help="YAML file of an audit that has been run")
    parser.add_argument("--setting", required=True, metavar="NAME", help="setting, DATASET/ARCHITECTURE/MECHANISM-epsE")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="new folder of the release")
    parser.add_argument("--results", type=Path, help="folder of the audit's results (results/AUDIT)")
    parser.add_argument("--to", default="anybody", metavar="WHOM", help="the recipient, for the ledger (anybody)")
    parser.add_argument("--gate", type=Path, metavar="FILE", help="verdicts of mia-audit gate --json, for the card")
    add_device(parser)
    add_batch(parser)


def run_release(options: argparse.Namespace) -> None:
    """Charge the data set's ledger, train without a seed, and write weights, card and SHA256SUMS."""
    from mia_audit.config.load import in_folder_of, load_audit
    from mia_audit.runtime.machine import acquire_gpu
    from mia_audit.storage.digests import sha256

    out, results = options.out.resolve(), options.results and options.results.absolute()
    verdicts = options.gate and options.gate.absolute()
    with in_folder_of(options.config) as config:
        audit = load_audit(config)
        acquire_gpu(options.device)
        from mia_audit.releasing.recipe import ReleaseRecipe
        from mia_audit.releasing.release import release, summary

        recipe = ReleaseRecipe.from_audit(audit, options.setting, results or Path("results", audit.audit))
        print(
            summary(release(recipe, sha256(config), out, compute=compute_of(options), to=options.to, verdicts=verdicts))
        )


def ledger_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=["show", "add"],
        help="show prints the entries and the total; add charges for a release by another program",
    )
    parser.add_argument("file", type=Path, help="the data set's ledger, privacy.ledger of a config")
    parser.add_argument("--json", action="store_true", help="show: print JSON")
    added = parser.add_argument_group("add", "exactly one of --epsilon, --mu, --rho and --noise-multiplier")
    added.add_argument("--what", default="other", help="what is released (other)")
    added.add_argument("--to", default="anybody", metavar="WHOM", help="recipient of the release (anybody)")
    added.add_argument("--unit", choices=["record", "person"], help="the unit that the guarantee protects")
    added.add_argument(
        "--adjacency", choices=["add-remove", "zero-out", "replace"], help="how neighbouring data sets differ"
    )
    added.add_argument("--epsilon", type=float, help="ε of an (ε, δ) guarantee")
    added.add_argument("--delta", type=float, help="δ of the guarantee with --epsilon (0)")
    added.add_argument("--mu", type=float, help="μ of Gaussian DP")
    added.add_argument("--rho", type=float, help="ρ of zCDP")
    added.add_argument("--noise-multiplier", type=float, help="noise multiplier of Gaussian steps")
    added.add_argument(
        "--sampling-rate", type=float, help="sampling rate of Gaussian steps on Poisson samples (1: all records)"
    )
    added.add_argument("--steps", type=int, help="number of Gaussian steps (1)")


def run_ledger(options: argparse.Namespace) -> None:
    """Print the entries and the total per unit, or add an entry and print the new total."""
    from mia_audit.privacy import ledger

    if options.action == "add":
        if options.unit is None or options.adjacency is None:
            raise UserError(
                "ledger add: --unit and --adjacency: missing; state what the guarantee protects, and how neighbouring data sets differ"
            )
        released = {"id": secrets.token_hex(16), "to": options.to}
        try:
            entry = ledger.entry(
                options.what,
                options.unit,
                _charge(options),
                released=released,
                adjacency=options.adjacency,
            )
        except ValueError as error:
            raise UserError(f"ledger add: {error}") from None
        receipt = ledger.add(options.file, [entry])
        print(f"{options.file}: entry {receipt.entries - 1}; {_sentence(receipt.total)}")
        return
    header, entries, head = ledger.read_ledger(options.file)
    total = ledger.total_of(header, entries)
    if options.json:
        print(json.dumps(ledger_metadata(header, entries, head, total), indent=2, ensure_ascii=False))
    else:
        _print(header, entries, head, total)


def _charge(options: argparse.Namespace) -> "Charge":
    from mia_audit.privacy import accounting
    from mia_audit.privacy.accounting import LEAST_NOISE, UNREACHABLE

    given = [name for name in ("epsilon", "mu", "rho", "noise_multiplier") if getattr(options, name) is not None]
    if len(given) != 1:
        raise UserError("ledger add: exactly one of --epsilon, --mu, --rho and --noise-multiplier was expected")
    if options.delta is not None and given != ["epsilon"]:
        raise UserError("ledger add: --delta is used only with --epsilon")
    if (options.steps is not None or options.sampling_rate is not None) and given != ["noise_multiplier"]:
        raise UserError("ledger add: --steps and --sampling-rate are used only with --noise-multiplier")
    value = getattr(options, given[0])
    if not 0 < value < math.inf:
        raise ValueError(f"--{given[0].replace('_', '-')} {value:g}: expected a positive number")
    least, most = {"noise_multiplier": (LEAST_NOISE, UNREACHABLE), "mu": (1 / UNREACHABLE, 1 / LEAST_NOISE)}.get(
        given[0], (0.0, math.inf)
    )
    if not least <= value <= most:
        raise ValueError(f"--{given[0].replace('_', '-')} {value:g}: expected a number between {least:g} and {most:g}")
    if given == ["epsilon"]:
        return accounting.Stated(value, options.delta or 0.0)
    if given == ["mu"]:
        return accounting.Gaussian(1 / value)
    if given == ["rho"]:
        return accounting.ZeroConcentrated(value)
    steps = 1 if options.steps is None else options.steps
    if options.sampling_rate in (None, 1.0):
        return accounting.Gaussian(value, steps)
    return accounting.PoissonGaussian(value, options.sampling_rate, steps)


def ledger_metadata(header: "LedgerHeader", entries: "list[Entry]", head: str, total: "Total") -> dict[str, Any]:
    """Return a ledger as JSON: its header, its entries in order, and the total."""

    def finite(number: float) -> float | None:
        return number if math.isfinite(number) else None

    return {
        "id": header.id,
        "head": head,
        "unit": header.unit,
        "adjacency": header.adjacency,
        "terms": dict(header.terms),
        "entries": [{"what": one.what, "terms": dict(one.terms), **dict(one.released)} for one in entries],
        "total": {
            "epsilon": finite(total.epsilon),
            "delta": total.delta,
            "budget": finite(total.budget),
            "composed_by": total.composed_by,
        },
    }


def _print(header: "LedgerHeader", entries: "list[Entry]", head: str, total: "Total") -> None:
    from rich.table import Table

    display = console(sys.stdout)
    display.print(visible(f"data set {header.terms['dataset']}, ledger {header.id}"), highlight=False)
    table = Table(box=None, pad_edge=False)
    for column in ("entry", "what", "to", "setting", "terms", "release"):
        table.add_column(column, overflow="fold")
    for number, one in enumerate(entries):
        terms = ", ".join(f"{key} {_short(value)}" for key, value in one.terms.items())
        released = [str(one.released.get(key, "")) for key in ("to", "setting", "id")]
        table.add_row(*map(visible, (str(number), one.what, *released[:2], terms, released[2][:8])))
    display.print(table)
    display.print(visible(_sentence(total)), highlight=False)
    display.print(
        f"digest of the last line {head}: keep a copy of it elsewhere; it reveals whether an older ledger was restored",
        highlight=False,
    )


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _sentence(total: "Total") -> str:
    budget = "" if math.isinf(total.budget) else f" of {total.budget:g}"
    return (
        f"total per {total.unit}: ε = {at_most(total.epsilon, 6)}{budget} at δ = {total.delta} ({total.adjacency}), by"
        f" {total.composed_by}"
    )
