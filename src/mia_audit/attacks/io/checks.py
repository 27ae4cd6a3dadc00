"""Checks for mistakes that leave every number in range: probabilities given as losses, swapped axes, exact halves declared as fair coins."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from mia_audit.attacks.design import recognise
from mia_audit.errors import UserError

if TYPE_CHECKING:
    from mia_audit.signals.name import Cells, Member

SURE = 5.0
"""A loss is rejected if the members' mean exceeds that of the others by more than this many standard errors."""

NEAR_ONE, PILED = 0.99, 0.25
"""Values within [0, 1] are taken to be softmax probabilities if more than the share `PILED` of them exceed `NEAR_ONE`."""

FEW = 100
"""With this many records or more, exact halves are not a coincidence."""


def check_loss(loss: Cells, member: Member, where: str) -> None:
    """Raise UserError for a loss that looks like the label's softmax probability: within [0, 1], and higher in members or mostly near 1."""
    if loss.max() > 1 or loss.min() < 0:
        return
    inside, outside = (loss[side].astype(np.float64) for side in (member, ~member))
    if not (len(inside) and len(outside)):
        return
    error = np.sqrt(inside.var() / len(inside) + outside.var() / len(outside))
    higher = inside.mean() - outside.mean() > SURE * error > 0
    if higher or (loss > NEAR_ONE).mean() > PILED:
        raise UserError(
            f"{where}: values are within [0, 1] and {'higher in members' if higher else 'mostly near 1'}: they are the label's "
            "softmax probability, not its loss; give them as probability=FILE, or their −log as loss"
        )


def check_probability(values: Cells, where: str) -> None:
    """Raise UserError for a value above 1."""
    if values.max() > 1:
        record, model = np.argwhere(values > 1)[0]
        raise UserError(f"{where}: {values[record, model]:g} at model {model}, record {record} is not a probability")


def check_orientation(member: Member, where: str) -> None:
    """Raise UserError for a membership that is models × records: all rows, but not all columns, have the same number of members.

    Only memberships with more columns than rows are checked. Undecided cases get a warning on stderr.
    """
    records, models = member.shape
    if models <= records:
        return
    rows, columns = (len(np.unique(member.sum(axis=axis))) == 1 for axis in (1, 0))
    shape = f"{where}: {records} × {models} is read as {records} records of {models} models"
    if rows and not columns and records > 1:
        raise UserError(
            f"{shape}, but all rows have equally many members, as if they were the models; expected records × models: transpose it"
        )
    print(f"mia-audit: {shape}; if it is models × records, transpose it and the signals", file=sys.stderr)


def check_coins(member: Member, where: str) -> None:
    """Raise UserError for a membership declared as fair coins if models have exactly half of the records or depend on each other."""
    records = len(member)
    if records >= FEW and (member.sum(axis=0) == records // 2).all():
        raise UserError(
            f"{where}: every model has exactly {records // 2} of {records} records, so membership was not drawn by fair coins; expected --design half"
        )
    if not recognise(member).independent:
        raise UserError(
            f"{where}: memberships in different models depend on each other, so they were not drawn by fair coins; expected --design half"
        )
