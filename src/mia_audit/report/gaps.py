"""What an audit goes on without: models whose training diverged, and settings that have too few left to be attacked."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from mia_audit.errors import UserError
from mia_audit.missing import missing
from mia_audit.report.results import Gap, Results, Setting, Spec
from mia_audit.report.words import count, joined
from mia_audit.storage import open_table


def audited(root: Path, spec: Spec) -> Results:
    """Open an audit's results; settings that could not be attacked are taken out of the spec and kept among its gaps.

    Raises UserError where no setting is left.
    """
    gaps = tuple(_gaps(root, spec))
    lost = [gap.setting for gap in gaps if not gap.attacked]
    left = tuple(setting for setting in spec.settings if setting not in lost)
    if not left and spec.settings:
        raise UserError(f"{root}: no setting has enough models left: {gap_sentences(gaps)}")
    return Results(root, replace(spec, settings=left, gaps=gaps))


def _gaps(root: Path, spec: Spec) -> Iterator[Gap]:
    for setting in spec.settings:
        path = root / setting.path / "metrics.parquet"
        if models := missing(path, "metrics"):
            yield Gap(setting, models, attacked=open_table(path, "metrics").metadata.num_rows > 0)


def gap_sentences(gaps: tuple[Gap, ...]) -> str:
    """Say which models are missing and why, a sentence a setting; nothing where none is."""
    return " ".join(_sentence(gap) for gap in gaps)


def _sentence(gap: Gap) -> str:
    setting = gap.setting
    where = f"{setting.dataset}, {setting.architecture}, {setting.mechanism} at ε = {setting.epsilon}"
    verdict = "" if gap.attacked else " Too few models are left: this setting is missing from all that follows."
    return f"Left out of {where}: {told(gap)}.{verdict}"


def told(gap: Gap) -> str:
    """Say which models of a setting are missing, and why."""
    by_reason = sorted(gap.models.items(), key=lambda item: (item[1], item[0]))
    parts = []
    for why, group in groupby(by_reason, key=lambda item: item[1]):
        numbers = [str(number) for number, _ in group]
        parts.append(f"{count(len(numbers), 'model')} ({joined(numbers)}) {why}")
    return "; ".join(parts)


def left_out_of(spec: Spec) -> dict[Setting, str]:
    """Return what is missing, in words, by setting."""
    return {gap.setting: told(gap) for gap in spec.gaps}
