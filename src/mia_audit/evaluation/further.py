"""Repeat a setting's attacks from its signals, each time without one model, to compute intervals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mia_audit.attacks.io.parquet import SignalsFile
from mia_audit.attacks.io.population import with_population
from mia_audit.attacks.persons import NONE
from mia_audit.attacks.run import Held, Run
from mia_audit.evaluation.leave_outs import Rescored, scored_without

if TYPE_CHECKING:
    from mia_audit.evaluation.files import Scored
    from mia_audit.pools.persons import Persons


class FurtherScorings:
    """Repeats attacks, each time without one model. The last attack's signals and scores are kept for the scores of persons."""

    def __init__(self, path: Path, given: dict[str, Any] | None) -> None:
        """Open a signals.parquet; `given` are the attack options that the config sets."""
        self.file = SignalsFile(path)
        self._path = path
        self._options = with_population(given, self.file.models)
        self._known = {signal.name: signal for signal in self.file.signals}
        self._held = Held(self.file.read)
        self._last: tuple[Run, Rescored | None] | None = None

    def persons(self, scored: Scored) -> Persons | None:
        """Return the person of every record if these are scores of persons, else None."""
        return None if scored.aggregate == NONE else self.file.persons

    def of(self, scored: Scored) -> Rescored | None:
        """Return the scores of records by an attack that is repeated without single models; None if there are none, or
        the attack reads other signals.
        """
        attack, names, likelihood, null_control = scored.key
        persons = self.persons(scored)
        unit = self.file.member if persons is None else persons.gathered(self.file.member, str(self._path))
        if not (set(names.split("+")) <= set(self._known) and unit.shape == scored.member.shape):
            return None
        signals = tuple(self._known[name] for name in names.split("+"))
        run = Run(attack, signals, likelihood, null_control)
        if self._last is None or self._last[0] != run:
            self._last = None
            readings = self._held.of(signals, signals)
            self._last = run, scored_without(run, readings, self.file.member, self._options)
        return self._last[1]
