"""`mia-audit prove`: try to refute a claim of differential privacy."""

import argparse
import json
from pathlib import Path
from typing import Any

from mia_audit.errors import UserError
from mia_audit.proving.catalogue import Options, resolve, targets
from mia_audit.proving.mechanism import ADJACENCIES, Finding, Verdict
from mia_audit.proving.neighbours import DOMAINS

REFUTED = 3
"""Exit code if there is a counterexample."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "target",
        help=f"{', '.join(targets.names())}; file.py:function; or 'command:COMMAND', which reads and writes JSON lines",
    )
    parser.add_argument("--epsilon", type=float, help="claimed ε (1 for your own mechanisms)")
    parser.add_argument("--delta", type=float, help="claimed δ (1e-5 for your own mechanisms)")
    parser.add_argument("--adjacency", choices=ADJACENCIES[:2], help="how neighbouring inputs of a function differ")
    parser.add_argument(
        "--gaussian",
        action="store_true",
        help="the claim is for a Gaussian mechanism without sampling: also test μ-GDP, which needs far fewer trials",
    )
    parser.add_argument("--records", type=int, default=8, help="largest number of records given to a function (8)")
    parser.add_argument("--features", type=int, default=2, help="columns of the records given to a function (2)")
    parser.add_argument(
        "--classes", type=int, default=0, help="number of classes, if the last column is a label (0: no label)"
    )
    parser.add_argument(
        "--domain", choices=DOMAINS, default="any", help="number of records to which the claim is restricted (any)"
    )
    parser.add_argument("--no-empty", action="store_true", help="do not test inputs with no record or one record")
    parser.add_argument(
        "--secret-seed",
        action="store_true",
        help="the claim is for several releases by a function with the same seed",
    )
    parser.add_argument(
        "--terms",
        action="append",
        default=[],
        help="keyword arguments of a further release with the same seed, as JSON; may be repeated",
    )
    parser.add_argument(
        "--trials", type=int, default=20_000, help="largest number of trials of a game on each input (20000)"
    )
    parser.add_argument("--seconds", type=float, default=240.0, help="time limit in seconds (240)")
    parser.add_argument("--confidence", type=float, default=0.99, help="joint confidence of all findings (0.99)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the trials (0)")
    parser.add_argument("--out", type=Path, help="JSON file for all findings")


def run(options: argparse.Namespace) -> int:
    """Print the findings; return 3 if the claim is refuted, and 0 otherwise."""
    from mia_audit.proving.prover import Limits, prove

    if options.trials < 1 or not options.seconds > 0 or not 0 < options.confidence < 1:
        raise UserError("--trials, --seconds, --confidence: expected positive numbers, and a confidence below 1")
    given = Options(
        options.epsilon,
        options.delta,
        options.adjacency,
        options.records,
        options.features,
        options.classes,
        options.domain,
        not options.no_empty,
        options.secret_seed or bool(options.terms),
        tuple(map(_terms, options.terms)),
        options.gaussian,
    )
    out = options.out.resolve() if options.out else None
    limits = Limits(options.trials, alpha=1 - options.confidence, seconds=options.seconds, seed=options.seed)
    verdict = prove(options.target, resolve(options.target, given), limits)
    for line in lines(verdict):
        print(line)
    if out is not None:
        from mia_audit.storage import atomic_write

        with atomic_write(out) as partial:
            partial.write_text(json.dumps(verdict.as_json(), ensure_ascii=False, indent=1) + "\n")
    return REFUTED if verdict.refuted else 0


def lines(verdict: Verdict) -> list[str]:
    """Return the verdict as text: the counterexample, if any, and the largest bounds."""
    claim = verdict.claim
    said = [f"{verdict.target}: ε = {claim.epsilon:g} at δ = {claim.delta:g}, adjacency {claim.adjacency}"]
    bounded = [finding for finding in verdict.findings if finding.share is not None]
    rest = [finding for finding in verdict.findings if finding.share is None]
    said += [f"  {one.verdict:8} {one.mechanism}, {one.check}: {one.detail}" for one in rest]
    ranked = sorted(bounded, key=lambda one: -(one.reached or 0.0))
    said += [f"  {one.verdict:8} {one.mechanism}, {one.check}: {_bound(one)}" for one in ranked[:8]]
    if len(ranked) > 8:
        said.append(f"  … and {len(ranked) - 8} more, with smaller bounds")
    if (example := verdict.counterexample) is not None:
        said.append(f"refuted by {example.mechanism}, {example.check}")
        said.append(f"  event: {example.detail}")
        if example.counts is not None and example.lower_bound is not None and example.confidence is not None:
            said.append(
                f"  the event occurred {example.counts[0]} and {example.counts[1]} times in {example.trials} trials on each input: at"
                f" confidence {example.confidence:.5g}, ε ≥ {example.lower_bound:.3g}{_gaussian(example)}"
            )
        if example.inputs is not None:
            said += [f"  input {number}: {_short(one)}" for number, one in enumerate(example.inputs, 1)]
    else:
        best = verdict.best
        reached = f": the best bound is ε ≥ {best.lower_bound:.3g}, {best.share:.0%} of its claim" if best else ""
        reached += _gaussian(best) if best else ""
        said.append(f"not refuted in {verdict.seconds:.0f} s{reached}")
    return said


def _bound(one: Finding) -> str:
    assert one.claim is not None and one.counts is not None
    return (
        f"ε ≥ {one.lower_bound:.3g} ({one.share:.0%} of {one.claim.epsilon:g}; {one.trials} trials, event {one.counts[0]}"
        f" and {one.counts[1]} times){_gaussian(one)}"
    )


def _gaussian(one: Finding) -> str:
    if one.gaussian_bound is None:
        return ""
    return f"; by the claim of Gaussian DP, ε ≥ {one.gaussian_bound:.3g} ({one.gaussian_share:.0%})"


def _short(value: Any, width: int = 300) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= width else f"{text[:width]}…"


def _terms(text: str) -> dict[str, Any]:
    try:
        terms = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"--terms {text}: not JSON ({error})") from None
    if not isinstance(terms, dict):
        raise UserError(f'--terms {text}: expected keyword arguments, such as {{"epsilon": 2}}')
    return terms
