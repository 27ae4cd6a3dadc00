"""Scheduling of answers, and the remaining budgets. Free answers are given at once, answers from the records one after the other."""

from __future__ import annotations

import asyncio
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mia_audit.errors import UserError
from mia_audit.explain.private_local.records import checked_values
from mia_audit.explain.private_local.service import Account, Answers, Exhausted
from mia_audit.privacy.gaussian import epsilon_of_gdp
from mia_audit.privacy.gdp import ROUNDING, limit_for
from mia_audit.sanitise import visible

if TYPE_CHECKING:
    from jaxtyping import Num

    from mia_audit.serving.subject import Subject

ACCOUNTANT = "Gaussian DP filter (Smith and Thakurta 2022)"
PENDING, WAITING = 8, 64
"""Largest number of waiting queries: those of one caller, and those of all callers that need the records."""


class Refused(Exception):
    """The refusal of a query: an HTTP status, one line with the reason, and the remaining budgets if one is exhausted."""

    def __init__(self, status: int, reason: str, left: Mapping[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.left = status, reason, left


class Desk:
    """Answers queries of callers, each with their own ε, from one explainer.

    One thread queries the black box and another one reads the records, in the order of arrival. A free answer waits
    only for the first thread, and a query that was charged before waits for none. After the ledger has failed, no query
    is answered.
    """

    def __init__(
        self, subject: Subject, callers: Mapping[str, float], failed: Callable[[], None] = lambda: None
    ) -> None:
        self.subject, self.explainer = subject, subject.explainer
        terms = self.explainer.terms
        self.accounts = {name: Account(name, limit_for(budget, terms.delta)) for name, budget in callers.items()}
        self.budgets = dict(callers)
        self.failure = ""
        """The reason why no more queries are answered; empty during normal operation."""
        self.failed = failed
        """A function that is called once, when the service stops answering."""
        self._asking = ThreadPoolExecutor(1, "black-box")
        self._private = ThreadPoolExecutor(1, "private")
        self._pending: Counter[str] = Counter()
        self._waiting = 0

    async def explain(self, record: Num[np.ndarray, " ..."], caller: str) -> dict[str, Any]:
        """Answer one query: a record in the form of the explanation set's records. Raises Refused."""
        self.refuse_failed()
        query, account = record[None], self.accounts[caller]
        try:
            self.explainer.explained.points(query)
        except UserError as error:
            raise Refused(422, str(error)) from None
        answers = self._checked(partial(self.explainer.known, query), caller)
        if answers is None:
            if self._pending[caller] >= PENDING:
                raise Refused(
                    429, f"{PENDING} of your queries are already waiting; try again when they have been answered"
                )
            self._pending[caller] += 1
            try:
                answers = await self._computed(query, account)
            finally:
                self._pending[caller] -= 1
        return {
            "explanation": answers.explanations[0].reshape(record.shape).tolist(),
            "class": answers.classes[0],
            "source": answers.source[0],
            "steps": answers.steps[0],
            "mu_squared": answers.spent[0],
            "left": self.left(caller),
        }

    async def _computed(self, query: np.ndarray, account: Account) -> Answers:
        """Answer from the history if possible, or else from the records, in the order of arrival."""

        def recall() -> tuple[np.ndarray, Answers | None]:
            values = self._values(query)
            return values, self._checked(partial(self.explainer.recall, query, values, account), account.name)

        def compute() -> Answers:
            free = self.explainer.recall(query, values, account)  # other queries were answered meanwhile
            return free or self.explainer.answer(query, values, account)

        values: np.ndarray
        known: Answers | None
        values, known = await self._run(self._asking, recall)
        if known is not None:
            return known
        if self._waiting >= WAITING:
            raise Refused(503, f"{WAITING} queries are already waiting; try again later")
        self._waiting += 1
        try:
            answers: Answers = await self._run(self._private, partial(self._checked, compute, account.name))
            return answers
        finally:
            self._waiting -= 1

    async def _run(self, thread: ThreadPoolExecutor, task: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(thread, task)

    def _values(self, query: np.ndarray) -> np.ndarray:
        """Return the black box's values [1, C] at a query."""
        try:
            values = self.subject.black_box(query)
        except UserError as error:
            print(f"mia-audit: {visible(str(error))}", file=sys.stderr)
            raise Refused(500, "the black box failed at this query; nothing was spent") from None
        try:
            return checked_values(values, 1, "the black box")
        except UserError:
            raise Refused(422, "the black box has no value in [−1, 1] at this query; nothing was spent") from None

    def _checked(self, task: Callable[[], Any], caller: str) -> Any:
        """Return the result of a task of the explainer. Raises Refused if a budget is exhausted or the ledger has failed."""
        self.refuse_failed()
        try:
            return task()
        except Exhausted:
            raise Refused(
                403,
                "your budget or the total budget is too small to answer this query, and there is no earlier explanation of its"
                " class to reuse; nothing was spent",
                self.left(caller),
            ) from None
        except UserError as error:  # queries and values were checked before, so the error is the ledger's
            if not self.failure:
                self.failure = str(error)
                self.failed()
            self.refuse_failed()

    def refuse_failed(self) -> None:
        """Raise Refused if the ledger has failed."""
        if self.failure:
            raise Refused(503, "the ledger has failed: no query is answered until the service is started again")

    def left(self, caller: str) -> dict[str, Any]:
        """Return the spent and remaining parts of the total and of a caller's own budget. Raises Refused if the ledger may lack charges."""
        history, terms = self.explainer.ledger.history, self.explainer.terms
        self._checked(
            self.explainer.ledger.refuse_closed, caller
        )  # check this after reading the history, as in `answer`
        account = self.accounts[caller]

        def part(budget: float, limit: float, spent: float) -> dict[str, Any]:
            rest = max(0.0, limit - spent)
            scratch = terms.steps * terms.step_cost
            return {
                "epsilon": budget,
                "epsilon_spent": _epsilon(spent, terms.delta),
                "share_left": rest / limit,
                "from_scratch_left": max(0, math.floor((limit * (1 + ROUNDING) - spent) / scratch)),
            }

        return {
            "total": part(terms.budget, terms.mu_squared, history.mu_squared),
            "caller": part(self.budgets[caller], account.mu_squared, history.spent.get(caller, 0.0)),
        }

    def facts(self) -> dict[str, Any]:
        """Return the public metadata of the service: its unit and adjacency, its terms, and the form of a query."""
        explained, terms, pool = self.explainer.explained, self.explainer.terms, self.subject.pool
        return {
            "epsilon": terms.budget,
            "delta": terms.delta,
            "unit": explained.unit,
            "units": explained.units,
            "adjacency": terms.adjacency,
            "accountant": ACCOUNTANT,
            "epsilon_from_scratch": terms.epsilon,
            "steps": terms.steps,
            "scale": explained.scale,
            "shape": list(explained.records.shape[1:]),
            "dtype": str(self.subject.dtype),
            "features": pool.get("features"),
            "classes": pool["classes"],
            "black_box": self.subject.card,
        }

    def close(self) -> None:
        """Wait for running computations, drop waiting queries, and close the ledger."""
        for thread in (self._asking, self._private):
            thread.shutdown(wait=True, cancel_futures=True)
        self.explainer.ledger.close()


@lru_cache(1024)
def _epsilon(mu_squared: float, delta: float) -> float:
    return epsilon_of_gdp(math.sqrt(mu_squared), delta)
