"""`private-explainer`: the service that explains queries privately, tested with far companions, forks and kills."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mia_audit.errors import UserError
from mia_audit.explain.private_local import ExplanationSet, PrivateExplainer, Terms
from mia_audit.proving.catalogue import Options, targets
from mia_audit.proving.mechanism import Finding, Mechanism, Pair
from mia_audit.proving.probes import forked_service, in_fork

C = 0.02
RECORDS = 8
NEAR = np.array([1.001 * (np.sqrt(4 + 2 * C) - 2) / 2, 0.0])
"""The record with the longest gradient, just outside the radius of equal weights: there 2αd(d + 2) = c, and d is close to 0."""
FAR = (9e5, 1e8)
"""Positions of companions: within the domain, and outside."""


def explanation_set(record: Any, label: float = 1.0) -> dict[str, Any]:
    """Return records and the black box's values. All records but one equal the query, so their terms are zero."""
    points, values = np.zeros((RECORDS, 2)), -np.ones(RECORDS)
    points[0], values[0] = record, label
    return {"points": points, "values": values}


WITHOUT = explanation_set(np.zeros(2), -1.0)
"""An explanation set in which every record equals the query and has its value, so that all terms are zero."""


@targets.register("private-explainer")
def private_explainer(options: Options) -> Sequence[Mechanism]:
    """Return the service with one query, with several adaptive queries, and with far companions."""
    claim = options.claim("zero-out").gaussian()
    one = Terms(claim.epsilon, claim.delta, claim.epsilon, steps=1, c=C)
    several = replace(one, epsilon=claim.epsilon / 3, steps=4)

    def service(terms: Terms, queries: np.ndarray, protocol: str = "non-adaptive") -> Any:
        def run(data: Any, randomness: int | None, **other: Any) -> Any:
            explained = ExplanationSet.of(data["points"], data["values"], scale=1.0)
            explainer = PrivateExplainer(explained, replace(terms, **other), protocol, seed=randomness)
            return explainer.answer(queries, -np.ones(len(queries)))

        return run

    query = np.zeros((1, 2))
    records = {
        "a record with the longest gradient": NEAR,
        "a record far away": np.array([9e5, 0.0]),
        "a record of NaN": np.array([np.nan, 0.0]),
        "an infinite record": np.array([np.inf, -np.inf]),
        "a huge record": np.array([1e160, 1.0]),
    }
    pairs = [Pair(name, explanation_set(record), WITHOUT) for name, record in records.items()]
    pairs.append(Pair("a record whose value is NaN", explanation_set(NEAR, np.nan), WITHOUT))
    pairs.append(Pair("a record whose value is huge", explanation_set(NEAR, 1e160), WITHOUT))
    longest = pairs[:1]
    other = explanation_set(-NEAR)
    listed = [
        Mechanism(
            "one query",
            service(one, query),
            claim,
            pairs,
            ({"delta": claim.delta / 10}, {"epsilon": claim.epsilon / 2}),
            other,
            (_forked(one), _killed(replace(one, budget=2 * claim.epsilon))),
            secret_seed=True,
        )
    ]
    for protocol in ("non-adaptive", "adaptive"):
        queries = np.repeat(query, 4, axis=0) + (np.arange(4) * 0.3)[:, None]
        listed.append(Mechanism(f"four queries, {protocol}", service(several, queries, protocol), claim, longest))
    for far in FAR:
        beside = service(replace(several, steps=20), np.concatenate([query, np.full((1, 2), far)]))
        listed.append(Mechanism(f"with a companion at {far:g}", beside, claim, longest))
    return listed


def _forked(terms: Terms) -> Any:
    """Return the check of a service without a seed that is loaded before its workers fork."""

    def serve() -> Any:
        explained = ExplanationSet.of(WITHOUT["points"], WITHOUT["values"], scale=1.0)
        service = PrivateExplainer(explained, terms, "non-adaptive")
        return lambda: float(sum(service.answer(np.zeros((1, 2)), -np.ones(1)).spent))

    return forked_service(serve, terms.mu_squared)


def _kill(descriptor: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _killed(terms: Terms) -> Any:
    """Return the check of a service that is killed between the charge and the release of an answer, and then started again."""

    def probe(mechanism: Mechanism) -> Finding:
        explained = ExplanationSet.of(WITHOUT["points"], WITHOUT["values"], scale=1.0)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ledger.arrow"

            def answer(killed: bool) -> float:
                service = PrivateExplainer(explained, terms, "non-adaptive", ledger=path)
                if killed:
                    setattr(os, "fsync", _kill)  # noqa: B010 -- in this fork alone, between the charge and the release
                return float(sum(service.answer(np.zeros((1, 2)), -np.ones(1)).spent))

            results = [in_fork(lambda killed=killed: answer(killed)) for killed in (True, False, False)]  # type: ignore[misc]
            path.write_bytes(path.read_bytes()[:-7])  # simulate a kill that interrupted a write
            results.append(in_fork(lambda: answer(False)))
        spent = sum(result for result in results if isinstance(result, float))
        odd = [result for result in results if isinstance(result, Exception) and not isinstance(result, UserError)]
        verdict = spent <= terms.mu_squared * (1 + 1e-9) and not odd
        detail = f"after a kill, two restarts and an interrupted write, answers costing {spent / terms.mu_squared:.3g} of the budget were released"
        return Finding(mechanism.name, "kill and resume", "held" if verdict else "refuted", detail, mechanism.claim)

    return probe
